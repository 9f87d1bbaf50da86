//! A page pool a connection.
//!
//! A connection is a queue: what its requests had, its next requests take again, without another connection's lock and
//! whatever the others do. A connection that has been quiet for a while, and has no reply on its way, gives its pool up. The
//! pages then lie in Weir's zones, until Weir releases them. A busy connection finds them there without a page fault. So the
//! server keeps pages for the connections that use them, and none at rest.
//!
//! Weir's thread, which hears of memory pressure, is the owner of the pools. So a worker that sleeps in the kernel need not be
//! woken to give plain memory back. What a worker puts back in a squeeze window it gives up itself.

use super::pools::Pools;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use weir::{PagePool, PoolPages};

thread_local! {
    /// The pool of the connection whose task is running.
    static CURRENT: RefCell<Option<Rc<ConnectionPool>>> = const { RefCell::new(None) };
}

/// A run of `pages` pages of the pool of the connection whose task is running; `None`: there is none, or a run cannot
/// be so long, or there is no memory.
pub(super) fn get(pages: usize) -> Option<PoolPages> {
    let current = CURRENT.with_borrow(Option::clone);
    current?.get(pages)
}

/// See the module. It belongs to one worker.
pub struct ConnectionPool {
    pools: Pools,
    name: String,
    /// The pool with its number, from the first request with data on.
    pool: RefCell<Option<(usize, PagePool)>>,
    /// Whether the pool was used since the last look at it.
    is_used: Cell<bool>,
}

impl ConnectionPool {
    /// Makes the pool of a connection which has had no request yet. `name` is for figures.
    pub fn new(pools: &Pools, name: &str) -> Rc<Self> {
        Rc::new(Self { pools: pools.clone(), name: name.into(), pool: RefCell::default(), is_used: Cell::new(false) })
    }

    /// Runs `task`, which takes its buffers from here. It is boxed: a future in an argument of an async function would lie
    /// in the caller's twice.
    pub fn run<T>(self: &Rc<Self>, task: impl Future<Output = T>) -> impl Future<Output = T> {
        let mut task = Box::pin(task);
        poll_fn(move |cx| {
            let before = CURRENT.replace(Some(self.clone()));
            let polled = task.as_mut().poll(cx);
            CURRENT.set(before);
            polled
        })
    }

    fn get(&self, pages: usize) -> Option<PoolPages> {
        self.is_used.set(true);
        let mut pool = self.pool.borrow_mut();
        if pool.is_none() {
            *pool = self.pools.add(&self.name);
        }
        pool.as_ref()?.1.get_run(pages)
    }

    /// Whether there is a pool.
    pub fn is_there(&self) -> bool {
        self.pool.borrow().is_some()
    }

    /// Gives the pool up if it was not used since the last look and no request has pages of it. A reply that its client does not
    /// read holds its pages for as long. In a pool that was given up they would be in no figure.
    pub fn look(&self) {
        if !self.is_used.replace(false) && self.in_flight_pages() == 0 {
            self.give_up();
        }
    }

    fn in_flight_pages(&self) -> usize {
        self.pool.borrow().as_ref().map_or(0, |(_, pool)| pool.stats().in_flight_pages)
    }

    fn give_up(&self) {
        if let Some((number, pool)) = self.pool.take() {
            // What is still in flight, at a connection's end, goes on to the zones when it is put back.
            pool.set_max_idle_pages(Some(0));
            pool.tend();
            self.pools.remove(number);
        }
    }
}

impl Drop for ConnectionPool {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Buffer;
    use futures_util::FutureExt;

    fn done<T>(task: impl Future<Output = T>) -> T {
        task.now_or_never().expect("it waits for nothing")
    }

    #[test]
    fn a_quiet_connection_gives_its_pages_up_and_keeps_its_totals() {
        let pools = Pools::new();
        let connection = ConnectionPool::new(&pools, "test");
        assert_eq!(pools.figures().count, 0, "no request yet: no pool");
        let held = done(connection.run(async { Buffer::take(8192) })).expect("memory");
        done(connection.run(async { drop(Buffer::take(4096)) }));
        let figures = pools.figures();
        assert_eq!((figures.count, figures.in_flight_pages, figures.idle_pages), (1, 2, 1));
        connection.look();
        assert!(connection.is_there(), "it was used since the last look");
        connection.look();
        let figures = pools.figures();
        assert_eq!((figures.count, figures.in_flight_pages), (1, 2), "a reply holds pages, and they are counted");
        drop(held);
        connection.look();
        assert!(!connection.is_there());
        let figures = pools.figures();
        assert_eq!((figures.count, figures.gets, figures.idle_pages), (0, 2, 0));
        // And again.
        drop(done(connection.run(async { Buffer::take(4096) })));
        assert_eq!((pools.figures().count, pools.figures().gets), (1, 3));
        drop(connection);
        assert_eq!((pools.figures().count, pools.figures().gets), (0, 3));
    }

    #[test]
    fn tasks_of_two_connections_use_each_its_own_pool() {
        let pools = Pools::new();
        let [one, other] = ["one", "other"].map(|name| ConnectionPool::new(&pools, name));
        let nested = one.run(async {
            let inside = other.run(async { Buffer::take(4096) }).await;
            (inside, Buffer::take(4096))
        });
        let (inside, outside) = done(nested);
        assert_eq!((one.in_flight_pages(), other.in_flight_pages()), (1, 1));
        drop((inside, outside));
        assert_eq!((one.in_flight_pages(), other.in_flight_pages()), (0, 0));
        // Outside of any connection's task a buffer is the heap's.
        assert!(get(1).is_none());
    }
}
