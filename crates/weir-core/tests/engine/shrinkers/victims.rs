//! The victim order: which caches shrink when many processes hear of the same pressure. Those that cost least of all together do.

use super::*;
use weir_core::base::units::Pages;
use weir_core::policy::watermarks::Marks;
use weir_core::reclaim::Usage;
use weir_core::reclaim::balancer_turn::{Next, Turn};
use weir_core::reclaim::budget::Room;
use weir_core::telemetry::tables::{EvictableRow, ZoneRow};

mod refills;

const MIB: usize = 1 << 20;
/// Bytes of each cache.
const BYTES: usize = 64 * MIB;
/// Bytes below a limit of several.
const CAPACITY: usize = 1 << 30;
/// Bytes that a small process gives by itself for an event.
const ALONE: usize = PAGEBLOCK;

/// A process with a cache of which each byte costs as much as its price says, and a curve that tells so.
struct Process {
    heap: TheHeap,
    cache: Registered,
    told: Arc<Told>,
    bytes: Arc<AtomicUsize>,
    price: u64,
}

impl Process {
    fn new(price: u64) -> Self {
        let (heap, queue, bytes) = (heap(), queue(), Arc::new(AtomicUsize::new(BYTES)));
        heap.platform().tunables().background.set(1);
        heap.platform().elsewhere.1.store(1 << 30, SeqCst);
        serve_always(heap, queue);
        let left = bytes.clone();
        let evict: OnScan = Box::new(move |wanted| {
            let evicted = wanted.next_multiple_of(4096).min(left.load(SeqCst));
            left.fetch_sub(evicted, SeqCst);
            heap.platform().elsewhere.0.fetch_add(evicted as u64, SeqCst);
            heap.platform().elsewhere.1.fetch_sub(evicted as u64, SeqCst);
            Ok(evicted)
        });
        let (cache, told) = register(heap, queue, shrinker("cache", Class::Cache), BYTES, Some(evict));
        told.bytes.store(BYTES, SeqCst);
        let process = Self { heap, cache, told, bytes, price };
        process.publish();
        process
    }

    /// Writes its curve by what the cache has now.
    fn publish(&self) {
        let bytes = self.bytes.load(SeqCst) as u64;
        // A byte costs the same in each of its parts: an edge with as many returns as hits.
        let row = EvictableRow {
            bytes,
            spare_bytes: bytes,
            hit_rate: self.price * bytes,
            return_rate: self.price * bytes,
            miss_ns: 1000,
            ..EvictableRow::default()
        };
        self.publish_row(row);
    }

    fn publish_row(&self, row: EvictableRow) {
        let tell = |add: &mut dyn FnMut(&EvictableRow, &Prices)| {
            add(&row, &Prices::new());
            true
        };
        self.heap.figures().publish_costs(&Usage::default(), tell);
    }

    /// Hears of pressure; returns the bytes that its cache gave.
    fn hears(&self, level: Level) -> usize {
        let before = self.bytes.load(SeqCst);
        pressure(self.heap, level);
        let mut turn = Turn::default();
        while self.heap.reclaim().balance_zones(&mut turn) == Next::Again {}
        before - self.bytes.load(SeqCst)
    }
}

/// Processes that can read each other's pages, with these prices.
fn processes(prices: impl Iterator<Item = u64>) -> Vec<Process> {
    let all: Vec<Process> = prices.map(Process::new).collect();
    for (own, process) in all.iter().enumerate() {
        let others = all.iter().enumerate().filter(|&(other, _)| other != own);
        *process.heap.platform().neighbours.lock().unwrap() =
            others.map(|(_, other)| other.heap.platform().stats()).collect();
    }
    all
}

fn end(all: Vec<Process>) {
    all.into_iter().for_each(|process| process.cache.unregister(process.heap));
}

#[test]
fn of_a_hundred_processes_the_cheapest_give_what_all_would_have_given() {
    let all = processes((0..100).map(|number| 1 + number * 37 % 100));
    for round in 0..3 {
        all.iter().for_each(Process::publish);
        let mut given: Vec<(u64, usize)> =
            all.iter().map(|process| (process.price, process.hears(Level::Some))).collect();
        given.sort_unstable();
        let sum: usize = given.iter().map(|&(_, bytes)| bytes).sum();
        // Who has nothing left wants nothing.
        let wanting = 100 - given.iter().filter(|&&(price, _)| price as usize <= round * 100 * ALONE / BYTES).count();
        assert!((wanting * ALONE..=(wanting + 3) * ALONE).contains(&sum), "round {round}: {sum}");
        // Three caches and an eighth of the next, then from there on.
        let dearest = given.iter().rposition(|&(_, bytes)| bytes > 0).unwrap() + 1;
        assert!(dearest <= (round + 1) * 100 * ALONE / BYTES + 1, "round {round}: {given:?}");
    }
    end(all);
}

