//! Who takes memory in E5's cgroup: a process, or a QEMU guest with one program in it. Both go through the same phases.

use crate::guest::kernel::GuestKernel;
use crate::guest::{Image, Machine};
use crate::harness::cgroup::Cgroup;
use crate::harness::phases::{PhasedProgram, load};
use crate::peers::Allocator;
use std::time::{Duration, Instant};

/// What a tenant is.
pub enum TenantKind {
    /// A process of this machine.
    Process,
    /// A guest of so many MiB, on that kernel.
    Guest(u64, GuestKernel),
}

/// One row of the tables: an allocator and its setting.
#[derive(Clone)]
pub struct TenantRow {
    /// As in the tables.
    pub label: String,
    /// What the program runs on.
    pub allocator: Allocator,
    /// Variables of the environment besides.
    pub env: &'static [(&'static str, &'static str)],
    /// Whether the guest's balloon reports free pages. Nothing to a process.
    pub hinting: bool,
}

/// Starts the tenants of one side.
pub struct TenantStarter<'a> {
    side: &'a TenantRow,
    /// Keeps what guests boot from.
    image: Option<(u64, Image)>,
}

/// A tenant that is ready, or has done its work and idles.
pub struct Tenant(PhasedProgram);

impl<'a> TenantStarter<'a> {
    /// Makes ready what all tenants of `side` share.
    pub fn new(place: &TenantKind, side: &'a TenantRow) -> Result<TenantStarter<'a>, String> {
        let image = match place {
            TenantKind::Process => None,
            TenantKind::Guest(mib, kernel) => Some((*mib, Image::build(kernel, &side.allocator, side.env)?)),
        };
        Ok(TenantStarter { side, image })
    }

    /// Starts a tenant in the cgroup; it waits for [`Tenant::work`] before it allocates `bytes`.
    pub fn start(&self, cgroup: &Cgroup, bytes: u64) -> Result<Tenant, String> {
        let words = ["neighbour", "start=told", "keep=0", "mix=even-bytes"].map(String::from);
        let words: Vec<String> = words.into_iter().chain([format!("bytes={bytes}")]).collect();
        let command = match &self.image {
            Some((mib, image)) => {
                image.command(Machine { mib: *mib, reporting: self.side.hinting, translations: 32 }, &words)
            }
            None => {
                let mut command = load(&self.side.allocator, &words)?;
                command.envs(self.side.env.iter().copied());
                command
            }
        };
        PhasedProgram::start(&self.side.label, command, Some(cgroup)).map(Tenant)
    }
}

impl Tenant {
    /// Lets it allocate, write and free; returns the seconds that took.
    pub fn work(&mut self) -> Result<f64, String> {
        let start = Instant::now();
        self.0.next_phase()?;
        self.0.next_phase()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Bytes that it occupies now.
    pub fn resident(&self) -> Result<u64, String> {
        Ok(self.0.memory()?.rss)
    }

    /// Waits until what it occupies has stood still for `still`, `limit` at most.
    pub fn settle(&self, still: Duration, limit: Duration) -> Result<(), String> {
        const STEP: Duration = Duration::from_millis(250);
        const NOISE: u64 = 1 << 20;
        let begin = Instant::now();
        let (mut last, mut since) = (self.resident()?, begin);
        while since.elapsed() < still && begin.elapsed() < limit {
            std::thread::sleep(STEP);
            let now = self.resident()?;
            if now.abs_diff(last) > NOISE {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(())
    }
}
