use super::*;
use futures_util::FutureExt;
use std::future::Future;
use std::pin::Pin;

const MIB: usize = 1 << 20;

/// A client of whom a test says how it behaves.
#[derive(Default)]
struct Someone {
    moved: Cell<u64>,
    is_its_turn: Cell<bool>,
    is_cut_off: Cell<bool>,
}

impl Client for Someone {
    fn moved(&self) -> u64 {
        self.moved.get()
    }
    fn is_its_turn(&self) -> bool {
        self.is_its_turn.get()
    }
    fn cut_off(&self) {
        self.is_cut_off.set(true);
    }
}

fn join(shares: &Rc<Shares>) -> (Rc<Someone>, Rc<Member>) {
    let someone = Rc::new(Someone::default());
    (someone.clone(), shares.join(someone))
}

/// Takes as much as it gets, a MiB at a time.
fn greedy(member: &Rc<Member>) -> Vec<Share> {
    std::iter::from_fn(|| member.try_take(MIB)).collect()
}

/// A request that has its memory, or waits for it.
fn asks(member: &Rc<Member>, bytes: usize) -> Pin<Box<dyn Future<Output = Share>>> {
    let (member, share) = (member.clone(), member.try_take(bytes));
    Box::pin(async move {
        match share {
            Some(share) => share,
            None => member.wait(bytes, || {}).await,
        }
    })
}

/// A client that keeps its memory for long, asks for more when it is done, and comes back when it was cut off.
struct Greedy {
    someone: Rc<Someone>,
    asking: Pin<Box<dyn Future<Output = Share>>>,
    holds: Option<Share>,
    left: u64,
}

impl Greedy {
    fn new(shares: &Rc<Shares>, bytes: usize) -> Self {
        let (someone, member) = join(shares);
        Self { someone, asking: asks(&member, bytes), holds: None, left: bytes as u64 }
    }

    /// Time goes by, in which it would move `moved` bytes.
    fn goes_on(&mut self, shares: &Rc<Shares>, bytes: usize, moved: u64) {
        if self.holds.is_none() {
            self.holds = self.asking.as_mut().now_or_never();
            self.someone.is_its_turn.set(self.holds.is_some());
        } else {
            self.someone.moved.set(self.someone.moved.get() + moved);
            self.left = self.left.saturating_sub(moved);
            if self.left == 0 || self.someone.is_cut_off.get() {
                self.holds = None;
                *self = Self::new(shares, bytes);
            }
        }
    }
}

/// A minute of greedy clients of these requests, MiB, and of these bytes between two looks. Returns the looks that one of eight
/// good clients waited for at most, their requests of 1 MiB that were served, and how often a greedy one was cut off. A good
/// client makes 20 requests between two looks if it can.
fn minute(sizes: &[usize], moved: impl Fn(usize, u64) -> u64) -> (u32, u32, u32) {
    let shares = Shares::new(256 * MIB);
    let mut greedy: Vec<_> = sizes.iter().map(|mib| Greedy::new(&shares, mib * MIB)).collect();
    let mut good: Vec<_> = (0..8).map(|_| (join(&shares).1, None, 0)).collect();
    let (mut worst, mut served, mut cut) = (0, 0, 0);
    for look in 0..600 {
        shares.look();
        for (number, one) in greedy.iter_mut().enumerate() {
            cut += u32::from(one.someone.is_cut_off.get());
            one.goes_on(&shares, sizes[number] * MIB, moved(number, look));
        }
        for (member, asking, waited) in &mut good {
            for _ in 0..20 {
                let request = asking.get_or_insert_with(|| asks(member, MIB));
                let Some(share) = request.as_mut().now_or_never() else {
                    *waited += 1;
                    worst = worst.max(*waited);
                    break;
                };
                drop((share, asking.take()));
                (*waited, served) = (0, served + 1);
            }
        }
    }
    (worst, served, cut)
}

/// Sixteen clients that want more than there is. Seven of the first leave 16 MiB, ten of the second nothing.
const SIXTEEN: [[usize; 16]; 3] = [[32; 16], [24; 16], [32, 32, 32, 32, 32, 32, 32, 16, 32, 32, 32, 32, 32, 4, 2, 1]];