/// NORMAL is at low, so that the balancer wakes; what it lacks.
fn is_short(process: &Process, capacity: usize) -> usize {
    is_short_of(process, capacity, Room::shared)
}

fn is_short_of(process: &Process, capacity: usize, room: impl FnOnce(u64, u64) -> Room) -> usize {
    let marks = Marks::of(Pages::in_bytes(capacity), 250);
    process.heap.reclaim().read_room(room(capacity as u64, (capacity - marks.low.bytes().0) as u64));
    (marks.high - marks.low).bytes().0
}

/// Works until the balancer has nothing to do now; bytes that the cache gave.
fn balances(process: &Process, turn: &mut Turn) -> usize {
    let before = process.bytes.load(SeqCst);
    while process.heap.reclaim().balance_zones(turn) == Next::Again {}
    before - process.bytes.load(SeqCst)
}

/// Two with these prices, below one limit that both have told.
fn below_one_limit(prices: [u64; 2]) -> Vec<Process> {
    let all = processes(prices.into_iter());
    for process in &all {
        is_short(process, CAPACITY);
        let row = ZoneRow { capacity: CAPACITY as u64, ..ZoneRow::default() };
        process.heap.platform().stats().zones.write(|add| add(row));
    }
    all
}

#[test]
fn below_one_limit_the_cheapest_give_what_is_missing_and_the_dear_what_these_do_not() {
    let all = below_one_limit([1, 2]);
    let [mut cheap, mut dear] = [Turn::default(), Turn::default()];
    let lacks = is_short(&all[1], CAPACITY);
    assert_eq!(balances(&all[1], &mut dear), 0);
    assert!(balances(&all[0], &mut cheap) >= lacks);
    // It is as short as before, whatever the other gave.
    all[1].heap.platform().pass_ms(20);
    assert!(balances(&all[1], &mut dear) >= lacks);
    end(all);
}

/// A step of work takes a millisecond here.
#[test]
fn the_balancer_takes_no_more_of_a_cpu_than_it_may() {
    let pause_at = |percent: u64| {
        let process = Process::new(1);
        let platform = process.heap.platform();
        platform.tunables().reclaim_cpu_percent.set(percent);
        is_short(&process, CAPACITY);
        platform.clock_step.store(1_000_000, SeqCst);
        let mut turn = Turn::default();
        assert_eq!(process.heap.reclaim().balance_zones(&mut turn), Next::Again);
        let next = process.heap.reclaim().balance_zones(&mut turn);
        let now = platform.now();
        process.cache.unregister(process.heap);
        if let Next::At(until) = next { until.since(now).0 } else { 0 }
    };
    let [tenth, half] = [10, 50].map(pause_at);
    assert!(tenth > 5 * half && pause_at(100) == 0, "{tenth} and {half} ns");
}

#[test]
fn limits_of_one_size_that_two_groups_have_are_two() {
    let all = below_one_limit([1, 2]);
    all.iter().zip([7, 8]).for_each(|(process, group)| {
        process.heap.platform().stats().limit_group.store(group, Relaxed);
    });
    let in_group = |group| move |capacity, used| Room { group, ..Room::shared(capacity, used) };
    let lacks = is_short_of(&all[1], CAPACITY, in_group(8));
    assert!(balances(&all[1], &mut Turn::default()) >= lacks, "the other's group is not short");
    end(all);
    let all = below_one_limit([1, 2]);
    all.iter().for_each(|process| process.heap.platform().stats().limit_group.store(8, Relaxed));
    is_short_of(&all[1], CAPACITY, in_group(8));
    assert_eq!(balances(&all[1], &mut Turn::default()), 0, "it is one group");
    end(all);
}

/// A hundred processes below one limit, of which one in ten is dear. A burst makes pressure severe; after it milder events go on.
#[test]
fn after_a_burst_the_dear_keep_what_the_cheap_can_give() {
    let all = processes((0..100).map(|number| if number % 10 == 0 { 1000 } else { 1 + number }));
    for process in &all {
        let row = ZoneRow { capacity: CAPACITY as u64, ..ZoneRow::default() };
        process.heap.platform().stats().zones.write(|add| add(row));
        process.heap.reclaim().note_pressure(Level::Severe, Cause::Limit);
    }
    for _ in 0..3 {
        let (mut dear, mut cheap, mut lacks) = (0, 0, 0);
        for (number, process) in all.iter().enumerate() {
            process.heap.platform().pass_ms(600);
            process.publish();
            process.heap.reclaim().note_pressure(Level::Some, Cause::Limit);
            lacks = is_short(process, CAPACITY);
            *(if number % 10 == 0 { &mut dear } else { &mut cheap }) += balances(process, &mut Turn::default());
            process.heap.reclaim().read_room(Room::shared(CAPACITY as u64, 0));
        }
        assert!(dear == 0 && cheap >= lacks, "{dear} {cheap} of {lacks}");
    }
    end(all);
}

