//! The command line.

use std::path::PathBuf;

pub const HELP: &str = "\
usage: weir-guest-run [OPTION...]
  --memory MIB      memory of the guest (512)
  --touch MIB       memory that it touches and frees in each round (384)
  --keep MIB        memory that it keeps in use and checks (24)
  --no-reporting    the control: a balloon without free page reporting
  --no-poison       a balloon without page poison
  --image FILE      the kernel image (weir-guest, next to this program)
  --qemu PROGRAM    QEMU (qemu-system-x86_64)";

/// What to run.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    pub memory: u64,
    pub touch: u64,
    pub keep: u64,
    pub reporting: bool,
    pub poison: bool,
    pub image: PathBuf,
    pub qemu: String,
}

impl Options {
    /// Reads the command line; `None`: help is asked for.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let beside = std::env::current_exe().map_err(|e| format!("this program's own path is unknown: {e}"))?;
        let mut options = Self {
            memory: 512,
            touch: 384,
            keep: 24,
            reporting: true,
            poison: true,
            image: beside.with_file_name("weir-guest"),
            qemu: "qemu-system-x86_64".into(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--memory" => options.memory = mib(&value()?)?,
                "--touch" => options.touch = mib(&value()?)?,
                "--keep" => options.keep = mib(&value()?)?,
                "--no-reporting" => options.reporting = false,
                "--no-poison" => options.poison = false,
                "--image" => options.image = value()?.into(),
                "--qemu" => options.qemu = value()?,
                other => return Err(format!("`{other}` is no option")),
            }
        }
        Ok(Some(options))
    }
}

fn mib(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|n| (1..=1 << 20).contains(n));
    number.ok_or(format!("`{text}` is no number of MiB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn options_are_read_and_wrong_ones_named() {
        let options = parse("--touch 100 --no-reporting --image x").unwrap().unwrap();
        assert_eq!((options.memory, options.touch, options.reporting, options.poison), (512, 100, false, true));
        assert_eq!(options.image, PathBuf::from("x"));
        assert_eq!(parse("--help"), Ok(None));
        assert_eq!(parse("--touch"), Err("--touch needs a value".into()));
        assert_eq!(parse("--touch 0"), Err("`0` is no number of MiB".into()));
        assert_eq!(parse("--tuch"), Err("`--tuch` is no option".into()));
    }
}
