//! Numbers that look random, from a seed: the same in every run.

/// Numbers from a seed (xorshift64*; Vigna, 2016).
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One below `bound`.
    pub fn below(&mut self, bound: usize) -> u64 {
        ((u128::from(self.next()) * bound as u128) >> 64) as u64
    }

    /// One from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
