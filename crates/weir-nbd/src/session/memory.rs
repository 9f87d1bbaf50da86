//! The memory that a client's requests hold: within its own bound, and its worker's for all.

use crate::base::shares::{FIRST, LOOK, Member, Share};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of bytes that the requests of a client share, in the order in which they come.
pub struct Budget {
    limit: usize,
    free: Arc<Semaphore>,
}

impl Budget {
    /// A budget of `limit` bytes, or of as many as a semaphore counts.
    pub fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { limit, free: Arc::new(Semaphore::new(limit)) }
    }

    /// Takes `bytes`, and waits until they are free. More than the whole budget counts as the whole budget.
    pub async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let bytes = u32::try_from(bytes.min(self.limit)).unwrap_or(u32::MAX);
        self.free.clone().acquire_many_owned(bytes).await.expect("a budget is not closed")
    }
}

/// The memory that a request holds until its reply has been sent.
pub struct Charge {
    own: OwnedSemaphorePermit,
    share: Share,
    /// A permit of what is read ahead of what can be sent.
    pub ahead: Option<OwnedSemaphorePermit>,
}

impl Charge {
    /// The request needs no more than `bytes` from now on.
    pub fn shrink(&mut self, bytes: usize) {
        drop(self.own.split(self.own.num_permits().saturating_sub(bytes)));
        self.share.shrink(bytes);
    }
}

/// A client's memory.
pub struct Memory {
    own: Budget,
    member: Rc<Member>,
}

impl Memory {
    /// At most `limit` bytes, and what `member` gets of its worker's.
    pub fn new(limit: usize, member: Rc<Member>) -> Self {
        Self { own: Budget::new(limit), member }
    }

    /// Takes `bytes` for a request.
    pub async fn take(&self, bytes: usize) -> Charge {
        Charge { own: self.own.take(bytes).await, share: self.share(bytes).await, ahead: None }
    }

    /// Takes `bytes` for a write, as far as that is needed before its first bytes have arrived; and whether there is a rest.
    pub async fn take_first(&self, bytes: usize) -> (Charge, bool) {
        let own = self.own.take(bytes).await;
        let first = if bytes > FIRST { self.member.try_first() } else { None };
        let has_rest = first.is_some();
        let share = match first {
            Some(first) => first,
            None => self.share(bytes).await,
        };
        (Charge { own, share, ahead: None }, has_rest)
    }

    /// Takes the rest of `bytes`.
    pub async fn take_rest(&self, charge: &mut Charge, bytes: usize) {
        charge.share = self.share(bytes).await;
    }

    async fn share(&self, bytes: usize) -> Share {
        match self.member.try_take(bytes) {
            Some(share) => share,
            None => self.member.wait(bytes, || self.watch()).await,
        }
    }

    /// Looks at who keeps memory, while somebody waits for it.
    fn watch(&self) {
        let shares = self.member.shares().clone();
        tokio::task::spawn_local(async move {
            while shares.look() {
                tokio::time::sleep(LOOK).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn requests_wait_in_line_for_their_budget_and_all_of_it_is_the_most() {
        let budget = Budget::new(10);
        let mut first = budget.take(6).now_or_never().expect("there is room");
        let (mut large, mut small) = (Box::pin(budget.take(100)), Box::pin(budget.take(1)));
        assert!(large.as_mut().now_or_never().is_none());
        assert!(small.as_mut().now_or_never().is_none(), "it would fit, but came later");
        drop(first.split(5));
        assert!(large.as_mut().now_or_never().is_none());
        drop(first);
        let large = large.now_or_never().expect("it is its turn");
        assert_eq!(large.num_permits(), 10);
        assert!(small.as_mut().now_or_never().is_none());
        drop(large);
        assert!(small.now_or_never().is_some());
    }

    #[test]
    fn a_budget_without_a_bound_is_one() {
        let budget = Budget::new(usize::MAX);
        assert!(budget.take(1 << 30).now_or_never().is_some());
    }
}
