//! Numbers that look random, from a seed: the same in every run, and made without an allocation.

/// A xorshift* generator.
pub struct Random(u64);

impl Random {
    /// The generator of one thread of a run.
    pub fn new(seed: u64, thread: usize) -> Random {
        let mut random = Random((seed ^ (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
        random.next();
        random
    }

    /// Any number.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`, which is at most 2^32.
    #[inline]
    pub fn below(&mut self, limit: usize) -> usize {
        (((self.next() >> 32) * limit as u64) >> 32) as usize
    }

    /// A number from `low` to `high`.
    #[inline]
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// From 2^low to 2^high: each doubling is as likely as every other, and so is each number in it.
    #[inline]
    pub fn doublings(&mut self, low: u32, high: u32) -> usize {
        let base = 1usize << (low + self.below((high - low) as usize) as u32);
        base + self.below(base)
    }

    /// From 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Ranks by Zipf's law: the sums of the weights up to each rank.
pub struct Zipf(Vec<f64>);

impl Zipf {
    /// The law of so many ranks.
    pub fn new(skew: f64, ranks: usize) -> Zipf {
        let mut sum = 0.0;
        let mut add = |rank: usize| {
            sum += (rank as f64).powf(-skew);
            sum
        };
        Zipf((1..=ranks).map(&mut add).collect())
    }

    /// A rank, from 0.
    pub fn rank(&self, random: &mut Random) -> u64 {
        let at = random.unit() * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|&sum| sum < at).min(self.0.len() - 1) as u64
    }

    /// The share of all draws that this rank has.
    pub fn share(&self, rank: usize) -> f64 {
        let sum = |ranks: usize| ranks.checked_sub(1).map_or(0.0, |last| self.0[last]);
        (sum(rank + 1) - sum(rank)) / self.0.last().copied().unwrap_or(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_gives_the_first_rank_its_share() {
        let (zipf, mut random) = (Zipf::new(1.0, 1000), Random::new(3, 0));
        let first = (0..100_000).filter(|_| zipf.rank(&mut random) == 0).count();
        assert!((12_900..13_900).contains(&first), "{first}"); // 1 / H(1000) = 13.36 %
    }
}
