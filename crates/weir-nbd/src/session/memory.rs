//! The memory that a client's requests hold: within its own bound, and its worker's for all.

use crate::base::shares::{FIRST, LOOK, Member, Share};
use crate::base::{Budget, Permit};
use crate::io::Reactor;
use std::rc::Rc;

/// What a request holds until its reply has been sent.
pub struct Charge {
    own: Permit,
    share: Share,
    /// Of what is read ahead of what can be sent.
    pub ahead: Option<Permit>,
}

impl Charge {
    /// The request needs no more than `bytes` from now on.
    pub fn shrink(&mut self, bytes: usize) {
        self.own.shrink(bytes);
        self.share.shrink(bytes);
    }
}

/// A client's memory.
pub struct Memory {
    reactor: Rc<Reactor>,
    own: Rc<Budget>,
    member: Rc<Member>,
}

impl Memory {
    /// At most `limit` bytes, and what `member` gets of its worker's.
    pub fn new(reactor: Rc<Reactor>, limit: usize, member: Rc<Member>) -> Self {
        Self { reactor, own: Budget::new(limit), member }
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
        let (reactor, shares) = (self.reactor.clone(), self.member.shares().clone());
        self.reactor.spawn(async move {
            while shares.look() {
                reactor.sleep(LOOK).await;
            }
        });
    }
}
