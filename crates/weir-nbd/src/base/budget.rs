//! A bound on memory in flight, for the tasks of one client: when it is used up they wait, first come, first served.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A number of bytes that tasks share.
pub struct Budget {
    limit: usize,
    used: Cell<usize>,
    /// Waiting tasks, by ticket, in order.
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    next_ticket: Cell<u64>,
}

/// Bytes of a budget. They are free again when this is dropped.
pub struct Permit {
    budget: Rc<Budget>,
    bytes: usize,
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self { limit, used: Cell::new(0), waiting: RefCell::new(VecDeque::new()), next_ticket: Cell::new(0) })
    }

    /// Takes `bytes`, and waits until they are free. More than the whole budget counts as the whole budget.
    pub async fn take(self: &Rc<Self>, bytes: usize) -> Permit {
        let bytes = bytes.min(self.limit);
        let place = Place { budget: self, ticket: self.next_ticket.replace(self.next_ticket.get() + 1) };
        poll_fn(|cx| {
            if self.is_first(place.ticket) && self.used.get() + bytes <= self.limit {
                return Poll::Ready(());
            }
            place.wait(cx.waker());
            Poll::Pending
        })
        .await;
        self.used.set(self.used.get() + bytes);
        // Dropping the place wakes the next in line, for which there may be room too.
        drop(place);
        Permit { budget: self.clone(), bytes }
    }

    /// Bytes that are taken.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.used.get()
    }

    fn is_first(&self, ticket: u64) -> bool {
        self.waiting.borrow().front().is_none_or(|(first, _)| *first == ticket)
    }

    fn wake_first(&self) {
        if let Some((_, waker)) = self.waiting.borrow().front() {
            waker.wake_by_ref();
        }
    }
}

impl Permit {
    /// Gives all but `bytes` back.
    pub fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        if less > 0 {
            self.bytes -= less;
            self.budget.used.set(self.budget.used.get() - less);
            self.budget.wake_first();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.used.set(self.budget.used.get() - self.bytes);
        self.budget.wake_first();
    }
}

/// A place in the line of one budget, left when this is dropped.
struct Place<'a> {
    budget: &'a Budget,
    ticket: u64,
}

impl Place<'_> {
    fn wait(&self, waker: &Waker) {
        let mut waiting = self.budget.waiting.borrow_mut();
        match waiting.iter_mut().find(|(ticket, _)| *ticket == self.ticket) {
            Some((_, own)) => own.clone_from(waker),
            None => waiting.push_back((self.ticket, waker.clone())),
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.budget.waiting.borrow_mut().retain(|(ticket, _)| *ticket != self.ticket);
        self.budget.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_executor::LocalPool;
    use futures_util::task::LocalSpawnExt;

    #[test]
    fn who_came_first_is_served_first_and_nobody_starves() {
        let (mut pool, budget) = (LocalPool::new(), Budget::new(10));
        let order = Rc::new(RefCell::new(Vec::new()));
        let first = pool.run_until(budget.take(6));
        for (name, bytes) in [("large", 10), ("small", 1)] {
            let (budget, order) = (budget.clone(), order.clone());
            let task = async move {
                let permit = budget.take(bytes).await;
                order.borrow_mut().push((name, budget.used()));
                drop(permit);
            };
            pool.spawner().spawn_local(task).expect("the pool runs");
        }
        pool.run_until_stalled();
        assert!(order.borrow().is_empty(), "the small one would fit, but came later");
        drop(first);
        pool.run();
        assert_eq!(*order.borrow(), [("large", 10), ("small", 1)]);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_request_above_the_limit_waits_for_all_of_it() {
        let (mut pool, budget) = (LocalPool::new(), Budget::new(10));
        assert_eq!(pool.run_until(budget.take(100)).bytes, 10);
    }

    #[test]
    fn who_gives_up_leaves_the_line() {
        let (mut pool, budget) = (LocalPool::new(), Budget::new(10));
        let all = pool.run_until(budget.take(10));
        let mut waits = Box::pin(budget.take(10));
        assert!(futures_util::FutureExt::now_or_never(waits.as_mut()).is_none());
        drop(waits);
        drop(all);
        assert_eq!(pool.run_until(budget.take(1)).bytes, 1);
        assert!(budget.waiting.borrow().is_empty());
    }
}
