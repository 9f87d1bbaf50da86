//! Programs that are told what to do by lines on standard input, and say "ok" when they have done it.

use super::subject::Subject;
use crate::base::guest::{Started, environment};
use crate::base::prelude::*;
use std::fs::read_to_string;
use std::process::{Command, Stdio};

/// The size of a cache that has to be told one, in sizes of the data.
const CACHE_BYTES: u64 = 5;

pub struct Lines(Started);

impl Lines {
    pub fn python(group: &Group, bytes: u64) -> Result<Lines> {
        let mut command = Command::new(read_to_string("/python")?.trim());
        command.args(["-S", "-s", "-B", "-c", include_str!("live_shrink.py")]).arg(bytes.to_string());
        command.env("PYTHONMALLOC", "malloc").env("PYTHONHASHSEED", "0");
        Lines::start(group, command)
    }

    pub fn cache(group: &Group, bytes: u64) -> Result<Lines> {
        let mut command = Command::new("/cache-server");
        command.args(["server", &format!("cache={}", read_to_string("/cache")?.trim()), &format!("data={bytes}")]);
        command.arg(format!("bytes={}", bytes * CACHE_BYTES));
        Lines::start(group, command)
    }

    fn start(group: &Group, mut command: Command) -> Result<Lines> {
        command.envs(environment()).stdin(Stdio::piped()).stdout(Stdio::piped());
        Started::new(group, &mut command).map(Lines)
    }

    fn tell(&mut self, what: &[u8]) -> Result<()> {
        self.0.tell(what)?;
        ensure!(self.0.hear()? == b"ok\n", "the program answered wrongly");
        Ok(())
    }
}

impl Subject for Lines {
    fn load(&mut self) -> Result<()> {
        self.tell(b"load\n")
    }

    fn peak(&mut self) -> Result<()> {
        self.tell(b"peak\n")
    }

    fn work(&mut self) -> Result<()> {
        self.tell(b"work\n")
    }
}
