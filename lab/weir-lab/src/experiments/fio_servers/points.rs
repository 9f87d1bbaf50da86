//! What is measured: the points, and how long.

use std::fmt::{self, Display, Formatter};

/// How large everything is.
pub struct Size {
    /// Bytes of the file, which is in memory.
    pub file: u64,
    /// Seconds of a run.
    pub seconds: u32,
    /// Clients at rest.
    pub clients: usize,
    /// Seconds after a load at which the resident set is looked at again: longer than weir-nbd's connections are quiet
    /// before they give their pools up.
    pub later: u64,
}

impl Size {
    /// Sixteen points of three servers: eight minutes a round.
    pub const FULL: Size = Size { file: 1 << 30, seconds: 10, clients: 500, later: 15 };
    pub const QUICK: Size = Size { file: 64 << 20, seconds: 1, clients: 50, later: 1 };
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// 1 MiB in sequence, or 4 KiB at random.
    pub is_large: bool,
    pub is_write: bool,
    /// Requests of a client under way.
    pub depth: u32,
    /// Clients.
    pub jobs: u32,
}

impl Point {
    /// All of them, or with `few` those at the ends alone.
    pub fn all(few: bool) -> Vec<Point> {
        let mut all = Vec::new();
        for is_large in [false, true] {
            for is_write in [false, true] {
                for (depth, jobs) in [(1, 1), (1, 8), (32, 1), (32, 8)] {
                    if !few || (depth, jobs) == (32, 1) {
                        all.push(Point { is_large, is_write, depth, jobs });
                    }
                }
            }
        }
        all
    }

    /// fio's jobs for the export at `uri`. Clients in sequence each have their part of the file.
    pub fn jobs(self, size: &Size, uri: &str) -> String {
        let pattern = match (self.is_large, self.is_write) {
            (false, false) => "randread",
            (false, true) => "randwrite",
            (true, false) => "read",
            (true, true) => "write",
        };
        let (block, part) = if self.is_large { ("1m", size.file / u64::from(self.jobs)) } else { ("4k", size.file) };
        let offset = if self.is_large { part } else { 0 };
        format!(
            "[load]\nioengine=nbd\nuri={uri}\nthread=1\nrw={pattern}\nbs={block}\niodepth={}\nnumjobs={}\nsize={part}\n\
             offset_increment={offset}\ntime_based=1\nruntime={}\nramp_time={}\nrandrepeat=0\n",
            self.depth,
            self.jobs,
            size.seconds,
            size.seconds / 5,
        )
    }
}

impl Display for Point {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let block = if self.is_large { "1 MiB sequential" } else { "4 KiB random" };
        let side = if self.is_write { "write" } else { "read" };
        write!(f, "{block} {side}, depth {}, {} clients", self.depth, self.jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_there_once() {
        let all = Point::all(false);
        assert_eq!((all.len(), Point::all(true).len()), (16, 4));
        assert!(all.iter().enumerate().all(|(at, point)| !all[..at].contains(point)));
        let large = Point { is_large: true, is_write: true, depth: 32, jobs: 8 };
        let text = large.jobs(&Size::FULL, "nbd://x");
        assert!(text.contains("rw=write\nbs=1m\niodepth=32\nnumjobs=8\nsize=134217728\noffset_increment=134217728\n"));
    }
}
