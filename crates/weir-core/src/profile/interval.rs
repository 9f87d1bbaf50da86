//! How many bytes it is to the next sample, and what a sample stands for.
//!
//! A thread draws the bytes to its next sample from the exponential distribution and counts its allocations off. The allocation
//! at which the count falls below 0 is sampled. That distribution has no memory, so an allocation's chance to be sampled is
//! `1 - exp(-c / mean)` whatever came before it, where `c` is its [`charge`]. A sample that counts for the reciprocal of that
//! chance makes the sums unbiased.

/// Bytes that an allocation of `size` bytes takes off a countdown. That is a byte more than its size, so that blocks of no bytes
/// are sampled too.
pub fn charge(size: usize) -> i64 {
    i64::try_from(size).map_or(i64::MAX, |size| size.saturating_add(1))
}

/// The next number of a stream, whose state is any number but 0 (xorshift64*: Marsaglia 2003, Vigna 2016).
pub fn next_random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// A number in (0, 1] of a random one.
fn unit(random: u64) -> f64 {
    ((random >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Bytes to the next sample: a whole number of the exponential distribution with this mean, at most 37 means.
pub fn draw(random: u64, mean: u64) -> i64 {
    (-libm::log(unit(random)) * mean as f64) as i64
}

/// Weight of a sample: the objects and bytes that it stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Allocations of its size.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Weight {
    /// The weight of a sample of `size` bytes that was taken with this mean. Counts are whole, and rounded up with a chance
    /// of what is cut off otherwise, so that they stay unbiased.
    pub(crate) fn of(size: usize, mean: u64, random: u64) -> Self {
        let chance = -libm::expm1(-(charge(size) as f64) / mean as f64);
        if chance == 1.0 {
            return Self { objects: 1, bytes: size as u64 };
        }
        let objects = 1.0 / chance;
        let whole = objects as u64;
        let is_up = unit(random) <= objects - whole as f64;
        Self { objects: whole + u64::from(is_up), bytes: libm::round(objects * size as f64) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_and_the_shape_of_the_distribution() {
        const DRAWS: u64 = 100_000;
        let (mut state, mean) = (1, 4096);
        let (mut sum, mut beyond) = (0, 0);
        for _ in 0..DRAWS {
            let drawn = draw(next_random(&mut state), mean);
            assert!(drawn >= 0 && drawn <= 37 * mean as i64);
            sum += drawn as u64;
            beyond += u64::from(drawn >= mean as i64);
        }
        // Six standard deviations, which are 1 / sqrt(DRAWS) of the mean.
        assert!((sum / DRAWS).abs_diff(mean) < mean * 6 / 316, "{}", sum / DRAWS);
        // 1/e of them, 36788, with a deviation of 153.
        assert!(beyond.abs_diff(36_788) < 920, "{beyond}");
    }

    #[test]
    fn sums_of_weights_are_those_of_all_allocations() {
        for (size, mean) in [(0, 64), (16, 64), (64, 64), (100, 4096), (5000, 4096)] {
            const ALLOCATIONS: u64 = 400_000;
            let mut state = 7;
            let mut left = draw(next_random(&mut state), mean);
            let (mut sum, mut samples) = (Weight::default(), 0u64);
            for _ in 0..ALLOCATIONS {
                left -= charge(size);
                if left < 0 {
                    left = draw(next_random(&mut state), mean);
                    let weight = Weight::of(size, mean, next_random(&mut state));
                    sum.objects += weight.objects;
                    sum.bytes += weight.bytes;
                    samples += 1;
                }
            }
            // The deviation of the count of samples is below its root; six of them, as a part of the whole.
            let bound = |of: u64| of / 1000 + of * 6 / (samples as f64).sqrt() as u64;
            assert!(sum.objects.abs_diff(ALLOCATIONS) < bound(ALLOCATIONS), "{size} {mean} {sum:?}");
            let bytes = ALLOCATIONS * size as u64;
            assert!(sum.bytes.abs_diff(bytes) <= bound(bytes), "{size} {mean} {sum:?}");
        }
    }

    #[test]
    fn large_allocations_count_exactly_and_none_overflows() {
        assert_eq!(Weight::of(1 << 30, 4096, 3), Weight { objects: 1, bytes: 1 << 30 });
        assert_eq!(charge(usize::MAX), i64::MAX);
        assert_eq!(draw(u64::MAX, 1 << 40), 0);
        assert!(draw(0, 1 << 40) < 37 << 40);
        assert_eq!(Weight::of(0, 1 << 40, 0).bytes, 0);
    }
}
