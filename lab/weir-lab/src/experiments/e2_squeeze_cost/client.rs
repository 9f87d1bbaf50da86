//! The client through which the volume is written: fio's, of libnbd. A request for each block of 4 KiB, one at a time, so that
//! the pool is on the path of each. (`dd` onto a loop or kernel device is no such client: the page cache makes requests of 512 KiB
//! of its blocks, 1,024 for 512 MiB.)

use crate::harness::fio::{Fio, PROGRAM};
use crate::harness::folder::Folder;
use crate::harness::nbd_servers::Server;
use crate::harness::programs;

/// Bytes of a request, as the document's.
pub const REQUEST: u64 = 4096;

/// What is missing.
pub fn missing() -> Vec<String> {
    programs::missing(&[PROGRAM])
}

/// Writes all of the export in blocks of `request` bytes, to the end of the flush; MB/s, and requests.
pub fn write(folder: &Folder, server: &Server, export: &str, bytes: u64, request: u64) -> Result<(f64, f64), String> {
    let uri = server.uri(export);
    let jobs = format!("[dd]\nioengine=nbd\nuri={uri}\nrw=write\nbs={request}\nsize={bytes}\niodepth=1\nend_fsync=1\n");
    let outcome = Fio::start(&folder.at("jobs"), &jobs)?.outcome()?;
    Ok((outcome.bytes_a_second / 1e6, outcome.requests))
}