#[test]
fn just_after_a_severe_event_who_is_quick_gives() {
    let all = below_one_limit([1, 2]);
    all[1].heap.reclaim().note_pressure(Level::Severe, Cause::Limit);
    let lacks = is_short(&all[1], CAPACITY);
    assert!(balances(&all[1], &mut Turn::default()) >= lacks);
    end(all);
}

#[test]
fn with_plenty_a_sign_of_pressure_takes_what_is_idle_alone() {
    let process = Process::new(1);
    let reclaim = process.heap.reclaim();
    assert!(!reclaim.has_plenty(), "nothing is known");
    let room = |used: usize| Room::shared(CAPACITY as u64, used as u64);
    reclaim.read_room(room(CAPACITY - CAPACITY / 8));
    assert!(!reclaim.has_plenty());
    reclaim.read_room(room(CAPACITY / 2));
    assert!(reclaim.has_plenty());
    let block = process.heap.alloc(MIB);
    // SAFETY: allocated just now.
    unsafe { process.heap.free(block) };
    assert!(reclaim.balance_stall(Cause::Pressure) >= MIB);
    let mut turn = Turn::default();
    assert_eq!((balances(&process, &mut turn), process.bytes.load(SeqCst)), (0, BYTES));
    assert_eq!(process.heap.platform().stats().pressure_level.load(Relaxed), 0);
    process.cache.unregister(process.heap);
}

#[test]
fn of_one_price_each_gives_a_half() {
    let all = below_one_limit([1, 1]);
    let lacks = is_short(&all[0], CAPACITY);
    for process in &all {
        let given = balances(process, &mut Turn::default());
        assert!((lacks / 2..=lacks / 2 + MIB).contains(&given), "{given} of {lacks}");
    }
    end(all);
}

/// More than one look goes to: each is shown some, and told about how many more there are.
#[test]
fn of_very_many_all_together_give_what_is_missing() {
    const ALL: usize = 600;
    const SHOWN: usize = 100;
    let all: Vec<Process> = (0..ALL).map(|_| Process::new(1)).collect();
    let row = ZoneRow { capacity: CAPACITY as u64, ..ZoneRow::default() };
    for (own, process) in all.iter().enumerate() {
        let platform = process.heap.platform();
        platform.stats().zones.write(|add| add(row));
        let shown = (1..=SHOWN).map(|i| all[(own + i) % ALL].heap.platform().stats());
        *platform.neighbours.lock().unwrap() = shown.collect();
        platform.more_neighbours.store(ALL - 1 - SHOWN, SeqCst);
    }
    let mut lacks = 0;
    let mut gives = |process: &Process| {
        lacks = is_short(process, CAPACITY);
        balances(process, &mut Turn::default())
    };
    let given: usize = all.iter().map(&mut gives).sum();
    assert!((lacks..lacks + lacks / 2).contains(&given), "{given} of {lacks}");
    end(all);
}

#[test]
fn a_limit_of_its_own_is_not_shared() {
    let all = processes([1, 2].into_iter());
    let mut turn = Turn::default();
    let lacks = is_short(&all[1], CAPACITY);
    assert!(balances(&all[1], &mut turn) >= lacks, "the other has not told of such a limit");
    end(all);
}

#[test]
fn a_limit_of_its_own_counts_where_it_is_the_one_that_is_short() {
    for is_own in [false, true] {
        let all = below_one_limit([1, 2]);
        // As high as the one that both share.
        all[1].heap.platform().tunables().limit.set(CAPACITY as u64);
        let lacks = is_short_of(&all[1], CAPACITY, if is_own { Room::own } else { Room::shared });
        let given = balances(&all[1], &mut Turn::default());
        assert!(if is_own { given >= lacks } else { given == 0 }, "{given} of {lacks}, where the other is cheaper");
        assert!(balances(&all[0], &mut Turn::default()) >= lacks);
        end(all);
    }
}

