//! redis-server on a socket, and as much of its protocol as filling, reading and flushing it needs.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Arguments of a redis-server with nothing on disk, which listens on the socket that comes next.
pub const SERVER: [&str; 9] =
    ["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning", "--unixsocket"];

/// Connects to a server's socket as soon as it listens.
pub fn connect(socket: &Path, limit: Duration) -> Result<UnixStream> {
    let deadline = Instant::now() + limit;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => {
                stream.set_read_timeout(Some(Duration::from_secs(120)))?;
                return Ok(stream);
            }
            Err(why) if Instant::now() > deadline => {
                return Err(why).with_context(|| format!("nothing listens on {}", socket.display()));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Commands that are sent together.
#[derive(Default)]
pub struct Pipeline(Vec<u8>, usize);

impl Pipeline {
    /// Adds a command.
    pub fn add(&mut self, words: &[&[u8]]) {
        self.0.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.0.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.0.extend_from_slice(word);
            self.0.extend_from_slice(b"\r\n");
        }
        self.1 += 1;
    }
}

/// A connection to a redis-server.
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects as soon as the server listens.
    pub fn connect(socket: &Path, limit: Duration) -> Result<Client> {
        connect(socket, limit).map(|stream| Client(BufReader::new(stream)))
    }

    /// Sends commands, and reads the answers; the bytes of all values among them. An error is an answer that is one.
    pub fn send(&mut self, pipeline: &Pipeline) -> Result<usize> {
        self.0.get_mut().write_all(&pipeline.0).context("redis is gone")?;
        let mut bytes = 0;
        for _ in 0..pipeline.1 {
            let mut line = String::new();
            self.0.read_line(&mut line).context("redis is gone")?;
            match line.bytes().next() {
                Some(b'+' | b':') => {}
                Some(b'$') => {
                    let length: usize = line[1..].trim().parse().with_context(|| format!("a value is lost: {line}"))?;
                    self.0.read_exact(&mut vec![0; length + 2])?;
                    bytes += length;
                }
                _ => bail!("redis answered '{}'", line.trim()),
            }
        }
        Ok(bytes)
    }

    /// Sets keys of this prefix, from 0 on, `batch` of them together, until their values have so many bytes; how many keys.
    pub fn fill(
        &mut self,
        prefix: &str,
        bytes: usize,
        batch: usize,
        mut size: impl FnMut(usize) -> usize,
    ) -> Result<usize> {
        let (mut set, mut keys, mut value) = (0, 0, Vec::new());
        while set < bytes {
            let mut pipeline = Pipeline::default();
            for _ in 0..batch {
                let size = size(keys);
                value.resize(size, b'w');
                pipeline.add(&[b"SET", format!("{prefix}{keys}").as_bytes(), &value]);
                (keys, set) = (keys + 1, set + size);
            }
            self.send(&pipeline)?;
        }
        Ok(keys)
    }

    /// Sends one command.
    pub fn command(&mut self, words: &[&[u8]]) -> Result<()> {
        let mut pipeline = Pipeline::default();
        pipeline.add(words);
        self.send(&pipeline).map(drop)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn commands_have_the_protocols_form() {
        let mut pipeline = super::Pipeline::default();
        pipeline.add(&[b"SET", b"k", b"value"]);
        assert_eq!(pipeline.0, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n");
    }
}
