//! As much of Redis's protocol as filling and flushing a server needs.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A connection to a server on a Unix socket.
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects as soon as the server listens.
    pub fn connect(socket: &Path, limit: Duration) -> Result<Client, String> {
        let deadline = Instant::now() + limit;
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => {
                    let timeout = Some(Duration::from_secs(60));
                    stream.set_read_timeout(timeout).map_err(|why| format!("redis: {why}"))?;
                    return Ok(Client(BufReader::new(stream)));
                }
                Err(why) if Instant::now() > deadline => return Err(format!("redis-server does not listen: {why}")),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Sends commands in one go, then reads a reply to each; all must be `+OK`.
    pub fn all_ok(&mut self, commands: &[u8], count: usize) -> Result<(), String> {
        self.0.get_mut().write_all(commands).map_err(|why| format!("redis: {why}"))?;
        for _ in 0..count {
            let mut line = String::new();
            self.0.read_line(&mut line).map_err(|why| format!("redis: {why}"))?;
            if line != "+OK\r\n" {
                return Err(format!("redis answered '{}'", line.trim()));
            }
        }
        Ok(())
    }
}

/// Appends a command in the protocol's form.
pub fn command(to: &mut Vec<u8>, words: &[&[u8]]) {
    to.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        to.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn commands_have_the_protocols_form() {
        let mut bytes = Vec::new();
        super::command(&mut bytes, &[b"SET", b"k", b"value"]);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n");
    }
}
