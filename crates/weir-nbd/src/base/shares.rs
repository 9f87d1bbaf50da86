//! The memory of one worker for requests, divided among its clients while they need it.
//!
//! A client may hold as much as it leaves free. A client alone may hold half, each of n greedy ones 1/(n+1), and as much is
//! left for the next that comes. This is a dynamic threshold, as in the buffers of switches. Small requests have a reserve,
//! divided by the same rule. A client that asks for more waits. Others that ask for less may pass the first in line, but not
//! for ever. A client that wants no more than an equal share, and has waited for a quarter of a second, comes before the others.
//!
//! While clients wait, memory has to come back. A client is cut off for which three things hold. It holds more than an equal
//! share, it is its turn to read or write, and it is slow. See [`Shares::look`]. So one that wants an equal share has it within
//! a second: if no other holds more than that, there is one left.
//!
//! **No deadlock.** What holds memory never waits for more, with one exception. A long write holds its first bytes, of the
//! reserve, and waits for the rest, of the other memory. So each that holds a part of the other memory goes on to its end.

use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// Most bytes of a request that the reserve is for: a flush, a page, a long status.
const SMALL: usize = 64 << 10;
/// Most bytes that a write is charged before they have arrived.
pub const FIRST: usize = 256 << 10;
/// The reserve is this part of all memory: 16 MiB of 256.
const RESERVE: usize = 16;
/// Requests that may pass the first in line.
const MOST_PASSED: u32 = 64;

/// Time between two looks.
pub const LOOK: Duration = Duration::from_millis(100);
/// A client that moves fewer bytes than this between two looks is slow, whoever waits: 64 KiB a second.
const FLOOR: u64 = (64 << 10) / 10;
/// Looks of which a client's bytes count together, and for which a request waited, before a client is cut off. They take half a
/// second. A packet that was lost on its way is sent again within that time.
const LOOKS: usize = 5;

/// A client, as far as its memory goes.
pub trait Client {
    /// Bytes that it has read and written, as far as the server waited for them.
    fn moved(&self) -> u64;
    /// The server waits for it to read or write.
    fn is_its_turn(&self) -> bool;
    /// Ends its connection. What it holds is free soon.
    fn cut_off(&self);
}

/// A part of the memory.
struct Part {
    limit: usize,
    used: Cell<usize>,
}

impl Part {
    fn new(limit: usize) -> Self {
        Self { limit, used: Cell::new(0) }
    }

    /// A client that holds `held` bytes of it may have `bytes` more. `is_due`: it has waited for long.
    fn allows(&self, bytes: usize, held: usize, is_due: bool) -> bool {
        let (used, free) = (self.used.get(), self.limit - self.used.get());
        bytes <= free && (used == 0 || is_due || held + bytes <= free)
    }
}

/// Which part of the memory bytes are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    General,
    Reserve,
}

/// The memory of one worker.
pub struct Shares {
    general: Part,
    reserve: Part,
    members: RefCell<Slab<Weak<Member>>>,
    waiting: RefCell<VecDeque<Waiter>>,
    is_watched: Cell<bool>,
}

/// A client's account.
pub struct Member {
    shares: Rc<Shares>,
    number: usize,
    client: Rc<dyn Client>,
    general: Cell<usize>,
    reserve: Cell<usize>,
    /// Bytes that it had moved at each of the last looks since its turn began.
    moved: Cell<[Option<u64>; LOOKS]>,
}

/// Bytes that a client holds. They are free again when this is dropped.
pub struct Share {
    member: Rc<Member>,
    kind: Kind,
    bytes: usize,
}

/// A request in line.
struct Waiter {
    member: Rc<Member>,
    bytes: usize,
    /// Requests that have passed it, and looks that it has waited for.
    passed: Cell<u32>,
    looks: Cell<usize>,
    granted: oneshot::Sender<Share>,
}

impl Shares {
    /// The memory of a worker, bytes.
    pub fn new(limit: usize) -> Rc<Self> {
        let reserve = limit / RESERVE;
        Rc::new(Self {
            general: Part::new(limit - reserve),
            reserve: Part::new(reserve),
            members: RefCell::default(),
            waiting: RefCell::default(),
            is_watched: Cell::new(false),
        })
    }

