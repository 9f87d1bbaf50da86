//! The experiments, in folders by what they show: a file each, a folder where there is more to it. The head of the file says
//! what is run and what is printed, and is printed above the tables.

mod footprint {
    pub mod defrag;
    pub mod e14_sparse;
    pub mod e5_density;
    pub mod huge_pages;
    pub mod picture;
    pub mod redis_keys;
}

mod mechanisms {
    pub mod e1_page_pools;
    pub mod e2_squeeze_cost;
    pub mod e3_object_caches;
    pub mod e4_forwarding;
    pub mod e6_reporting_cost;
    pub mod e7_balancing;
    pub mod hitrate;
}

mod servers {
    pub mod fio;
    pub mod power_cut;
    pub mod redis;
    pub mod soak;
}

mod shared_machine {
    pub mod demonstration;
    pub mod e12_live_shrink;
    pub mod e13_two;
    pub mod e15_order;
    pub mod e8_neighbour;
    pub mod groups;
    pub mod squeeze;
    pub mod sudden;
}

pub mod speed {
    pub mod e10_many_threads;
    pub mod e9_peers;
    pub mod latency;
    pub mod scaling;
    pub mod sweep;
}

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
    ($($name:literal: $folder:ident::$module:ident, $file:literal, $rounds:expr;)*) => {
        pub const EXPERIMENTS: &[Experiment] = &[
            $(Experiment {
                name: $name,
                source: include_str!(concat!(stringify!($folder), "/", $file)),
                rounds: $rounds,
                run: $folder::$module::run,
            }),*
        ];
    };
}

experiments! {
    "e1": mechanisms::e1_page_pools, "e1_page_pools.rs", [5, 1];
    "e2": mechanisms::e2_squeeze_cost, "e2_squeeze_cost.rs", [5, 1];
    "e3": mechanisms::e3_object_caches, "e3_object_caches.rs", [5, 1];
    "e4": mechanisms::e4_forwarding, "e4_forwarding.rs", [7, 1];
    "e5": footprint::e5_density, "e5_density.rs", [3, 1];
    "e6": mechanisms::e6_reporting_cost, "e6_reporting_cost.rs", [20, 2];
    "e7": mechanisms::e7_balancing, "e7_balancing.rs", [5, 1];
    "e8": shared_machine::e8_neighbour, "e8_neighbour.rs", [5, 1];
    "e9": speed::e9_peers, "e9_peers/mod.rs", [5, 2];
    "e10": speed::e10_many_threads, "e10_many_threads.rs", [5, 1];
    "e12": shared_machine::e12_live_shrink, "e12_live_shrink.rs", [50, 1];
    "e13": shared_machine::e13_two, "e13_two.rs", [1, 1];
    "order": shared_machine::e15_order, "e15_order.rs", [3, 1];
    "sparse": footprint::e14_sparse, "e14_sparse/mod.rs", [3, 1];
    "defrag": footprint::defrag, "defrag/mod.rs", [3, 1];
    "fio": servers::fio, "fio.rs", [5, 1];
    "groups": shared_machine::groups, "groups.rs", [5, 1];
    "hitrate": mechanisms::hitrate, "hitrate/mod.rs", [5, 1];
    "huge-pages": footprint::huge_pages, "huge_pages.rs", [5, 1];
    "latency": speed::latency, "latency.rs", [5, 1];
    "scaling": speed::scaling, "scaling.rs", [5, 1];
    "sweep": speed::sweep, "sweep/mod.rs", [3, 1];
    "picture": footprint::picture, "picture.rs", [1, 1];
    "soak": servers::soak, "soak.rs", [1, 1];
    "squeeze": shared_machine::squeeze, "squeeze.rs", [1, 1];
    "sudden": shared_machine::sudden, "sudden.rs", [50, 1];
    "demonstration": shared_machine::demonstration, "demonstration/mod.rs", [1, 1];
    "power-cut": servers::power_cut, "power_cut/mod.rs", [1000, 20];
    "redis": servers::redis, "redis.rs", [5, 1];
}
