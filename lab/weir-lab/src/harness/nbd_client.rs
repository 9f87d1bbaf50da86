//! A client of an NBD server that does as little as a client can: it is connected, and sends one request at a time when it is
//! told to.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const EXPORT_NAME: u32 = 1;
/// Fixed newstyle, no zeroes after the answer.
const FLAGS: u32 = 3;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const WRITE_ZEROES: u16 = 6;
/// The data is safe when the answer comes.
const FUA: u16 = 1;
/// Zeroes need not be a hole.
const NO_HOLE: u16 = 2;
/// Time for the server to answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection that uses an export.
pub struct NbdClient(UnixStream);

impl NbdClient {
    /// Connects, and chooses an export.
    pub fn connect(socket: &Path, export: &str) -> Result<NbdClient, String> {
        Self::shake(socket, export).map_err(|why| format!("a client of {}: {why}", socket.display()))
    }

    fn shake(socket: &Path, export: &str) -> std::io::Result<NbdClient> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if greeting[..8] != GREETING.to_be_bytes() || greeting[8..16] != OPTION.to_be_bytes() {
            return Err(std::io::Error::other("it does not greet as an NBD server"));
        }
        let length = export.len() as u32;
        let choice =
            [&FLAGS.to_be_bytes()[..], &OPTION.to_be_bytes(), &EXPORT_NAME.to_be_bytes(), &length.to_be_bytes()];
        stream.write_all(&[&choice.concat(), export.as_bytes()].concat())?;
        // The size and the flags; of an export that is not there, the connection's end.
        stream.read_exact(&mut [0; 10])?;
        Ok(NbdClient(stream))
    }

    /// Reads from the export, for nothing.
    pub fn read(&mut self, offset: u64, length: u32) -> Result<(), String> {
        self.read_to(offset, length).map(|_| ())
    }

    /// Reads from the export.
    pub fn read_to(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, String> {
        let mut read = vec![0; length as usize];
        let answer = self.request(READ, 0, offset, length, &[]).and_then(|()| self.0.read_exact(&mut read));
        answer.map_err(|why| format!("a read from an NBD server: {why}"))?;
        Ok(read)
    }

    /// Writes to the export; with `is_forced` the answer comes when the data is safe.
    pub fn write(&mut self, offset: u64, data: &[u8], is_forced: bool) -> Result<(), String> {
        let flags = if is_forced { FUA } else { 0 };
        let answer = self.request(WRITE, flags, offset, data.len() as u32, data);
        answer.map_err(|why| format!("a write to an NBD server: {why}"))
    }

    /// Makes a range zeroes, a hole if the server likes and `may_be_hole`.
    pub fn zero(&mut self, offset: u64, length: u32, may_be_hole: bool) -> Result<(), String> {
        let flags = if may_be_hole { 0 } else { NO_HOLE };
        let answer = self.request(WRITE_ZEROES, flags, offset, length, &[]);
        answer.map_err(|why| format!("zeroes to an NBD server: {why}"))
    }

    /// Has all that was answered before made safe.
    pub fn flush(&mut self) -> Result<(), String> {
        self.request(FLUSH, 0, 0, 0, &[]).map_err(|why| format!("a flush of an NBD server: {why}"))
    }

    /// Sends a request, and reads its answer but for the data.
    fn request(&mut self, command: u16, flags: u16, offset: u64, length: u32, data: &[u8]) -> std::io::Result<()> {
        let cookie = 0u64;
        let request = [
            &REQUEST.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &command.to_be_bytes(),
            &cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            &length.to_be_bytes(),
            data,
        ];
        self.0.write_all(&request.concat())?;
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        let is_done = reply[..4] == SIMPLE_REPLY.to_be_bytes() && reply[4..8] == [0; 4];
        if is_done { Ok(()) } else { Err(std::io::Error::other("it fails")) }
    }
}
