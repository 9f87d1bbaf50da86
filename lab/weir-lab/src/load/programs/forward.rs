//! E4's program: a packet forwarder. One thread on the first CPU takes a buffer for each packet and fills in its head;
//! another on the second CPU reads the head and gives the buffer back.
//!
//! `forward from=cache|limited|malloc|none ms=N`; prints packets, the time of allocations and frees, stalls, and the cache's
//! figures over time.

use crate::base::clock;
use crate::base::mem::Block;
use crate::base::weir_caches::{LIMITED, Source, Stats};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A buffer: a packet of 1,500 bytes and its bookkeeping.
const BUFFER: usize = 2048;
/// Packets that the receiver takes at a time, as a network card hands them over.
const BURST: usize = 32;
/// Bursts on their way between the two threads.
const RING: usize = 64;
const WARM_UP: Duration = Duration::from_millis(200);
/// A burst that takes longer is counted as a stall.
const STALL: Duration = Duration::from_millis(1);
/// Between two looks at the cache.
const LOOK: Duration = Duration::from_millis(50);

/// Runs it.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut from, mut ms) = (String::from("malloc"), 1000u64);
    for word in args {
        match word.split_once('=') {
            Some(("from", value)) => from = value.into(),
            Some(("ms", value)) => ms = value.parse().map_err(|_| format!("'{value}' is not a whole number"))?,
            _ => return Err(format!("'{word}' is no setting: from=cache|limited|malloc|none, ms")),
        }
    }
    let source = match from.as_str() {
        "cache" => Source::cache("packets", BUFFER, 0)?,
        "limited" => Source::cache("packets", BUFFER, LIMITED)?,
        "malloc" => Source::Malloc(BUFFER),
        "none" => Source::fixed(BUFFER, 2 * RING * BURST),
        _ => return Err(format!("'{from}' is neither cache, limited, malloc nor none")),
    };
    let ring = Ring::default();
    let stall = (STALL.as_nanos() as f64 / clock::ns_a_tick()) as u64;
    let (over, counting) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut looks = Vec::new();
    let (receiver, sender, seconds) = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| side(0, &counting, stall, |timer| receive(&source, &ring, timer, &over)));
        let sender = scope.spawn(|| side(1, &counting, stall, |timer| send(&source, &ring, timer)));
        std::thread::sleep(WARM_UP);
        counting.store(true, Ordering::Release);
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(ms) {
            std::thread::sleep(LOOK.min(Duration::from_millis(ms)));
            looks.extend(source.stats());
        }
        let seconds = start.elapsed().as_secs_f64();
        counting.store(false, Ordering::Release);
        over.store(true, Ordering::Release);
        (receiver.join(), sender.join(), seconds)
    });
    let (receiver, sender) = (receiver.map_err(|_| "the receiver failed")?, sender.map_err(|_| "the sender failed")?);
    print(&receiver, &sender, seconds, &looks);
    Ok(())
}

/// Bursts by their ticks: eight steps a doubling.
struct Histogram([u64; 8 * 64]);

impl Histogram {
    fn note(&mut self, ticks: u64) {
        let doubling = ticks.max(8).ilog2() as usize;
        self.0[doubling * 8 + (ticks >> (doubling - 3)) as usize % 8] += 1;
    }

    /// The ticks that all but one of `share` bursts did not take longer than.
    fn all_but_one_of(&self, share: u64) -> u64 {
        let mut above = self.0.iter().sum::<u64>() / share;
        for (step, count) in self.0.iter().enumerate().rev() {
            if *count > above {
                return (8 + step as u64 % 8 + 1) << (step / 8 - 3);
            }
            above -= count;
        }
        0
    }
}

/// What one side counted.
struct SideCounts {
    packets: u64,
    ticks: u64,
    bursts: Histogram,
    /// The longest burst during which the thread kept its CPU, ticks.
    longest: u64,
    /// Bursts longer than [`STALL`], of those.
    stalls: u64,
}

/// Times bursts.
struct Timer<'a> {
    counting: &'a AtomicBool,
    /// Ticks of [`STALL`].
    stall: u64,
    side: SideCounts,
    switches: i64,
    bursts: u64,
}

/// Bursts between two looks at whether this thread lost its CPU.
const SWITCH_LOOK: u64 = 64;

impl Timer<'_> {
    fn burst(&mut self, work: impl FnOnce()) {
        let start = clock::now();
        work();
        let ticks = clock::now() - start;
        self.bursts += 1;
        if !self.counting.load(Ordering::Relaxed) {
            return;
        }
        self.side.packets += BURST as u64;
        self.side.ticks += ticks;
        self.side.bursts.note(ticks);
        if ticks > self.side.longest.min(self.stall) {
            // Only what the allocator made it wait for: a thread that lost its CPU was not stalled by a drain.
            let switches = involuntary_switches();
            if switches == self.switches {
                self.side.longest = self.side.longest.max(ticks);
                self.side.stalls += u64::from(ticks > self.stall);
            }
            self.switches = switches;
        } else if self.bursts.is_multiple_of(SWITCH_LOOK) {
            self.switches = involuntary_switches();
        }
    }
}

