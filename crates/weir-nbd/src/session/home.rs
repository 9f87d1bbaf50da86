//! What the sessions of one worker share.

use super::connection;
use super::context::{Context, Guest};
use crate::base::shares::Shares;
use crate::io::Reactor;
use crate::transport::{Stream, shut_down};
use rustix::net::Shutdown;
use slab::Slab;
use std::cell::{OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

thread_local! {
    static HOME: OnceCell<Rc<Home>> = const { OnceCell::new() };
}

/// One worker's sessions.
pub struct Home {
    context: Arc<Context>,
    memory: Rc<Shares>,
    sockets: RefCell<Slab<Rc<OwnedFd>>>,
}

impl Home {
    /// Makes this thread, a worker's, the home of sessions.
    pub fn settle(context: Arc<Context>) {
        let memory = Shares::new(context.limits.worker_memory);
        let home = Rc::new(Self { context, memory, sockets: RefCell::default() });
        HOME.with(|cell| drop(cell.set(home)));
    }

    /// Starts the session of a client on this thread. `load` counts the worker's clients.
    pub fn welcome(reactor: &Rc<Reactor>, socket: OwnedFd, guest: Guest, load: Arc<AtomicUsize>) {
        let Some(home) = HOME.with(|cell| cell.get().cloned()) else { return };
        let stream = Stream::new(reactor.clone(), socket, home.context.limits.patience);
        let place = home.sockets.borrow_mut().insert(stream.descriptor().clone());
        reactor.spawn(async move {
            connection::serve(&stream, &home.context, &home.memory).await;
            stream.close().await;
            home.sockets.borrow_mut().remove(place);
            load.fetch_sub(1, Relaxed);
            drop(guest);
        });
    }

    /// Lets this thread's sessions end: they serve what has been received, and then find their clients' ends.
    pub fn stop() {
        Self::shut_down_all(Shutdown::Read);
    }

    /// Ends this thread's sessions, whatever they are at.
    pub fn abort() {
        Self::shut_down_all(Shutdown::Both);
    }

    fn shut_down_all(how: Shutdown) {
        let Some(home) = HOME.with(|cell| cell.get().cloned()) else { return };
        for (_, socket) in home.sockets.borrow().iter() {
            shut_down(socket, how);
        }
    }
}
