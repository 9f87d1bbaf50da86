//! What an entry weighs, in 30 bits: exact up to 32 MiB, and above that rounded down by less than one part in 16 million. So what
//! weighs as much as a cache may hold fits.
//!
//! It is a floating-point number of 25 bits and an exponent of 5. So a policy's slot has room for it and two bits more, and an
//! entry for its hash beside it. Weights above 2^54 bytes, which no memory has, count as that: the sum of a shadow's entries is no
//! number too large.

/// Bits of the number.
const NUMBER_BITS: u32 = 25;
const NUMBER: u32 = (1 << NUMBER_BITS) - 1;
/// The highest exponent.
const MOST_DOUBLED: u32 = 29;
/// Bits of a weight as it is stored.
pub const BITS: u32 = 30;

/// A weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight(u32);

impl Weight {
    /// So many bytes, or a little less.
    pub const fn of(bytes: usize) -> Self {
        let doubled = (usize::BITS - bytes.leading_zeros()).saturating_sub(NUMBER_BITS);
        if doubled > MOST_DOUBLED {
            return Self(MOST_DOUBLED << NUMBER_BITS | NUMBER);
        }
        Self(doubled << NUMBER_BITS | (bytes >> doubled) as u32)
    }

    /// The weight, bytes.
    pub const fn bytes(self) -> usize {
        ((self.0 & NUMBER) as usize) << (self.0 >> NUMBER_BITS)
    }

    /// The [`BITS`] of it.
    pub const fn to_bits(self) -> u32 {
        self.0
    }

    /// The weight of which these are the bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & ((1 << BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_exact_up_to_32_mib_and_little_less_above() {
        for bytes in [0, 1, 4096, (1 << 25) - 1, 1 << 25, 3 << 40, 1 << 53] {
            assert_eq!(Weight::of(bytes).bytes(), bytes);
        }
        let mut random = 1usize;
        for _ in 0..10_000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let bytes = random >> (10 + random % 50);
            let weight = Weight::of(bytes);
            let less = bytes - weight.bytes();
            assert!(less as u128 * (1 << 24) <= bytes as u128, "{bytes}: {less} less");
            assert_eq!(Weight::of(weight.bytes()), weight, "a weight is its own");
            assert_eq!(Weight::from_bits(weight.to_bits()), weight);
        }
    }

    #[test]
    fn what_no_memory_has_weighs_the_most() {
        let most = Weight::of(usize::MAX);
        assert_eq!(most, Weight::of(1 << 60));
        assert_eq!(most.bytes(), ((1 << 25) - 1) << 29);
        assert!(most.to_bits() < 1 << BITS);
        assert_eq!(Weight::of((1 << 26) - 1).bytes(), (1 << 26) - 2);
    }
}
