//! The clock: the CPU's time-stamp counter, measured once against the PC's timer.

use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::ports::{read8, write8};

/// Ticks of the timer in a second.
const TIMER_HZ: u64 = 1_193_182;
/// Ticks of one measurement, 10 ms, and how many are made. Whatever a busy host does to us makes one longer, never
/// shorter, so the shortest counts.
const TICKS: u64 = TIMER_HZ / 100;
const MEASUREMENTS: usize = 8;

const TIMER_2: u16 = 0x42;
const TIMER_COMMAND: u16 = 0x43;
/// Gate (bit 0), speaker (bit 1) and output (bit 5) of the timer's channel 2.
const GATE: u16 = 0x61;

static START: AtomicU64 = AtomicU64::new(0);
/// Counts in a millisecond.
static KHZ: AtomicU64 = AtomicU64::new(1);

/// The time-stamp counter.
pub fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has it.
    unsafe { _rdtsc() }
}

/// Counts of [`counter`] in a millisecond.
pub fn khz() -> u64 {
    KHZ.load(Relaxed)
}

/// Measures the counter.
pub fn init() {
    let shortest = (0..MEASUREMENTS).map(|_| measure()).min().unwrap_or(1);
    KHZ.store((shortest * (TIMER_HZ / 1000) / TICKS).max(1), Relaxed);
    START.store(counter(), Relaxed);
}

/// Counts of the counter while the timer makes [`TICKS`].
fn measure() -> u64 {
    // SAFETY: the timer's own registers; nothing else uses channel 2.
    unsafe {
        let gate = read8(GATE) & !3;
        write8(GATE, gate);
        // Channel 2, both bytes, mode 0: the output rises when the count is over.
        write8(TIMER_COMMAND, 0b1011_0000);
        write8(TIMER_2, TICKS as u8);
        write8(TIMER_2, (TICKS >> 8) as u8);
        let begin = counter();
        write8(GATE, gate | 1);
        while read8(GATE) & 1 << 5 == 0 {
            core::hint::spin_loop();
        }
        counter() - begin
    }
}

/// Nanoseconds since [`init`].
pub fn now() -> u64 {
    let counts = counter().saturating_sub(START.load(Relaxed));
    (u128::from(counts) * 1_000_000 / u128::from(khz())) as u64
}
