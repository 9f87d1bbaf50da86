//! Threads that are waited for until they sleep.

use std::path::Path;
use std::sync::mpsc;
use std::{fs, thread};
use weir_testing::wait_until;

/// A thread that is about to wait for another.
pub struct Sleeper(std::path::PathBuf);

impl Sleeper {
    /// Begins one.
    pub fn spawn<'s, 'e>(scope: &'s thread::Scope<'s, 'e>, does: impl FnOnce() + Send + 's) -> Self {
        let (says, hears) = mpsc::channel();
        scope.spawn(move || {
            says.send(fs::read_link("/proc/thread-self").unwrap()).unwrap();
            does();
        });
        Self(Path::new("/proc").join(hears.recv().unwrap()).join("stat"))
    }

    /// Returns once it sleeps.
    pub fn wait(&self) {
        wait_until("the other thread to wait", || fs::read_to_string(&self.0).unwrap().contains(") S "));
    }
}
