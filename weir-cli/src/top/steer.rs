//! Telling processes to release memory, beside the screen: an answer may take seconds.

use super::model::Request;
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
    pub fn tell(&self, request: Request, pids: Vec<i32>) -> String {
        let say = self.say.clone();
        let count = pids.len();
        let thread = std::thread::Builder::new().spawn(move || {
            for pid in pids {
                let answer = match tell_one(pid, request) {
                    Ok(released) => format!("{pid}: {} released {}", request.word(), bytes(released)),
                    Err(why) => why.to_string(),
                };
                // The screen may have been left meanwhile.
                let _ = say.send(answer);
            }
        });
        match thread {
            Ok(_) if count == 1 => format!("{} ...", request.word()),
            Ok(_) => format!("{} of {count} processes ...", request.word()),
            Err(error) => format!("cannot start a thread: {error}"),
        }
    }

    /// An answer that has come.
    pub fn answer(&self) -> Option<String> {
        self.heard.try_recv().ok()
    }
}

/// Bytes that the process released.
fn tell_one(pid: i32, request: Request) -> Result<u64, Failure> {
    let page = Inspected::new(pid).and_then(|it| it.page());
    let page = page.map_err(|why| Failure::of_weir(format!("process {pid}: {why}")))?;
    let answer = Control::connect(pid, &page)?.ask(request.word())?;
    let number = answer.split_whitespace().find_map(|word| word.parse().ok());
    number.ok_or_else(|| Failure::of_weir(format!("process {pid} answers: {}", answer.trim())))
}