fn involuntary_switches() -> i64 {
    // SAFETY: plain data, filled by the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nivcsw
    }
}

fn side(cpu: usize, counting: &AtomicBool, stall: u64, work: impl FnOnce(&mut Timer)) -> SideCounts {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // SAFETY: a CPU set is plain data; binds this thread to one that exists.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu % cpus, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
    let side = SideCounts { packets: 0, ticks: 0, bursts: Histogram([0; 512]), longest: 0, stalls: 0 };
    let mut timer = Timer { counting, stall, side, switches: involuntary_switches(), bursts: 0 };
    work(&mut timer);
    timer.side
}

fn receive(source: &Source, ring: &Ring, timer: &mut Timer, over: &AtomicBool) {
    let mut number = 0;
    while !over.load(Ordering::Relaxed) {
        let Some(slot) = ring.free_slot() else {
            std::thread::yield_now();
            continue;
        };
        timer.burst(|| slot.iter().for_each(|place| place.store(source.take().address() as usize, Ordering::Relaxed)));
        for place in slot {
            let packet = Block::from_address(place.load(Ordering::Relaxed) as *mut u8);
            // The head: where it came from, where it goes.
            (0..8).for_each(|word| packet.set_word(word, number + word as u64));
            number += 1;
        }
        ring.pass_on();
    }
    ring.end.store(true, Ordering::Release);
}

fn send(source: &Source, ring: &Ring, timer: &mut Timer) {
    let mut sum = 0u64;
    loop {
        let Some(slot) = ring.full_slot() else {
            if ring.end.load(Ordering::Acquire) && ring.full_slot().is_none() {
                break;
            }
            std::thread::yield_now();
            continue;
        };
        let packets: [Block; BURST] =
            std::array::from_fn(|place| Block::from_address(slot[place].load(Ordering::Relaxed) as *mut u8));
        for packet in packets {
            sum = sum.wrapping_add((0..8).map(|word| packet.word(word)).sum::<u64>());
        }
        timer.burst(|| packets.iter().for_each(|packet| source.give(*packet)));
        ring.release();
    }
    std::hint::black_box(sum);
}

/// Bursts in order from one thread to the other.
struct Ring {
    slots: [[AtomicUsize; BURST]; RING],
    head: AtomicU64,
    tail: AtomicU64,
    end: AtomicBool,
}

impl Default for Ring {
    fn default() -> Self {
        let slots = std::array::from_fn(|_| std::array::from_fn(|_| AtomicUsize::new(0)));
        Ring { slots, head: AtomicU64::new(0), tail: AtomicU64::new(0), end: AtomicBool::new(false) }
    }
}

impl Ring {
    fn free_slot(&self) -> Option<&[AtomicUsize; BURST]> {
        let head = self.head.load(Ordering::Relaxed);
        let full = head - self.tail.load(Ordering::Acquire) == RING as u64;
        (!full).then(|| &self.slots[head as usize % RING])
    }

    fn pass_on(&self) {
        self.head.fetch_add(1, Ordering::Release);
    }

    fn full_slot(&self) -> Option<&[AtomicUsize; BURST]> {
        let tail = self.tail.load(Ordering::Relaxed);
        let empty = self.head.load(Ordering::Acquire) == tail;
        (!empty).then(|| &self.slots[tail as usize % RING])
    }

    fn release(&self) {
        self.tail.fetch_add(1, Ordering::Release);
    }
}

fn print(receiver: &SideCounts, sender: &SideCounts, seconds: f64, looks: &[Stats]) {
    let tick = clock::ns_a_tick();
    // Readings of the clock are a burst's, not a packet's.
    let overhead = clock::overhead() as f64;
    let ns = |side: &SideCounts| {
        let bursts = side.packets as f64 / BURST as f64;
        (side.ticks as f64 - bursts * overhead).max(0.0) * tick / side.packets.max(1) as f64
    };
    let us = |ticks: u64| ticks as f64 * tick / 1e3;
    let rare = us(receiver.bursts.all_but_one_of(10_000).max(sender.bursts.all_but_one_of(10_000)));
    let longest = us(receiver.longest.max(sender.longest));
    let stalls = (receiver.stalls + sender.stalls) as f64 / seconds;
    let list = |part: fn(&Stats) -> usize| {
        let mut text = String::new();
        for (place, look) in looks.iter().enumerate() {
            let _ = write!(text, "{}{}", if place == 0 { "" } else { "," }, part(look));
        }
        text
    };
    let last = looks.last().copied().unwrap_or_default();
    println!(
        "{{\"packets\":{},\"seconds\":{seconds},\"alloc_ns\":{},\"free_ns\":{},\"rare_us\":{rare},\"stall_us\":{longest},\"stalls\":{stalls},\
         \"bucket\":[{}],\"held\":[{}],\"drains\":{},\"trims\":{}}}",
        sender.packets,
        ns(receiver),
        ns(sender),
        list(|look| look.bucket),
        list(|look| look.free_cpu + look.free_depot + look.free_slab),
        last.drains,
        last.trims,
    );
}
