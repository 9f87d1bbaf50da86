//! The experiments: a file each, a folder where there is more to it. The head of the file says what is run and what is printed,
//! and is printed above the tables.

mod defrag;
mod demonstration;
mod e10_many_threads;
mod e12_live_shrink;
mod e13_two;
mod e14_sparse;
mod e1_page_pools;
mod e2_squeeze_cost;
mod e3_object_caches;
mod e4_forwarding;
mod e5_density;
mod e6_reporting_cost;
mod e7_balancing;
mod e8_neighbour;
pub mod e9_peers;
mod fio;
mod groups;
mod hitrate;
mod huge_pages;
mod latency;
mod picture;
mod power_cut;
mod redis;
mod scaling;
mod soak;
mod squeeze;
mod sweep;

use crate::harness::lab::Lab;
use anyhow::Result;

/// An experiment.
pub struct Experiment {
    pub name: &'static str,
    source: &'static str,
    /// Rounds of a full run and of a quick one.
    pub rounds: [u32; 2],
    pub run: fn(&mut Lab) -> Result<()>,
}

impl Experiment {
    /// The text at the head of its source.
    pub fn about(&self) -> String {
        let lines = self.source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
        lines.collect::<Vec<_>>().join("\n")
    }
}

macro_rules! experiments {
    ($($name:literal: $module:ident, $file:literal, $rounds:expr;)*) => {
        pub const EXPERIMENTS: &[Experiment] = &[
            $(Experiment { name: $name, source: include_str!($file), rounds: $rounds, run: $module::run }),*
        ];
    };
}

experiments! {
    "e1": e1_page_pools, "e1_page_pools.rs", [5, 1];
    "e2": e2_squeeze_cost, "e2_squeeze_cost.rs", [5, 1];
    "e3": e3_object_caches, "e3_object_caches.rs", [5, 1];
    "e4": e4_forwarding, "e4_forwarding.rs", [7, 1];
    "e5": e5_density, "e5_density.rs", [3, 1];
    "e6": e6_reporting_cost, "e6_reporting_cost.rs", [20, 2];
    "e7": e7_balancing, "e7_balancing.rs", [5, 1];
    "e8": e8_neighbour, "e8_neighbour.rs", [5, 1];
    "e9": e9_peers, "e9_peers/mod.rs", [5, 2];
    "e10": e10_many_threads, "e10_many_threads.rs", [5, 1];
    "e12": e12_live_shrink, "e12_live_shrink.rs", [50, 1];
    "e13": e13_two, "e13_two.rs", [1, 1];
    "sparse": e14_sparse, "e14_sparse.rs", [3, 1];
    "defrag": defrag, "defrag/mod.rs", [3, 1];
    "fio": fio, "fio.rs", [5, 1];
    "groups": groups, "groups.rs", [5, 1];
    "hitrate": hitrate, "hitrate/mod.rs", [5, 1];
    "huge-pages": huge_pages, "huge_pages.rs", [5, 1];
    "latency": latency, "latency.rs", [5, 1];
    "scaling": scaling, "scaling.rs", [5, 1];
    "sweep": sweep, "sweep/mod.rs", [3, 1];
    "picture": picture, "picture.rs", [1, 1];
    "soak": soak, "soak.rs", [1, 1];
    "squeeze": squeeze, "squeeze.rs", [1, 1];
    "demonstration": demonstration, "demonstration/mod.rs", [1, 1];
    "power-cut": power_cut, "power_cut/mod.rs", [1000, 20];
    "redis": redis, "redis.rs", [5, 1];
}