    /// An account for a client.
    pub fn join(self: &Rc<Self>, client: Rc<dyn Client>) -> Rc<Member> {
        Rc::new_cyclic(|own| Member {
            number: self.members.borrow_mut().insert(own.clone()),
            shares: self.clone(),
            client,
            general: Cell::new(0),
            reserve: Cell::new(0),
            moved: Cell::new(since(0)),
        })
    }

    /// A look at who keeps memory that others wait for; false when nobody waits any more.
    ///
    /// Who wants no more than an equal share need not wait for what others hold above theirs: a client that has not moved as
    /// much as it holds is slow. Who wants more waits for all that are not slower than the floor.
    pub fn look(&self) -> bool {
        let members: Vec<_> = self.members.borrow().iter().filter_map(|(_, member)| member.upgrade()).collect();
        let holding = members.iter().filter(|member| member.general.get() > 0).count();
        // Without the reserve: two requests of half of all memory do not fit beside each other.
        let share = self.general.limit / (holding + 1);
        self.put_first(share);
        self.serve_line();
        let (looks, wanted) = match self.waiting.borrow().front() {
            Some(first) => (first.looks.get(), first.wanted()),
            None => {
                self.is_watched.set(false);
                return false;
            }
        };
        // Clients that hold too much, and how much of it would be left at their pace.
        let floor = |held| if wanted <= share { held } else { FLOOR * LOOKS as u64 };
        let excess = |member: Rc<Member>| {
            let (moved, held) = (member.look()?, member.general.get() as u64);
            (held > share as u64 && moved < floor(held)).then(|| (held.saturating_sub(moved), member))
        };
        let mut slow: Vec<_> = members.into_iter().filter_map(excess).collect();
        slow.sort_by_key(|(left, _)| std::cmp::Reverse(*left));
        if looks < LOOKS {
            return true;
        }
        // Not more of them than the first in line needs.
        let mut missing = wanted;
        for (_, member) in slow {
            member.moved.set(since(member.client.moved()));
            member.client.cut_off();
            missing = missing.saturating_sub(member.general.get());
            if missing == 0 {
                break;
            }
        }
        true
    }

    /// Counts a look for all in line. Who wants no more than `share`, and has waited for long, comes before the others, and none
    /// passes it: of several first the one that wants least. Who was the first until then may be passed again.
    fn put_first(&self, share: usize) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.iter().for_each(|waiter| waiter.looks.set(waiter.looks.get() + 1));
        // Well before clients are cut off for it: most often that is enough.
        let is_due = |waiter: &Waiter| waiter.looks.get() > LOOKS / 2 && waiter.wanted() <= share;
        let (mut due, others): (Vec<_>, Vec<_>) = waiting.drain(..).partition(is_due);
        due.sort_by_key(|waiter| waiter.bytes);
        due.iter().for_each(|waiter| waiter.passed.set(MOST_PASSED));
        if let (Some(_), Some(first)) = (due.first(), others.first()) {
            first.passed.set(0);
        }
        waiting.extend(due.into_iter().chain(others));
    }

    fn part(&self, kind: Kind) -> &Part {
        match kind {
            Kind::General => &self.general,
            Kind::Reserve => &self.reserve,
        }
    }

    /// Where `bytes` of a request can come from now.
    fn find(&self, member: &Member, bytes: usize, is_blocked: bool, is_due: bool) -> Option<Kind> {
        if bytes <= SMALL && self.reserve.allows(bytes, member.reserve.get(), false) {
            return Some(Kind::Reserve);
        }
        let is_free = !is_blocked && self.general.allows(bytes, member.general.get(), is_due);
        is_free.then_some(Kind::General)
    }

    /// Serves the line, after something has become free. A client that has given up has left the line.
    fn serve_line(&self) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|waiter| !waiter.granted.is_closed());
        let mut at = 0;
        while at < waiting.len() {
            let (first, waiter) = (&waiting[0], &waiting[at]);
            let is_due = first.passed.get() >= MOST_PASSED;
            let found = self.find(&waiter.member, waiter.bytes, at > 0 && is_due, at == 0 && is_due);
            let Some(kind) = found else {
                at += 1;
                continue;
            };
            if at > 0 && kind == Kind::General {
                first.passed.set(first.passed.get() + 1);
            }
            let Some(Waiter { member, bytes, granted, .. }) = waiting.remove(at) else { return };
            // It has not given up, as was checked. If it does so before it takes this, the share is dropped there.
            let _ = granted.send(member.share(kind, bytes));
        }
    }

    /// Bytes that are held.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.general.used.get() + self.reserve.used.get()
    }
}