#[test]
fn at_the_severe_level_each_gives_something() {
    let all = processes([1, 2].into_iter());
    assert!(all[1].hears(Level::Some) == 0, "the other is cheaper, and has enough");
    let dear = all[1].hears(Level::Severe);
    assert!((ALONE..=ALONE + MIB).contains(&dear), "{dear}");
    let cheap = all[0].hears(Level::Severe);
    assert!((8 * ALONE..=8 * ALONE + MIB).contains(&cheap), "{cheap}");
    end(all);
}

#[test]
fn who_does_not_hear_of_the_pressure_is_not_waited_for() {
    let all = processes([1, 2, 3].into_iter());
    assert_eq!(all[1].hears(Level::Some) + all[2].hears(Level::Some), 0);
    all[1].heap.platform().pass_ms(600);
    // The cheapest has heard nothing by now. The third has, and is dearer.
    let given = all[1].hears(Level::Some);
    assert!((2 * ALONE..=2 * ALONE + MIB).contains(&given), "{given}");
    end(all);
}

/// A process that is stopped while pressure lasts tells of it for ever, as it never hears of relief.
#[test]
fn who_heard_of_pressure_long_ago_is_not_waited_for() {
    let all = processes([1, 2].into_iter());
    let alone = ALONE..=ALONE + MIB;
    assert!(all[0].hears(Level::Some) > 0);
    let platform = all[1].heap.platform();
    for _ in 0..2 {
        platform.pass_ms(3_000);
        all[1].heap.reclaim().relieve_if_due();
        assert_eq!(all[1].hears(Level::Some), 0, "it may be about to hear");
        platform.pass_ms(600);
        let given = all[1].hears(Level::Some);
        assert!(alone.contains(&given), "{given}");
        all[1].publish();
    }
    // The pressure goes on, and the other is back.
    all[0].heap.platform().pass_ms(7_200);
    all[0].hears(Level::Some);
    assert_eq!(all[1].hears(Level::Some), 0);
    end(all);
}

#[test]
fn a_process_that_knows_no_prices_gives_as_one_that_is_alone() {
    let all = processes([1, 2].into_iter());
    let alone = ALONE..=ALONE + MIB;
    // The curve was written when the cache had little in it.
    all[1].heap.figures().publish_costs(&Usage::default(), |_| true);
    let given = all[1].hears(Level::Some);
    assert!(alone.contains(&given), "{given}");
    // Nothing is known of the other, so there is none to compare with.
    all[0].publish();
    assert!(alone.contains(&all[0].hears(Level::Some)));
    end(all);
}

/// Work of the balancer's as its thread does it, which reads before each step; bytes that the cache gave.
fn balances_by_readings(process: &Process, turn: &mut Turn, read: impl Fn()) -> usize {
    let before = process.bytes.load(SeqCst);
    loop {
        read();
        if process.heap.reclaim().balance_zones(turn) != Next::Again {
            return before - process.bytes.load(SeqCst);
        }
    }
}

#[test]
fn for_a_limit_of_its_own_a_process_gives_what_is_missing_and_no_more_however_severe() {
    // All but the cache; a target is missed by one MiB, which is less than lies between the marks.
    let rest = 960 * MIB;
    for levels in [[Level::Some, Level::Severe], [Level::Severe, Level::Severe]] {
        let process = Process::new(1);
        let reclaim = process.heap.reclaim();
        let target = rest + BYTES - MIB;
        let capacity = Marks::managed_for(Pages::in_bytes(target), 250).bytes().0 as u64;
        let read = || {
            reclaim.read_room(Room::own(capacity, (rest + process.bytes.load(SeqCst)) as u64));
        };
        let mut turn = Turn::default();
        assert_eq!(balances_by_readings(&process, &mut turn, read), 0, "a reading alone wakes below low");
        for level in levels {
            reclaim.note_pressure(level, Cause::Limit);
            reclaim.balance_pressure(level, Cause::Limit);
            balances_by_readings(&process, &mut turn, read);
            let resident = rest + process.bytes.load(SeqCst);
            assert!(resident <= target && target - resident <= PAGEBLOCK / 4, "{level:?}: {resident} of {target}");
            process.heap.platform().pass_ms(250);
        }
        // A `limit` with more to spare than the marks ask for: the event alone says that it is near.
        process.heap.platform().tunables().limit.set(2 * capacity);
        reclaim.read_room(Room::own(2 * capacity, capacity));
        reclaim.balance_pressure(Level::Some, Cause::Limit);
        let spacious = || {
            reclaim.read_room(Room::own(2 * capacity, capacity));
        };
        assert!(balances_by_readings(&process, &mut turn, spacious) > 0);
        process.cache.unregister(process.heap);
    }
}
