//! How far samples are apart: as far as the setting says, or farther where they would take too much of the process's time.
//!
//! A thread that allocates gigabytes a second takes a sample of each 512 KiB every few microseconds, as long as a sample takes.
//! So a process has a *credit* of processor time for samples. It grows by the part that the setting `profile_percent` allows of a
//! thread's time between two samples, up to [`BURST`]. Each sample takes off what it took. While at least half of it is left
//! samples are as close as the setting says; below that their mean is doubled, step by step. So bursts are sampled in full.
//!
//! The mean is never more than a sixteenth of the bytes that all samples before stand for. Otherwise one sample of a short program
//! could stand for more than all that was allocated, or none be taken at all: unbiased, and of no use.
//!
//! The mean that a sample was drawn with gives its weight ([`super::interval::Weight`]), and follows from what came before: the
//! estimates stay unbiased. The busiest process still takes thousands of samples a second.

/// The most credit of a process, and what it begins with: 1 ms, some 500 samples of 2 us.
pub const BURST: u64 = 1_000_000;
/// The mean is at most the setting times two to this power: 128 MiB where the setting is 512 KiB.
const MOST_DOUBLINGS: u64 = 8;
/// A sample stands for so great a part of the bytes before it at most. Until the mean may be 256 times the setting, that takes
/// some 16 samples for each doubling: 130 more in a process's life.
const MOST_PART: u64 = 16;

/// The credit after a sample that `took` so long and came so long after the thread's one before (`since`), ns of the thread's
/// processor time; `percent` of that may go to samples, 0: any.
pub fn credit_after(credit: u64, percent: u64, took: u64, since: u64) -> u64 {
    if percent == 0 {
        return BURST;
    }
    let more = since.min(100 * BURST) * percent / 100;
    credit.saturating_add(more).saturating_sub(took).min(BURST)
}

/// The mean of the bytes to the next sample, where those before stand for `before` bytes; `setting` is the least.
pub fn mean(setting: u64, credit: u64, before: u64) -> u64 {
    let lacking = (BURST / 2).saturating_sub(credit);
    let mean = setting.saturating_mul(1 << (lacking * MOST_DOUBLINGS).div_ceil(BURST / 2));
    mean.min((before / MOST_PART).max(setting))
}

#[cfg(test)]
mod tests {
    use super::super::interval::{draw, next_random};
    use super::*;

    const SETTING: u64 = 512 << 10;

    #[test]
    fn half_of_the_credit_is_spent_before_samples_are_farther_apart() {
        assert_eq!([BURST, BURST / 2].map(|credit| mean(SETTING, credit, u64::MAX)), [SETTING; 2]);
        assert_eq!(mean(SETTING, BURST / 2 - 1, u64::MAX), 2 * SETTING);
        assert_eq!(mean(SETTING, BURST / 4, u64::MAX), SETTING << 4);
        assert_eq!(mean(SETTING, 0, u64::MAX), SETTING << 8);
        assert_eq!((mean(1, 0, u64::MAX), mean(1 << 63, 0, u64::MAX)), (256, 1 << 63));
    }

    #[test]
    fn no_sample_stands_for_more_than_a_part_of_what_came_before() {
        assert_eq!(
            [0, 16 * SETTING, 64 * SETTING].map(|before| mean(SETTING, 0, before)),
            [SETTING, SETTING, 4 * SETTING]
        );
        // Programs that allocate 48 MiB, and samples so slow that all of the credit is gone after a few.
        let (allocated, mut state) = (48u64 << 20, 11);
        let estimates = (0..10_000).map(|_| {
            let (mut at, mut before, mut credit) = (0, 0, BURST);
            let mut next = SETTING;
            loop {
                at += draw(next_random(&mut state), next) as u64;
                if at > allocated {
                    return before as f64 / allocated as f64;
                }
                before += next;
                credit = credit_after(credit, 1, 100_000, 0);
                next = mean(SETTING, credit, before);
            }
        });
        let estimates: Vec<f64> = estimates.collect();
        let average = estimates.iter().sum::<f64>() / estimates.len() as f64;
        let spread = (estimates.iter().map(|x| (x - 1.0) * (x - 1.0)).sum::<f64>() / estimates.len() as f64).sqrt();
        assert!((average - 1.0).abs() < 0.02, "{average}");
        assert!(spread < 0.3, "{spread}");
    }

    #[test]
    fn credit_grows_with_time_and_each_sample_takes_its_own_off() {
        assert_eq!(credit_after(1000, 1, 300, 10_000), 800);
        assert_eq!(credit_after(1000, 2, 1300, 10_000), 0);
        assert_eq!(credit_after(BURST, 100, 0, u64::MAX), BURST);
        assert_eq!(credit_after(0, 1, u64::MAX, 0), 0);
        // No bound, however slow a sample is.
        assert_eq!([700, 100 * BURST].map(|took| credit_after(0, 0, took, 0)), [BURST; 2]);
    }

    #[test]
    fn samples_take_the_part_that_is_allowed() {
        // A thread that allocates 8 GiB a second, and samples that take 2 us.
        let (took, mut credit, mut state) = (2_000, BURST, 5);
        let (mut sampling, mut all, mut before) = (0, 0, 0);
        for _ in 0..100_000 {
            let next = mean(SETTING, credit, before);
            before += next;
            let since = draw(next_random(&mut state), next) as u64 / 8;
            credit = credit_after(credit, 1, took, since);
            sampling += took;
            all += took + since;
        }
        assert!(sampling * 99 < all, "{sampling} of {all}");
        assert!(sampling * 110 > all, "{sampling} of {all}");
    }
}
