//! Random numbers from a seed, and keys by Zipf's law.

/// xorshift64* (Vigna, 2016).
pub struct Random(u64);

impl Random {
    /// Begins with a seed.
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Keys below a number, key k as often as 1/(k+1)^skew.
pub struct Zipf(Vec<f64>);

impl Zipf {
    /// Of so many keys.
    pub fn new(keys: u64, skew: f64) -> Zipf {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += 1.0 / (rank as f64).powf(skew);
            sum
        });
        Zipf(sums.collect())
    }

    /// The next key.
    pub fn key(&self, random: &mut Random) -> u64 {
        let all = self.0.last().copied().unwrap_or(0.0);
        let at = (random.next() >> 11) as f64 / (1u64 << 53) as f64 * all;
        self.0.partition_point(|&sum| sum <= at) as u64
    }
}
