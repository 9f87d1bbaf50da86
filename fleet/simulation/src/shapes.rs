//! What a heap holds of what was freed, as measured on real programs under glibc and under Weir.
//!
//! Nothing here is fitted: each figure is one of `docs/results` and `docs/FIGURES.md`, which name the command that measures it.

/// Bytes in a MiB.
pub const MIB: f64 = (1 << 20) as f64;

/// What a program of one kind leaves in memory of what it has freed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The measurement that it is taken from.
    pub name: &'static str,
    /// Part of what was freed that stays resident under glibc, for good.
    pub malloc_leaves: f64,
    /// Part of what was freed that stays resident under Weir, 10 s after it was freed.
    pub weir_leaves: f64,
}

/// All that were measured with both allocators. A pod has one of them, each with the same likelihood.
pub const SHAPES: [Shape; 3] = [
    // `run e8` (docs/results/neighbour.md): 1,062 MiB under Weir and 1,033 under glibc at the peak, 47 MiB alive afterwards.
    // After 10 s 65 MiB are resident under Weir, and 543 under glibc.
    Shape {
        name: "server whose threads free at random (E8)",
        malloc_leaves: (543.0 - 47.0) / (1033.0 - 47.0),
        weir_leaves: (65.0 - 47.0) / (1062.0 - 47.0),
    },
    // `run redis` (docs/FIGURES.md): 500 MB of values, then FLUSHALL. 512 MiB are resident under glibc: all of it. Under Weir 13
    // are, after 10 s.
    Shape { name: "redis after FLUSHALL", malloc_leaves: 1.0, weir_leaves: 13.0 / 512.0 },
    // `run e5` (docs/results/density.md): 4/5 of 512 MiB, all freed. An idle process holds 321 MiB under glibc, and 23 under Weir.
    Shape { name: "idle tenant (E5)", malloc_leaves: 321.0 / 409.6, weir_leaves: 23.0 / 409.6 },
];

/// Resident bytes, with `live` in use and `highest` the most that was ever in use at a time.
pub fn resident(live: f64, highest: f64, leaves: f64) -> f64 {
    live + leaves * (highest - live).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_heaps_come_out_as_measured() {
        let [server, redis, tenant] = SHAPES;
        assert_eq!(resident(47.0, 1033.0, server.malloc_leaves).round(), 543.0);
        assert_eq!(resident(47.0, 1062.0, server.weir_leaves).round(), 65.0);
        assert_eq!(resident(0.0, 512.0, redis.malloc_leaves).round(), 512.0);
        assert_eq!(resident(0.0, 512.0, redis.weir_leaves).round(), 13.0);
        assert_eq!(resident(0.0, 409.6, tenant.malloc_leaves).round(), 321.0);
        assert_eq!(resident(0.0, 409.6, tenant.weir_leaves).round(), 23.0);
    }

    #[test]
    fn at_the_peak_nothing_is_left_over() {
        for shape in SHAPES {
            assert_eq!(resident(100.0, 100.0, shape.malloc_leaves), 100.0);
            assert_eq!(resident(120.0, 100.0, shape.weir_leaves), 120.0);
        }
    }
}
