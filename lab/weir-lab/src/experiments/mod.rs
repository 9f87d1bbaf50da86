//! The experiments: a folder each for what is run and what is printed, a file where that is little.

mod cgroup_v2;
mod demonstration;
mod e10_many_threads;
mod e12_live_shrink;
mod e13_two;
mod e1_page_pools;
mod e2_squeeze_cost;
mod e3_object_caches;
mod e4_forwarding;
mod e5_density;
mod e6_reporting_cost;
mod e7_balancing;
mod e8_neighbour;
pub mod e9_peers;
mod fio_servers;
mod hitrate;
mod huge_pages;
#[cfg(target_arch = "x86_64")]
mod instructions;
mod latency;
mod picture;
mod power_cut;
mod redis;
mod reporting_time;
mod scaling;
mod soak;
mod squeeze;
mod sweep;
mod watched;

use crate::harness::args::RunArgs;
use crate::peers::Allocator;

/// An experiment.
pub struct Experiment {
    /// As in `weir-lab run NAME`.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Rounds of a run and of a quick run; none if it has no rounds.
    pub rounds: Option<[u32; 2]>,
    /// What `--only` may name, if there are parts to choose from.
    pub only: Option<&'static str>,
    /// Its options besides these and those that every experiment takes, by the fields' names in [`RunArgs`].
    options: &'static [&'static str],
    /// Runs it and prints its tables; returns the measurements.
    pub run: fn(&RunArgs, Vec<Allocator>) -> Result<serde_json::Value, String>,
}

impl Experiment {
    /// Whether it takes an option, by the field's name in [`RunArgs`].
    pub fn takes(&self, option: &str) -> bool {
        match option {
            "runs" => self.rounds.is_some(),
            "only" => self.only.is_some(),
            _ => self.options.contains(&option),
        }
    }
}

