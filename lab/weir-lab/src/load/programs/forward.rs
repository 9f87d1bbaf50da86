//! E4's program: a packet forwarder. One thread on the first CPU takes a buffer for each packet and fills in its head.
//! Another on the second CPU reads the head and gives the buffer back.
//!
//! `forward from=cache|limited|malloc|none ms=N`; prints packets, the time of allocations and frees, stalls, and the cache's
//! figures. A burst counts as a stall only if the thread kept its CPU meanwhile, as far as the kernel knows.

use crate::base::clock;
use crate::base::counted::stay_on;
use crate::base::prelude::*;
use crate::base::weir_h::{LIMITED, Source};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

const BUFFER: usize = 2048;
const BURST: usize = 32;
/// Bursts between the two threads.
const RING: usize = 64;
const WARM_UP: Duration = Duration::from_millis(200);
const STALL: Duration = Duration::from_millis(1);
/// Bursts after which a thread looks how often it lost its CPU.
const SWITCH_LOOK: u64 = 64;

type Burst = [Block; BURST];

pub fn main(words: &Words) -> Result<()> {
    let ms = Duration::from_millis(words.number("ms")?);
    let source = match words.text("from")? {
        "cache" => Source::cache("packets", BUFFER, 0)?,
        "limited" => Source::cache("packets", BUFFER, LIMITED)?,
        "malloc" => Source::Malloc(BUFFER),
        "none" => Source::fixed(BUFFER, 2 * RING * BURST),
        other => bail!("'{other}' is neither cache, limited, malloc nor none"),
    };
    let tick = clock::ns_a_tick();
    let stall = (STALL.as_nanos() as f64 / tick) as u64;
    let (over, counting) = (AtomicBool::new(false), AtomicBool::new(false));
    let (to, from) = sync_channel::<Burst>(RING);
    let (sides, seconds) = std::thread::scope(|scope| {
        let (source, over, counting) = (&source, &over, &counting);
        let receiver = scope.spawn(move || side(0, counting, stall, |timer| receive(source, to, timer, over)));
        let sender = scope.spawn(move || side(1, counting, stall, |timer| send(source, &from, timer)));
        std::thread::sleep(WARM_UP);
        counting.store(true, Release);
        let start = Instant::now();
        std::thread::sleep(ms);
        let seconds = start.elapsed().as_secs_f64();
        counting.store(false, Release);
        over.store(true, Release);
        ([receiver.join(), sender.join()], seconds)
    });
    let [receiver, sender] = sides.map(|side| side.map_err(|_| anyhow!("a thread panicked")).flatten());
    let (receiver, sender) = (receiver?, sender?);
    let overhead = clock::overhead() as f64;
    let ns = |side: &Timer| {
        let bursts = side.bursts.len().max(1) as f64;
        (side.ticks as f64 / bursts - overhead).max(0.0) * tick / BURST as f64
    };
    let us = |of: fn(&Timer) -> u64| of(&receiver).max(of(&sender)) as f64 * tick / 1e3;
    let stats = source.stats().unwrap_or_default();
    println!(
        "{{\"packets\":{},\"seconds\":{seconds},\"alloc_ns\":{},\"free_ns\":{},\"rare_us\":{},\"stall_us\":{},\
         \"stalls\":{},\"bucket\":{},\"held\":{},\"drains\":{},\"trims\":{}}}",
        sender.bursts.len() * BURST as u64,
        ns(&receiver),
        ns(&sender),
        us(|side| side.bursts.value_at_quantile(0.9999)),
        us(|side| side.longest),
        (receiver.stalls + sender.stalls) as f64 / seconds,
        stats.bucket,
        stats.free_cpu + stats.free_depot + stats.free_slab,
        stats.drains,
        stats.trims,
    );
    Ok(())
}

/// Times that one thread's bursts of calls took.
struct Timer<'a> {
    counting: &'a AtomicBool,
    stall: u64,
    bursts: Histogram<u64>,
    ticks: u64,
    longest: u64,
    stalls: u64,
    seen: u64,
    switches: i64,
}

impl Timer<'_> {
    fn burst(&mut self, work: impl FnOnce()) {
        let start = clock::now();
        work();
        let ticks = clock::now() - start;
        self.seen += 1;
        if !self.counting.load(Relaxed) {
            return;
        }
        self.ticks += ticks;
        self.bursts.saturating_record(ticks);
        let is_long = ticks > self.longest.min(self.stall);
        if is_long || self.seen.is_multiple_of(SWITCH_LOOK) {
            let switches = involuntary_switches();
            if is_long && switches == self.switches {
                self.longest = self.longest.max(ticks);
                self.stalls += u64::from(ticks > self.stall);
            }
            self.switches = switches;
        }
    }
}

fn involuntary_switches() -> i64 {
    // SAFETY: the kernel fills the usage.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        usage.ru_nivcsw
    }
}

fn side<'a>(cpu: usize, counting: &'a AtomicBool, stall: u64, work: impl FnOnce(&mut Timer)) -> Result<Timer<'a>> {
    stay_on(cpu % std::thread::available_parallelism()?.get());
    let (bursts, switches) = (Histogram::new_with_bounds(1, 1 << 36, 2)?, involuntary_switches());
    let mut timer = Timer { counting, stall, bursts, ticks: 0, longest: 0, stalls: 0, seen: 0, switches };
    work(&mut timer);
    Ok(timer)
}

fn receive(source: &Source, to: SyncSender<Burst>, timer: &mut Timer, over: &AtomicBool) {
    let mut number = 0;
    while !over.load(Relaxed) {
        let mut burst = [Block::NONE; BURST];
        timer.burst(|| burst.iter_mut().for_each(|packet| *packet = source.take()));
        for packet in burst {
            (0..8).for_each(|word| packet.set_word(word, number + word as u64));
            number += 1;
        }
        while let Err(TrySendError::Full(_)) = to.try_send(burst) {
            std::thread::yield_now();
        }
    }
}

fn send(source: &Source, from: &Receiver<Burst>, timer: &mut Timer) {
    let mut sum = 0u64;
    loop {
        match from.try_recv() {
            Ok(burst) => {
                for packet in burst {
                    sum = sum.wrapping_add((0..8).map(|word| packet.word(word)).sum::<u64>());
                }
                timer.burst(|| burst.iter().for_each(|packet| source.give(*packet)));
            }
            Err(TryRecvError::Empty) => std::thread::yield_now(),
            Err(TryRecvError::Disconnected) => break,
        }
    }
    std::hint::black_box(sum);
}
