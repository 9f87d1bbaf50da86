//! Telling processes to release memory, beside the screen: an answer may take seconds.

use super::model::Request;
use crate::around::family::Identity;
use crate::base::failure::Failure;
use crate::base::units::bytes;
use crate::inspect::control::Control;
use crate::inspect::page::Inspected;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The answers that are awaited.
pub struct Steering {
    say: Sender<String>,
    heard: Receiver<String>,
}

impl Steering {
    /// None yet.
    pub fn new() -> Self {
        let (say, heard) = channel();
        Self { say, heard }
    }

    /// Tells each of these processes, one after the other. On a thread of its own, as a connection may enter the
    /// process's network namespace.
    pub fn tell(&self, request: Request, processes: Vec<Identity>) -> String {
        let say = self.say.clone();
        let count = processes.len();
        let thread = std::thread::Builder::new().spawn(move || {
            for process in processes {
                let answer = match tell_one(process, request) {
                    Ok(released) => format!("{}: {} released {}", process.pid, request.words().0, bytes(released)),
                    Err(why) => why.to_string(),
                };
                // The screen may have been left meanwhile.
                let _ = say.send(answer);
            }
        });
        match thread {
            Ok(_) if count == 1 => format!("{} ...", request.words().0),
            Ok(_) => format!("{} of {count} processes ...", request.words().0),
            Err(error) => format!("cannot start a thread: {error}"),
        }
    }

    /// An answer that has come.
    pub fn answer(&self) -> Option<String> {
        self.heard.try_recv().ok()
    }
}

/// Bytes that the process released.
fn tell_one(process: Identity, request: Request) -> Result<u64, Failure> {
    let pid = process.pid;
    let failed = |why: String| Failure::of_weir(format!("process {pid}: {why}"));
    let (inspected, page) = Inspected::with_page(pid).map_err(|why| failed(why.to_string()))?;
    let control = Control::connect(pid, &page)?;
    // Once it is connected: the process that was chosen is there still, and so the number was its all the time.
    if inspected.process.stat().map(|stat| stat.starttime).ok() != Some(process.started) {
        return Err(failed("it has ended, and another one may have its number".into()));
    }
    let answer = control.ask(request.words().0)?;
    let number = answer.split_whitespace().find_map(|word| word.parse().ok());
    number.ok_or_else(|| Failure::of_weir(format!("process {pid} answers: {}", answer.trim())))
}
