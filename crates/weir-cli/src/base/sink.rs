//! Files that the command line names for results.

use crate::base::failure::Failure;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The destination of a result: standard output for `-`, else a file.
pub enum ResultFile {
    Output,
    File(File),
}

impl ResultFile {
    /// Opens what `option` names, without truncating it: an earlier result is kept if the program cannot be run.
    pub fn open(option: &str, path: &Path) -> std::result::Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::Output);
        }
        open(path).map(Self::File).map_err(|e| refusal(option, path, &e))
    }

    /// Writes the result in place of what was there.
    pub fn write(&mut self, text: &str) -> Result<()> {
        self.write_bytes(text.as_bytes())
    }

    /// As [`Self::write`], of what is no text.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Output => {
                let mut output = std::io::stdout();
                output.write_all(bytes)?;
                output.flush()
            }
            Self::File(file) => {
                empty(file)?;
                file.write_all(bytes)
            }
        }
    }
}

/// Opens a file for results that are written while the program runs.
pub fn create(option: &str, path: &Path) -> std::result::Result<File, Failure> {
    if path == Path::new("-") {
        let say = format!("{option} -: the program writes to standard output as well: give {option} a file");
        return Err(Failure::of_weir(say));
    }
    open(path).and_then(|file| empty(&file).map(|()| file)).map_err(|e| refusal(option, path, &e))
}

/// Does not wait for the reader of a FIFO: the program would not start.
fn open(path: &Path) -> Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).custom_flags(flags.bits() as i32);
    let file = options.open(path)?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Pipes and devices have no length, and need none.
fn empty(file: &File) -> Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

fn refusal(option: &str, path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    Failure::of_weir(if Errno::from_io_error(error) == Some(Errno::NXIO) {
        format!("cannot write {path}: nothing reads it: start the reader of the pipe first, or give {option} a file")
    } else {
        format!("cannot write {path}: {error}: give {option} a file that can be made")
    })
}
