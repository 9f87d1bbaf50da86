//! What loads the server: the volumes, their clients, and the program that needs memory.

use crate::harness::nbd_servers::Server;
use std::fmt::Write;

/// How large everything is.
pub struct Size {
    /// Volumes, each with a client of its own.
    pub volumes: usize,
    /// Bytes of a volume. All are names of one file, in memory and outside of the cgroup: what is swapped is the server's
    /// own memory or the other program's.
    pub volume: u64,
    /// Bytes of a request, and requests that a client sends at a time: 4 MiB, as much as a pool keeps.
    pub request: u64,
    pub depth: u32,
    /// Between two bursts of a client, ms: shorter than weir-nbd's connections are quiet before they give their pools up.
    pub pause_ms: u32,
    /// Bytes of requests that weir-nbd has under way at a time (`--max-memory`). What is swapped is then what it keeps,
    /// and not what it needs.
    pub in_flight: u64,
    /// Of the cgroup of the server and the other program.
    pub limit: u64,
    /// What the other program scans again and again.
    pub segment: u64,
    /// Its pause after a block of 1 MiB.
    pub pause_us: u64,
    /// Bytes of swap.
    pub swap: u64,
    /// Seconds that all this goes on.
    pub seconds: u32,
}

impl Size {
    /// The pools would keep 800 MiB, of which there is room for 190 beside the other program.
    pub const FULL: Size = Size {
        volumes: 200,
        volume: 64 << 20,
        request: 128 << 10,
        depth: 32,
        pause_ms: 4000,
        in_flight: 32 << 20,
        limit: 512 << 20,
        segment: 320 << 20,
        pause_us: 2000,
        swap: 2 << 30,
        seconds: 30,
    };
    /// A tenth.
    pub const QUICK: Size = Size {
        volumes: 24,
        limit: 96 << 20,
        segment: 48 << 20,
        pause_ms: 1000,
        in_flight: 8 << 20,
        swap: 256 << 20,
        seconds: 6,
        ..Size::FULL
    };

    /// The volumes' names.
    pub fn names(&self) -> Vec<String> {
        (0..self.volumes).map(|number| format!("vol{number}")).collect()
    }
}

/// fio's jobs: a client for each volume, which reads a burst, pauses and reads the next one. They begin one after
/// another, spread over a pause.
pub fn jobs(size: &Size, server: &Server) -> String {
    let Size { request, depth, pause_ms, volume, seconds, .. } = size;
    let mut text = format!(
        "[global]\nioengine=nbd\nthread=1\nrw=randread\nbs={request}\niodepth={depth}\niodepth_batch_submit={depth}\n\
         thinktime={pause_ms}ms\nthinktime_blocks={depth}\nsize={volume}\ntime_based=1\nruntime={seconds}\nrandseed=1\n"
    );
    for (number, name) in size.names().iter().enumerate() {
        let delay = pause_ms * number as u32 / size.volumes as u32;
        let uri = server.uri(name);
        // A string takes all.
        let _ = write!(text, "[{name}]\nuri={uri}\nstartdelay={delay}ms\n");
    }
    text
}
