//! A client of an NBD server that does as little as a client can: it is connected, and it reads when it is told to.

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
        self.request(offset, length).map_err(|why| format!("a read from an NBD server: {why}"))
    }

    fn request(&mut self, offset: u64, length: u32) -> std::io::Result<()> {
        let (flags, cookie) = (0u16, 0u64);
        let request = [
            &REQUEST.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &READ.to_be_bytes(),
            &cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            &length.to_be_bytes(),
        ];
        self.0.write_all(&request.concat())?;
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        if reply[..4] != SIMPLE_REPLY.to_be_bytes() || reply[4..8] != [0; 4] {
            return Err(std::io::Error::other("it fails"));
        }
        let read = std::io::copy(&mut (&mut self.0).take(length.into()), &mut std::io::sink())?;
        if read == u64::from(length) { Ok(()) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
    }
}
