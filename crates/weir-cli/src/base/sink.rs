//! Files that the command line names for results.

use crate::base::descriptors::{TOO_MANY, is_too_many};
use crate::base::failure::{Failure, Kind};
use crate::base::own_name::OwnName;
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::stdio::{stderr, stdout};
use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// The destination of a result: standard output for `-`, else a file. One that was made for it goes if nothing is written.
pub struct ResultFile {
    /// The file was not there before.
    new: Option<OwnName>,
    /// None: standard output.
    file: Option<File>,
    name: String,
}

impl ResultFile {
    /// Opens what `option` names, without truncating it: an earlier result is kept if the program cannot be run.
    pub fn open(option: &str, path: &Path) -> std::result::Result<Self, Failure> {
        let name = path.display().to_string();
        if path == Path::new("-") {
            return Ok(Self { new: None, file: None, name });
        }
        // Any error is the second call's to tell.
        let (new, opened) = match open(path, OFlags::EXCL) {
            Ok(file) => (Some(OwnName::of(path)), Ok(file)),
            Err(_) => (None, open(path, OFlags::empty())),
        };
        let file = opened.map_err(|error| refusal(option, path, &error))?;
        Ok(Self { new, file: Some(file), name })
    }

    /// Writes the result in place of what was there.
    pub fn write(self, bytes: impl AsRef<[u8]>) -> std::result::Result<(), Failure> {
        let Self { new, file, name } = self;
        if let Some(new) = new {
            new.keep();
        }
        let written = match file {
            None => std::io::stdout().write_all(bytes.as_ref()).and_then(|()| std::io::stdout().flush()),
            Some(mut file) => empty(&file).and_then(|()| file.write_all(bytes.as_ref())),
        };
        written.map_err(|why| unwritten(&name, &why))
    }
}

/// A result that was to be written to what has this name.
pub fn unwritten(name: &str, error: &std::io::Error) -> Failure {
    let advice = match Errno::from_io_error(error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => ": is its disk full?",
        Some(Errno::PIPE) => ": nothing reads it any more",
        _ => "",
    };
    Failure::of_weir(format!("cannot write {name}: {error}{advice}"))
}

/// Opens a file for results that are written while the program runs, without truncating it: see [`empty`].
pub fn open_beside_program(option: &str, path: &Path) -> std::result::Result<File, Failure> {
    if path == Path::new("-") {
        let say = format!("{option} -: the program writes to standard output as well: give {option} a file");
        return Err(Failure::of_weir(say));
    }
    open(path, OFlags::empty()).map_err(|e| refusal(option, path, &e))
}

/// Refuses results of which one would be written over another, or over what the program writes. Each option's file is there by
/// now.
pub fn are_apart(results: &[(&str, Option<&Path>)]) -> std::result::Result<(), Failure> {
    let streams = [("standard output", fstat(stdout())), ("standard error", fstat(stderr()))];
    let of_stream = |stat: rustix::fs::Stat| {
        (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then_some((stat.st_dev, stat.st_ino))
    };
    let mut seen: Vec<(&str, (u64, u64))> =
        streams.into_iter().filter_map(|(name, stat)| Some((name, of_stream(stat.ok()?)?))).collect();
    for &(option, path) in results {
        let Some(path) = path.filter(|path| *path != Path::new("-")) else { continue };
        let Some(identity) = identity(path) else { continue };
        if let Some((other, _)) = seen.iter().find(|(_, of_other)| *of_other == identity) {
            let path = path.display();
            return Err(Failure::of_weir(format!("{other} and {option} are one file, {path}: give each its own")));
        }
        seen.push((option, identity));
    }
    Ok(())
}

/// Refuses a result that would be written over a file from which it is made.
pub fn is_no_input(
    option: &str,
    result: Option<&Path>,
    inputs: &[impl AsRef<Path>],
) -> std::result::Result<(), Failure> {
    let Some(written) = result.and_then(identity) else { return Ok(()) };
    if inputs.iter().all(|input| identity(input.as_ref()) != Some(written)) {
        return Ok(());
    }
    let path = result.unwrap_or(Path::new("")).display();
    Err(Failure::of(Kind::Usage, format!("{option} names {path}, which is read: give {option} a file of its own")))
}

/// Device and number of what is an ordinary file. A pipe or a device takes what comes, one after the other.
fn identity(path: &Path) -> Option<(u64, u64)> {
    let file = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some((file.dev(), file.ino()))
}

/// Does not wait for the reader of a FIFO: the program would not start.
fn open(path: &Path, more: OFlags) -> Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | more;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).custom_flags(flags.bits() as i32);
    let file = options.open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Takes away what is in a file. Pipes and devices have no length, and need none.
pub fn empty(file: &File) -> Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

fn refusal(option: &str, path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    Failure::of_weir(if Errno::from_io_error(error) == Some(Errno::NXIO) {
        format!("cannot write {path}: nothing reads it: start the reader of the pipe first, or give {option} a file")
    } else if is_too_many(error) {
        format!("cannot write {path}: {TOO_MANY}")
    } else {
        format!("cannot write {path}: {error}: give {option} a file that can be made")
    })
}
