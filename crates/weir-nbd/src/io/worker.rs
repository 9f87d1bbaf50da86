//! The loop of one thread: run the tasks that can go on, then wait.

use super::engine::Engine;
use super::fixed::{self, Squeezer};
use super::pool::Pool;
use super::reactor::{Reactor, Remote};
use futures_executor::LocalPool;
use futures_util::task::LocalSpawnExt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use weir::PagePool;

/// A thread's worker.
pub struct Worker {
    tasks: LocalPool,
    reactor: Rc<Reactor>,
    remote: Remote,
}

impl Worker {
    /// A worker for this thread.
    pub fn new(engine: Engine, pool: &Pool) -> io::Result<Self> {
        let (tasks, remote) = (LocalPool::new(), Remote::new()?);
        let driver = engine.open(&remote, pool)?;
        let reactor = Reactor::new(driver, tasks.spawner(), remote.clone(), pool.clone());
        Ok(Self { tasks, reactor, remote })
    }

    /// The way to this worker for other threads.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// See [`fixed::register_buffers`].
    pub fn register_buffers(&self, pool: PagePool, all_pages: Arc<AtomicUsize>) -> Option<Squeezer> {
        fixed::register_buffers(&self.reactor, pool, all_pages)
    }

    /// Runs tasks until [`Reactor::stop`] was called and the last one has ended.
    pub fn run(mut self) -> io::Result<()> {
        let errands = self.reactor.clone().run_errands();
        self.tasks.spawner().spawn_local(errands).expect("the pool lives as long as its worker");
        let mut done = Vec::new();
        loop {
            self.tasks.run_until_stalled();
            if self.reactor.has_ended() {
                fixed::end();
                return Ok(());
            }
            self.reactor.turn(&mut done)?;
        }
    }
}
