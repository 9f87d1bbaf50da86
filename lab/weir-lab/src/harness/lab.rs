//! A run of an experiment: its options, the allocators, what it needs, what it prints, and what it came to.

use crate::harness::child::{beside, find};
use crate::harness::grid::{Grid, Measure};
use crate::harness::machine::{self, cgroup};
use crate::peers::{self, Allocator};
use anyhow::{Context, Result, bail};
use clap::{Args, value_parser};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The options of all experiments; each takes those that mean something to it.
#[derive(Args, Default)]
pub struct RunArgs {
    /// Show that it works; the figures prove nothing
    #[arg(long)]
    pub quick: bool,
    /// Write the results, with every value, to FILE
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Only these allocators beside Weir
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub peers: Vec<String>,
    /// Weir's library [default: $WEIR_LIB, or libweir.so beside this program]
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// Rounds, in each of which everything has its turn [default: the experiment's own]
    #[arg(long = "runs", value_name = "N", value_parser = value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    #[arg(skip)]
    pub rounds: u32,
    /// Who is judged against the best of the others
    #[arg(long, default_value = peers::WEIR, value_name = "NAME")]
    pub subject: String,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    pub only: Vec<String>,
    /// e8, picture: sizes of which as many blocks, or as many bytes, are of each doubling
    #[arg(long, value_parser = ["even-counts", "even-bytes"], default_value = "even-counts")]
    pub mix: String,
    /// soak: how long
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    pub minutes: Option<u32>,
    /// e13: how long a cache is measured
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=86_400))]
    pub seconds: Option<u32>,
    /// e8: look at what is idle once more, so late
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u32).range(1..=86_400))]
    pub later: Option<u32>,
    /// hitrate: a file of keys, 64 bits each, little-endian
    #[arg(long, value_name = "FILE")]
    pub trace: Vec<PathBuf>,
    /// demonstration, picture, sweep: draw to FILE
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// demonstration: record to FILE
    #[arg(long, value_name = "FILE")]
    pub cast: Option<PathBuf>,
    /// e9: measure Weir with the profiler on as well
    #[arg(long)]
    pub profiled: bool,
    /// Where swap files and disks are made
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub swap_dir: PathBuf,
}

/// A thing that an experiment cannot do without.
#[derive(Clone, Copy)]
pub enum Need {
    Root,
    Cgroups,
    /// A program and its package.
    Program(&'static str, &'static str),
    /// A device and how to get it.
    Device(&'static str, &'static str),
    /// A program of this tree, beside weir-lab.
    Beside(&'static str),
}

/// The things that FUSE files and loop devices need.
pub const BLOCK_DEVICE: [Need; 6] = [
    Need::Program("nbdfuse", "libnbd-bin"),
    Need::Program("fusermount3", "fuse3"),
    Need::Program("losetup", "mount"),
    Need::Program("mkfs.ext4", "e2fsprogs"),
    Need::Device("/dev/fuse", "modprobe fuse"),
    Need::Device("/dev/loop-control", "modprobe loop"),
];

impl Need {
    /// The thing that is missing, and how to get it.
    pub fn missing(self) -> Option<String> {
        let (is_here, how) = match self {
            Need::Root => (nix::unistd::geteuid().is_root(), "root".into()),
            Need::Cgroups => (cgroup::root().is_ok(), "memory cgroups".into()),
            Need::Program(name, package) => (find(name).is_some(), format!("{name}: apt-get install {package}")),
            Need::Device(path, how) => (Path::new(path).exists(), format!("{path}: {how}")),
            Need::Beside(name) => (beside(name).is_ok(), format!("{name} beside weir-lab: cargo build --release")),
        };
        (!is_here).then_some(how)
    }
}

/// A run.
pub struct Lab {
    pub args: RunArgs,
    pub allocators: Vec<Allocator>,
    told: Map<String, Value>,
    failed: Vec<String>,
}

impl Lab {
    pub fn new(args: RunArgs, allocators: Vec<Allocator>) -> Lab {
        Lab { args, allocators, told: Map::new(), failed: Vec::new() }
    }

    /// The one or, with `--quick`, the other.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.args.quick { quick } else { full }
    }

    /// Weir.
    pub fn weir(&self) -> Result<Allocator> {
        self.allocator(peers::WEIR)
    }