#[test]
fn a_good_client_waits_for_a_second_at_most_whatever_others_do() {
    // Writers a little above what is slow, between looks and in bursts, and clients that stopped, or do not read.
    let paces: [fn(u64) -> u64; 4] = [
        |_| FLOOR + 1,
        |look| if look % 4 == 0 { FLOOR } else { 0 },
        |look| if look % 4 == 0 { 5 * FLOOR } else { 0 },
        |_| 0,
    ];
    let check = |sizes: &[usize], moved: &dyn Fn(usize, u64) -> u64| {
        let (worst, served, _) = minute(sizes, moved);
        assert!(worst <= 10 && served >= 800, "it waited for {worst} looks, {served} were served, of {sizes:?}");
    };
    for sizes in SIXTEEN {
        paces.iter().for_each(|pace| check(&sizes, &|_, look| pace(look)));
        check(&sizes, &|number, look| paces[number % 4](look));
    }
}

#[test]
fn who_is_quick_or_in_nobodys_way_is_not_cut_off() {
    // Where 16 MiB are left, a write may take seconds.
    for (sizes, moved) in SIXTEEN.into_iter().zip([MIB, 8 * MIB, 8 * MIB]) {
        let (worst, _, cut) = minute(&sizes, |_, _| moved as u64);
        assert!(worst <= 10 && cut == 0, "it waited for {worst} looks, {cut} were cut off, of {sizes:?}");
    }
}

/// A request that waits.
fn waits(member: &Rc<Member>, bytes: usize) -> Pin<Box<dyn Future<Output = Share> + '_>> {
    assert!(member.try_take(bytes).is_none(), "there is memory for it");
    let mut waiting: Pin<Box<dyn Future<Output = Share>>> = Box::pin(member.wait(bytes, || {}));
    assert!(waiting.as_mut().now_or_never().is_none());
    waiting
}

#[test]
fn greedy_clients_leave_as_much_as_each_has() {
    let shares = Shares::new(64 * MIB);
    let members: Vec<_> = (0..5).map(|_| join(&shares).1).collect();
    let first = greedy(&members[0]);
    assert_eq!(first.len(), 30, "half of 60: the reserve is not for them");
    let others: Vec<_> = members[1..].iter().map(greedy).collect();
    let held: Vec<_> = others.iter().map(Vec::len).collect();
    assert_eq!(held, [15, 8, 4, 2]);
    drop((first, others));
    assert_eq!(shares.used(), 0);
}

#[test]
fn small_requests_have_a_reserve_that_no_one_can_take_alone() {
    let shares = Shares::new(64 * MIB);
    let (greedy_one, good) = (join(&shares).1, join(&shares).1);
    let small: Vec<_> = std::iter::from_fn(|| greedy_one.try_take(4096)).collect();
    assert!(small.len() * 4096 < 35 * MIB, "half of the reserve, then half of the rest");
    assert!(good.try_take(4096).is_some_and(|share| share.kind == Kind::Reserve));
}

#[test]
fn a_request_that_is_longer_than_a_share_has_its_turn() {
    let shares = Shares::new(64 * MIB);
    let (large, other) = (join(&shares).1, join(&shares).1);
    assert!(large.try_take(60 * MIB).is_some(), "there is nobody else");
    let _kept = large.try_take(5 * MIB).expect("memory");
    let held = other.try_take(12 * MIB).expect("memory");
    let mut waiting = waits(&large, 45 * MIB);
    // Others pass it, but not for ever.
    for _ in 0..MOST_PASSED {
        assert!(other.try_take(MIB).is_some());
    }
    assert!(other.try_take(MIB).is_none());
    assert!(other.try_take(4096).is_some(), "the reserve is not in its way");
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(held);
    assert!(waiting.as_mut().now_or_never().is_some(), "more than its share");
}

#[test]
fn what_is_given_back_goes_to_who_waits() {
    let shares = Shares::new(64 * MIB);
    let (one, other) = (join(&shares).1, join(&shares).1);
    let mut held = greedy(&one);
    let more = greedy(&other);
    let (mut first, mut second) = (waits(&one, 20 * MIB), waits(&other, 16 * MIB));
    drop(more);
    assert!(second.as_mut().now_or_never().is_some(), "it is within its share");
    assert!(first.as_mut().now_or_never().is_none());
    held.clear();
    assert!(first.as_mut().now_or_never().is_some());
    drop(first);
    assert_eq!(shares.used(), 0);
}

