//! What an experiment changed on the machine, and how it is put back whatever happens: at the end of a scope, upon an
//! error, a panic, Ctrl-C or a request to end. Only SIGKILL and a power cut get past it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

type RestoreAction = Box<dyn FnOnce() + Send>;

static UNDOS: Mutex<(u64, BTreeMap<u64, RestoreAction>)> = Mutex::new((0, BTreeMap::new()));

/// Set by a signal: from then on one thread restores everything and ends the process, and no other changes anything.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Puts one thing back when dropped.
#[must_use = "dropping the guard puts the change back at once"]
pub struct RestoreGuard(u64);

/// Registers how to put something back. Call it before the change, so that no moment is uncovered.
pub fn on_end(undo: impl FnOnce() + Send + 'static) -> RestoreGuard {
    stop_if_ending();
    let mut undos = lock();
    undos.0 += 1;
    let number = undos.0;
    undos.1.insert(number, Box::new(undo));
    RestoreGuard(number)
}

impl Drop for RestoreGuard {
    fn drop(&mut self) {
        stop_if_ending();
        let undo = lock().1.remove(&self.0);
        if let Some(undo) = undo {
            undo();
        }
    }
}

/// Puts everything back, last change first.
pub fn everything() {
    stop_if_ending();
    undo_all();
}

fn stop_if_ending() {
    while ENDING.load(Ordering::Acquire) {
        std::thread::park();
    }
}

fn undo_all() {
    loop {
        let last = lock().1.pop_last();
        match last {
            Some((_, undo)) => undo(),
            None => return,
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, (u64, BTreeMap<u64, RestoreAction>)> {
    UNDOS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Makes panics, SIGINT, SIGTERM and SIGHUP put everything back. Call it before any thread is started.
pub fn install() -> Result<(), String> {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        default(info);
        everything();
    }));
    // SAFETY: a signal set is plain data; the calls write and read only it. Blocked before any other thread exists,
    // only the thread that waits for them gets the signals. Children start with nothing blocked: std does that.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        if libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err("cannot take over signals".into());
        }
        set
    };
    std::thread::spawn(move || wait_for(&set));
    Ok(())
}

fn wait_for(set: &libc::sigset_t) {
    let mut signal = 0;
    // SAFETY: waits for a signal of the set and writes its number.
    unsafe { libc::sigwait(set, &mut signal) };
    eprintln!("weir-lab: signal {signal}: putting everything back");
    ENDING.store(true, Ordering::Release);
    undo_all();
    std::process::exit(128 + signal);
}