    pub fn allocator(&self, name: &str) -> Result<Allocator> {
        let found = self.allocators.iter().find(|allocator| allocator.name == name);
        found.cloned().with_context(|| format!("{name} is not here: see `weir-lab list`"))
    }

    /// The command `weir`, beside the library.
    pub fn weir_command(&self) -> Result<PathBuf> {
        let beside = self.weir()?.preload.map(|library| library.with_file_name("weir"));
        beside.filter(|file| file.exists()).context("weir is not beside libweir.so: cargo build --release")
    }

    /// The names that `--only` has, or all.
    pub fn chosen<'a>(&self, names: &[&'a str]) -> Result<Vec<&'a str>> {
        if let Some(unknown) = self.args.only.iter().find(|only| !names.contains(&only.as_str())) {
            bail!("'{unknown}' is no part of this: there are {}", names.join(", "));
        }
        let is_asked = |name: &&&str| self.args.only.is_empty() || self.args.only.iter().any(|only| only == *name);
        Ok(names.iter().filter(is_asked).copied().collect())
    }

    /// Says what is missing; whether anything is.
    pub fn lacks(&mut self, needs: &[Need]) -> bool {
        let missing: Vec<String> = needs.iter().filter_map(|need| need.missing()).collect();
        self.skips("", missing)
    }

    /// Says that a part is left out for what is missing; whether anything is.
    pub fn skips(&mut self, part: &str, missing: Vec<String>) -> bool {
        if !missing.is_empty() {
            println!("{part} skipped. What is missing:\n\n- {}\n", missing.join("\n- "));
            self.note(&format!("skipped {part}"), missing.clone().into());
        }
        !missing.is_empty()
    }

    /// Measures, prints a table a case, and notes it all.
    pub fn by_case<C: ToString, S: ToString>(
        &mut self,
        measures: Vec<Measure>,
        cases: &[C],
        subjects: &[S],
        one: impl FnMut(&C, &S) -> Result<Vec<f64>>,
    ) -> Grid {
        let grid = Grid::measure(measures, self.args.rounds, cases, subjects, one);
        println!("{}", grid.by_case(Some(&self.args.subject)));
        self.keep(&grid);
        grid
    }

    /// Measures, prints a table a measure, and notes it all.
    pub fn by_measure<C: ToString, S: ToString>(
        &mut self,
        measures: Vec<Measure>,
        cases: &[C],
        subjects: &[S],
        one: impl FnMut(&C, &S) -> Result<Vec<f64>>,
    ) -> Grid {
        let grid = Grid::measure(measures, self.args.rounds, cases, subjects, one);
        println!("{}", grid.by_measure(Some(&self.args.subject)));
        self.keep(&grid);
        grid
    }

    /// Notes what was measured, and the subject's failure.
    pub fn keep(&mut self, grid: &Grid) {
        self.failed.extend(grid.failed(&self.args.subject));
        if let Value::Object(cases) = grid.json() {
            self.told.extend(cases);
        }
    }

    /// Notes what goes into the results.
    pub fn note(&mut self, key: &str, value: Value) {
        self.told.insert(key.into(), value);
    }

    /// Notes that the experiment fails, and goes on.
    pub fn fail(&mut self, why: impl ToString) {
        self.failed.push(why.to_string());
    }

    /// Each setting of huge pages that can be had, of those named or of both: set while the work is done.
    pub fn for_huge_pages(&mut self, modes: &[&str], mut work: impl FnMut(&mut Lab, &str) -> Result<()>) -> Result<()> {
        for mode in modes {
            match machine::set_huge_pages(mode) {
                Ok(_restored) => work(self, mode)?,
                Err(why) => _ = self.skips(mode, vec![format!("{why:#}")]),
            }
        }
        Ok(())
    }

    /// The results, and an error if the experiment failed.
    pub fn end(self, name: &str) -> Result<()> {
        if let Some(path) = &self.args.json {
            let versions: Map<_, _> = self.allocators.into_iter().map(|a| (a.name, a.version.into())).collect();
            let all = json!({ "experiment": name, "quick": self.args.quick, "machine": machine::describe(),
                              "allocators": versions, "result": self.told, "failed": self.failed });
            std::fs::write(path, format!("{all:#}\n")).with_context(|| path.display().to_string())?;
        }
        match self.failed.first() {
            Some(why) => bail!("{why}"),
            None => Ok(()),
        }
    }
}
