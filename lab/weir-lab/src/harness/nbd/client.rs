//! A client of an NBD server that does as little as a client can. It is connected, and sends one request at a time when it is
//! told to.

use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const GREETING: [u8; 16] = *b"NBDMAGICIHAVEOPT";
/// The client's flags: fixed newstyle, no zeroes. The option: the export's name.
const CHOICE: [u8; 16] = *b"\0\0\0\x03IHAVEOPT\0\0\0\x01";
const REQUEST: u32 = 0x2560_9513;
/// A simple reply without an error.
const DONE: [u8; 8] = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0];
const PATIENCE: Duration = Duration::from_secs(60);

/// Commands, and their flags.
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const NO_HOLE: u16 = 2;

/// A connection to an export.
pub struct NbdClient(UnixStream);

impl NbdClient {
    pub fn connect(socket: &Path, export: &str) -> Result<NbdClient> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        ensure!(greeting.starts_with(&GREETING), "it does not greet as an NBD server");
        stream.write_all(&[&CHOICE[..], &(export.len() as u32).to_be_bytes(), export.as_bytes()].concat())?;
        stream.read_exact(&mut [0; 10])?; // Its size and flags.
        Ok(NbdClient(stream))
    }

    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>> {
        self.request(READ, 0, offset, length, &[])?;
        let mut read = vec![0; length];
        self.0.read_exact(&mut read)?;
        Ok(read)
    }

    pub fn write(&mut self, offset: u64, data: &[u8], is_forced: bool) -> Result<()> {
        self.request(WRITE, if is_forced { FUA } else { 0 }, offset, data.len(), data)
    }

    pub fn zero(&mut self, offset: u64, length: usize, may_be_hole: bool) -> Result<()> {
        self.request(WRITE_ZEROES, if may_be_hole { 0 } else { NO_HOLE }, offset, length, &[])
    }

    pub fn flush(&mut self) -> Result<()> {
        self.request(FLUSH, 0, 0, 0, &[])
    }

    fn request(&mut self, command: u16, flags: u16, offset: u64, length: usize, data: &[u8]) -> Result<()> {
        let words = u64::from(REQUEST) << 32 | u64::from(flags) << 16 | u64::from(command);
        let head = [words, 0, offset].map(u64::to_be_bytes).concat();
        self.0.write_all(&[&head, &(length as u32).to_be_bytes()[..], data].concat())?;
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply).context("an NBD server is gone")?;
        ensure!(reply.starts_with(&DONE), "an NBD server refuses command {command}");
        Ok(())
    }
}