/// All of them, in the order of the list.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "e1",
        about: "page pools under pressure: pages swapped with hundreds of volumes on weir-nbd, squeezed or not (root)",
        rounds: Some([5, 1]),
        only: Some("milliseconds of squeezing, 0, 1, 10, 100; nbdkit, qemu-nbd"),
        options: &["swap_dir"],
        run: e1_page_pools::run,
    },
    Experiment {
        name: "e2",
        about: "what squeezing costs at worst: dd onto a volume in memory of weir-nbd, pools of 1,024 and of no idle pages",
        rounds: Some([5, 1]),
        only: None,
        options: &[],
        run: e2_squeeze_cost::run,
    },
    Experiment {
        name: "e3",
        about: "object caches under back pressure: buffers of a file server, with all memory and with a twentieth",
        rounds: Some([5, 1]),
        only: Some("free, twentieth, idle, growth; growth runs only if it is named"),
        options: &["swap_dir"],
        run: e3_object_caches::run,
    },
    Experiment {
        name: "e4",
        about: "forwarding: buffers allocated on one CPU and freed on another, under pressure and drains",
        rounds: Some([7, 1]),
        only: None,
        options: &[],
        run: e4_forwarding::run,
    },
    Experiment {
        name: "e5",
        about: "density: how many idle processes or guests fit before the first swap, and what memhog takes (root)",
        rounds: Some([3, 1]),
        only: Some("processes, guests, memhog-processes, memhog-guests, and allocators"),
        options: &["swap_dir"],
        run: e5_density::run,
    },
    Experiment {
        name: "e6",
        about: "what reporting costs: page faults a second with it and without; huge pages before and after",
        rounds: Some([20, 2]),
        only: Some("one-block, blocks, pauses, huge"),
        options: &["subject"],
        run: e6_reporting_cost::run,
    },
    Experiment {
        name: "e7",
        about: "balancing: postmark and a stream on a device of which Weir is the cache, by balance_policy (root)",
        rounds: Some([5, 1]),
        only: Some("postmark, streaming, small-zone"),
        options: &["swap_dir"],
        run: e7_balancing::run,
    },
    Experiment {
        name: "e8",
        about: "the neighbour: what an idle process that once peaked costs another in its cgroup (root)",
        rounds: Some([5, 1]),
        only: None,
        options: &["subject", "mix", "later", "swap_dir"],
        run: e8_neighbour::run,
    },
    Experiment {
        name: "e9",
        about: "peers: the standard allocator workloads and real programs; time, peak resident set, page faults",
        rounds: Some([5, 2]),
        only: Some("workloads and programs that `weir-lab list` names"),
        options: &["subject", "profiled"],
        run: e9_peers::run,
    },
    Experiment {
        name: "e10",
        about: "many threads: what is held for threads that used malloc once and sleep",
        rounds: Some([5, 1]),
        only: None,
        options: &["subject"],
        run: e10_many_threads::run,
    },
    Experiment {
        name: "e12",
        about: "a live container shrinks below its peak: redis, python and a cache server in a guest with cgroup v2",
        rounds: Some([50, 1]),
        only: Some("redis, python, cache"),
        options: &[],
        run: e12_live_shrink::run,
    },
    Experiment {
        name: "e13",
        about: "the total work of two: a program with a cache beside a neighbour of swinging demand in a cgroup (root)",
        rounds: Some([1, 1]),
        only: Some("weir, moka, quick_cache, foyer, each also with its size (moka-25); on-weir for Weir's malloc"),
        options: &["seconds", "swap_dir"],
        run: e13_two::run,
    },
    Experiment {
        name: "fio",
        about: "weir-nbd, nbdkit and qemu-nbd under fio: throughput, p99, processor time, resident sets",
        rounds: Some([5, 1]),
        only: Some("throughput, resident"),
        options: &[],
        run: fio_servers::run,
    },
    Experiment {
        name: "groups",
        about: "an idle heap in a group of cgroup v2 that comes to its limit, in a guest: is it released",
        rounds: Some([5, 1]),
        only: None,
        options: &[],
        run: cgroup_v2::run,
    },
    Experiment {
        name: "hitrate",
        about: "the policy of evictable caches against other caches: hit rates on traces, cost of a hit and of an insertion",
        rounds: Some([5, 1]),
        only: Some("the traces that it makes"),
        options: &["trace"],
        run: hitrate::run,
    },
    Experiment {
        name: "huge-pages",
        about: "4 GiB of one size of block: its share in huge pages, a random walk's step, what filling costs (root for both modes)",
        rounds: Some([5, 1]),
        only: Some("objects, slabs, runs, blocks; madvise, always"),
        options: &["subject"],
        run: huge_pages::run,
    },
    #[cfg(target_arch = "x86_64")]
    Experiment {
        name: "calls",
        about: "instructions of a malloc and of a free, counted one by one",
        rounds: Some([5, 1]),
        only: None,
        options: &["subject"],
        run: instructions::run,
    },
    Experiment {
        name: "latency",
        about: "single calls of malloc and free while memory is released: p50 to the longest",
        rounds: Some([5, 1]),
        only: None,
        options: &["subject"],
        run: latency::run,
    },
    Experiment {
        name: "scaling",
        about: "the threaded workloads of e9 on 1 to 64 threads; calls while up to 16 GiB are live",
        rounds: Some([5, 1]),
        only: Some("threaded workloads that `weir-lab list` names, heap"),
        options: &["subject"],
        run: scaling::run,
    },
    Experiment {
        name: "sweep",
        about: "what free and malloc cost at every size from 8 B to 64 MiB; fails at a cliff by instructions",
        rounds: Some([3, 1]),
        only: Some("instructions, untouched, first-byte, whole, calloc, aligned, steps, doubling, handover"),
        options: &["subject", "svg"],
        run: sweep::run,
    },
    Experiment {
        name: "picture",
        about: "memory over time, from a peak to 12 s of idleness, as a drawing",
        rounds: None,
        only: Some("madvise, always (settings of huge pages)"),
        options: &["mix", "svg"],
        run: picture::run,
    },
    Experiment {
        name: "report",
        about: "from a pressure event to the last idle byte of 1 GiB released; its processor time",
        rounds: None,
        only: None,
        options: &[],
        run: reporting_time::run,
    },
    Experiment {
        name: "watched",
        about: "what a busy process pays for being looked at ten times a second by `weir stat`",
        rounds: Some([300, 2]),
        only: None,
        options: &[],
        run: watched::run,
    },
    Experiment {
        name: "soak",
        about: "threads, forks, signals, streams, growth and moves under pressure: no corruption, hang or growth",
        rounds: None,
        only: None,
        options: &["subject", "minutes"],
        run: soak::run,
    },
    Experiment {
        name: "squeeze",
        about: "from a pressure event to the last idle page of page pools given back, at rest and in use",
        rounds: None,
        only: None,
        options: &[],
        run: squeeze::run,
    },
    Experiment {
        name: "demonstration",
        about: "redis under load with `weir top` beside it and a neighbour that needs memory, recorded and drawn (root)",
        rounds: None,
        only: None,
        options: &["cast", "svg"],
        run: demonstration::run,
    },
    Experiment {
        name: "power-cut",
        about: "what weir-nbd has said is flushed is there after SIGKILL, and after a power cut of the drive below (root)",
        rounds: Some([1000, 20]),
        only: None,
        options: &[],
        run: power_cut::run,
    },
    Experiment {
        name: "redis",
        about: "the resident set of redis-server after FLUSHALL of 500 MB",
        rounds: Some([5, 1]),
        only: None,
        options: &["subject"],
        run: redis::run,
    },
];
