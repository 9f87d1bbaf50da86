//! How operations get done: by io_uring, or by epoll and threads.

use super::driver::Driver;
use super::epoll::Epoll;
use super::pool::Pool;
use super::reactor::Remote;
use super::uring::Uring;
use std::io;

/// Which driver is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// io_uring, or threads where the kernel refuses it.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// epoll for sockets, threads for files.
    Threads,
}

impl Engine {
    /// Chooses once for all workers: never `Auto`. With the error for which io_uring was refused, if it was.
    pub fn choose(self) -> io::Result<(Self, Option<io::Error>)> {
        match (self, Uring::probe()) {
            (Self::Threads, _) => Ok((Self::Threads, None)),
            (_, Ok(())) => Ok((Self::Uring, None)),
            (Self::Uring, Err(why)) => Err(why),
            (Self::Auto, Err(why)) => Ok((Self::Threads, Some(why))),
        }
    }

    /// Opens the driver of one worker.
    pub(super) fn open(self, remote: &Remote, pool: &Pool) -> io::Result<Box<dyn Driver>> {
        match self {
            Self::Threads => Ok(Box::new(Epoll::new(remote.clone(), pool.clone())?)),
            Self::Auto | Self::Uring => Ok(Box::new(Uring::new()?)),
        }
    }
}
