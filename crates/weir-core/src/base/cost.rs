//! What it costs to do without some memory.

/// Seconds for which memory that a process gave is taken to be lent, when what it costs once and what it costs each second are
/// added. It is the order of how long pressure lasts.
pub const LENT_S: u64 = 10;
/// Time to touch a MiB of released memory again, ns, as is usual on Linux in pages of 4 KiB: where it cannot be measured.
pub const USUAL_TOUCH_NS: u64 = 400_000;
/// Points of a cost curve at most.
pub const POINTS: usize = 16;

/// Some bytes, and what it costs a process to do without them. What is lost of hits is counted in the time that they cost too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// The bytes.
    pub bytes: u64,
    /// Time to get them back, once, ns.
    pub once_ns: u64,
    /// Time lost in each second without them, ns.
    pub second_ns: u64,
    /// Hits lost, in millionths of all hits of the process's evictable caches.
    pub lost_ppm: u64,
}

impl Cost {
    /// All that it costs to lend the bytes for [`LENT_S`] seconds, ns.
    pub const fn ns(&self) -> u64 {
        self.once_ns.saturating_add(self.second_ns.saturating_mul(LENT_S))
    }

    /// Whether a byte costs less than one of `other`. Nothing costs as much as what has no bytes.
    pub fn is_cheaper(&self, other: &Self) -> bool {
        let ns_of = |it: &Self, bytes: u64| u128::from(it.ns()) * u128::from(bytes);
        ns_of(self, other.bytes) < ns_of(other, self.bytes)
    }

    /// Both together.
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            once_ns: self.once_ns.saturating_add(other.once_ns),
            second_ns: self.second_ns.saturating_add(other.second_ns),
            lost_ppm: self.lost_ppm.saturating_add(other.lost_ppm),
        }
    }

    /// This without `other`, a part of it.
    pub const fn less(&self, other: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            once_ns: self.once_ns.saturating_sub(other.once_ns),
            second_ns: self.second_ns.saturating_sub(other.second_ns),
            lost_ppm: self.lost_ppm.saturating_sub(other.lost_ppm),
        }
    }

    /// `bytes` of them, at the same price.
    pub fn part(&self, bytes: u64) -> Self {
        let of = |whole: u64| {
            let part = u128::from(whole) * u128::from(bytes) / u128::from(self.bytes.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        Self { bytes, once_ns: of(self.once_ns), second_ns: of(self.second_ns), lost_ppm: of(self.lost_ppm) }
    }
}
