//! Pressure stall information (PSI), of the machine and of cgroups.

use serde::Serialize;
use std::path::Path;

/// Shares of time in which tasks waited for memory, percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stall {
    /// In which some task waited: averages over 10, 60 and 300 s.
    pub some: [f64; 3],
    /// In which all tasks waited.
    pub full: [f64; 3],
}

impl Stall {
    /// Stalls of the whole machine; none where the kernel has no PSI.
    pub fn of_machine() -> Option<Self> {
        Self::read(Path::new("/proc/pressure/memory"))
    }

    /// From a file in the kernel's format.
    pub fn read(path: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let line = |kind: &str| {
            let words = text.lines().find_map(|line| line.strip_prefix(kind))?;
            let average = |name: &str| words.split_whitespace().find_map(|word| word.strip_prefix(name)?.parse().ok());
            Some([average("avg10=")?, average("avg60=")?, average("avg300=")?])
        };
        Some(Self { some: line("some ")?, full: line("full ")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let text = "some avg10=1.50 avg60=0.25 avg300=0.00 total=69719379\n\
                    full avg10=0.50 avg60=0.00 avg300=0.00 total=30925584\n";
        let stall = Stall { some: [1.5, 0.25, 0.0], full: [0.5, 0.0, 0.0] };
        assert_eq!(Stall::parse(text), Some(stall));
        assert_eq!((Stall::parse(""), Stall::parse("some avg10=x avg60=1 avg300=1\nfull ")), (None, None));
    }
}