#[test]
fn who_gives_up_leaves_the_line_and_what_it_was_granted() {
    let shares = Shares::new(64 * MIB);
    let (one, other) = (join(&shares).1, join(&shares).1);
    let held = greedy(&one);
    let (gives_up, granted) = (waits(&other, 40 * MIB), waits(&other, 31 * MIB));
    drop(gives_up);
    drop(held);
    assert_eq!(shares.used(), 31 * MIB, "granted, and not yet taken");
    drop(granted);
    assert_eq!(shares.used(), 0);
    assert!(shares.waiting.borrow().is_empty());
    assert!(!shares.look(), "nobody waits");
}

#[test]
fn who_keeps_more_than_a_share_and_does_not_move_is_cut_off_while_others_wait() {
    let shares = Shares::new(64 * MIB);
    let [(stuck, one), (moving, two), (working, three), (_, good)] = [(); 4].map(|()| join(&shares));
    let keep = |member: &Rc<Member>, mib: usize| {
        let kept: Vec<_> = (0..mib).filter_map(|_| member.try_take(MIB)).collect();
        assert!(kept.len() > mib / 2, "{} of {mib} MiB", kept.len());
        kept
    };
    let (first, _second, _third) = (keep(&one, 20), keep(&two, 20), keep(&three, 10));
    stuck.is_its_turn.set(true);
    moving.is_its_turn.set(true);
    let mut waiting = waits(&good, 12 * MIB);
    for _ in 0..LOOKS {
        assert!(![&stuck, &moving, &working].iter().any(|one| one.is_cut_off.get()));
        moving.moved.set(moving.moved.get() + FLOOR);
        assert!(shares.look());
    }
    assert!(stuck.is_cut_off.get(), "it has not moved");
    assert!(!moving.is_cut_off.get(), "it moves");
    assert!(!working.is_cut_off.get(), "it waits for the server");
    drop(first);
    assert!(waiting.as_mut().now_or_never().is_some());
}

#[test]
fn no_more_clients_are_cut_off_than_the_first_in_line_needs() {
    let shares = Shares::new(64 * MIB);
    let members: Vec<_> = (0..3).map(|_| join(&shares)).collect();
    let _held: Vec<_> = members.iter().map(|(_, member)| greedy(member)).collect();
    members.iter().for_each(|(someone, _)| someone.is_its_turn.set(true));
    let good = join(&shares).1;
    let _waiting = waits(&good, 10 * MIB);
    (0..LOOKS).for_each(|_| assert!(shares.look()));
    let cut: Vec<_> = members.iter().map(|(someone, _)| someone.is_cut_off.get()).collect();
    assert_eq!(cut, [true, false, false], "the one that holds most");
}

#[test]
fn a_request_of_half_of_all_memory_does_not_block_another_for_ever() {
    let shares = Shares::new(64 * MIB);
    let [(stuck, one), (_, good)] = [(); 2].map(|()| join(&shares));
    let held = one.try_take(32 * MIB).expect("memory");
    stuck.is_its_turn.set(true);
    // Of the 60 MiB that are not the reserve, 28 are left.
    let mut waiting = waits(&good, 32 * MIB);
    for _ in 0..LOOKS {
        assert!(!stuck.is_cut_off.get());
        assert!(shares.look());
    }
    assert!(stuck.is_cut_off.get());
    drop(held);
    assert!(waiting.as_mut().now_or_never().is_some());
}

#[test]
fn a_small_memory_has_no_first_bytes_of_a_write() {
    assert!(join(&Shares::new(8 * MIB)).1.try_first().is_some());
    assert!(join(&Shares::new(8 * MIB - RESERVE)).1.try_first().is_none());
}

#[test]
fn the_first_bytes_of_a_write_are_of_the_reserve_as_long_as_that_has_some() {
    let shares = Shares::new(64 * MIB);
    let members: Vec<_> = (0..40).map(|_| join(&shares).1).collect();
    let firsts: Vec<_> = members.iter().filter_map(|member| member.try_first()).collect();
    assert_eq!(firsts.len(), 8);
    assert_eq!((shares.general.used.get(), shares.reserve.used.get()), (0, 2 * MIB));
}