impl Member {
    /// `bytes`, if the client can have them now. More than there is at most counts as all.
    pub fn try_take(self: &Rc<Self>, bytes: usize) -> Option<Share> {
        let bytes = bytes.min(self.shares.general.limit);
        let waiting = self.shares.waiting.borrow();
        let is_blocked = waiting.front().is_some_and(|first| first.passed.get() >= MOST_PASSED);
        let kind = self.shares.find(self, bytes, is_blocked, false)?;
        if let (Some(first), Kind::General) = (waiting.front(), kind) {
            first.passed.set(first.passed.get() + 1);
        }
        drop(waiting);
        Some(self.share(kind, bytes))
    }

    /// The first bytes of a long write: they may be taken while it waits for the rest. `None`: it has to take all at once, as in
    /// less memory than 8 MiB.
    pub fn try_first(self: &Rc<Self>) -> Option<Share> {
        let reserve = &self.shares.reserve;
        // Half of it stays for small requests.
        let has_room = reserve.used.get() + FIRST <= reserve.limit / 2;
        has_room.then(|| self.share(Kind::Reserve, FIRST))
    }

    /// Takes `bytes` as [`Self::try_take`] does, and waits for them. `watch` is called if no request waits yet: it has
    /// [`Shares::look`] called, until that says no.
    pub async fn wait(self: &Rc<Self>, bytes: usize, watch: impl FnOnce()) -> Share {
        let (granted, share) = oneshot::channel();
        let (member, bytes) = (self.clone(), bytes.min(self.shares.general.limit));
        let waiter = Waiter { member, bytes, passed: Cell::new(0), looks: Cell::new(0), granted };
        self.shares.waiting.borrow_mut().push_back(waiter);
        if !self.shares.is_watched.replace(true) {
            watch();
        }
        share.await.expect("who waits is in line")
    }

    /// The memory of its worker.
    pub fn shares(&self) -> &Rc<Shares> {
        &self.shares
    }

    fn own(&self, kind: Kind) -> &Cell<usize> {
        match kind {
            Kind::General => &self.general,
            Kind::Reserve => &self.reserve,
        }
    }

    fn share(self: &Rc<Self>, kind: Kind, bytes: usize) -> Share {
        for count in [self.own(kind), &self.shares.part(kind).used] {
            count.set(count.get() + bytes);
        }
        Share { member: self.clone(), kind, bytes }
    }

    fn give_back(&self, kind: Kind, bytes: usize) {
        for count in [self.own(kind), &self.shares.part(kind).used] {
            count.set(count.get() - bytes);
        }
        self.shares.serve_line();
    }

    /// Bytes that it has moved since some looks ago, if it was its turn all the time.
    fn look(&self) -> Option<u64> {
        let now = self.client.moved();
        let mut moved = self.moved.get();
        let before = moved[0];
        moved.rotate_left(1);
        moved[LOOKS - 1] = Some(now);
        self.moved.set(if self.client.is_its_turn() { moved } else { since(now) });
        before.filter(|_| self.client.is_its_turn()).map(|before| now - before)
    }
}

/// What is known of a client at its first look, or after one at which it was not its turn.
fn since(moved: u64) -> [Option<u64>; LOOKS] {
    let mut looks = [None; LOOKS];
    looks[LOOKS - 1] = Some(moved);
    looks
}

impl Waiter {
    /// Bytes that its client would hold.
    fn wanted(&self) -> usize {
        self.member.general.get() + self.bytes
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shares.members.borrow_mut().remove(self.number);
    }
}

impl Share {
    /// Gives all but `bytes` back.
    pub fn shrink(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        if less > 0 {
            self.bytes -= less;
            self.member.give_back(self.kind, less);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.member.give_back(self.kind, self.bytes);
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
