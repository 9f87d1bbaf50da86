//! How fast a client has to be when it is its turn to read or write.
//!
//! A client that may take its time for each byte keeps what it holds for ever. So the time is for a stretch of bytes: the rest
//! of a message, or as many as a floor of throughput asks for in that time.

use crate::io::{Alarm, Reactor};
use rustix::net::{Shutdown, shutdown};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

/// Bytes that a client has to move a second, inside a message.
const FLOOR: u128 = 1024;

/// A connection's turns: those that are the client's now, and how it used them.
pub struct Turns {
    reactor: Rc<Reactor>,
    socket: Rc<OwnedFd>,
    /// How long a client may take for a stretch.
    patience: Duration,
    now: Cell<usize>,
    moved: Cell<u64>,
    /// The client took too long.
    is_over: Cell<bool>,
}

impl Turns {
    pub fn new(reactor: Rc<Reactor>, socket: Rc<OwnedFd>, patience: Duration) -> Rc<Self> {
        let (now, moved, is_over) = (Cell::new(0), Cell::new(0), Cell::new(false));
        Rc::new(Self { reactor, socket, patience, now, moved, is_over })
    }

    /// The server waits for the client.
    pub fn is_clients(&self) -> bool {
        self.now.get() > 0
    }

    /// Bytes that it has read and written in its turns.
    pub fn moved(&self) -> u64 {
        self.moved.get()
    }

    /// The connection was ended because the client took too long.
    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Ends the connection. Every operation on a socket ends when it is shut down, so that none has to be cancelled.
    pub fn end(&self) {
        self.is_over.set(true);
        shut_down(&self.socket, Shutdown::Both);
    }

    /// Ends the connection after `time`, unless the alarm is dropped before.
    pub fn watch(self: &Rc<Self>, time: Duration) -> Alarm {
        let turns = self.clone();
        self.reactor.alarm(time, move || turns.end())
    }

    /// Bytes of a stretch.
    fn stretch(&self) -> u64 {
        (self.patience.as_millis() * FLOOR / 1000).max(1) as u64
    }
}

/// A client's turn: a message, of which it has to read or write the rest in stretches.
pub struct Pace {
    turns: Rc<Turns>,
    alarm: Alarm,
    /// Bytes of this stretch.
    moved: u64,
}

impl Pace {
    /// It begins.
    pub fn new(turns: &Rc<Turns>) -> Self {
        turns.now.set(turns.now.get() + 1);
        Self { turns: turns.clone(), alarm: turns.watch(turns.patience), moved: 0 }
    }

    /// The client has moved so many bytes.
    pub fn count(&mut self, bytes: usize) {
        self.turns.moved.set(self.turns.moved.get() + bytes as u64);
        self.moved += bytes as u64;
        if self.moved >= self.turns.stretch() {
            (self.alarm, self.moved) = (self.turns.watch(self.turns.patience), 0);
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.turns.now.set(self.turns.now.get() - 1);
    }
}

/// Shuts a socket down, and so ends the operations on it. A socket that is not connected any more needs none of it.
pub fn shut_down(socket: &OwnedFd, how: Shutdown) {
    let _ = shutdown(socket, how);
}
