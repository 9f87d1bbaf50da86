//! redis-server on a socket, with the data that stays in its database 0 and the peak in database 1.

use super::subject::{Data, Subject};
use crate::base::cgroup_v2::Group;
use crate::base::mem::Random;
use crate::base::userland::environment;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVER: &str = "/redis-server";
const SOCKET: &str = "/redis.sock";
const SEED: u64 = 0x5eed;
const START_LIMIT: Duration = Duration::from_secs(20);
const REPLY_LIMIT: Duration = Duration::from_secs(120);
/// Commands that are sent before their replies are read.
const PIPELINE: usize = 100;
/// Requests of a window.
const REQUESTS: usize = 2_000;

/// The server and one connection.
pub struct Redis {
    server: Child,
    stream: BufReader<UnixStream>,
    data: Data,
    keys: usize,
    random: Random,
    value: Vec<u8>,
}

/// Commands under construction, and how many they are.
#[derive(Default)]
struct Pipeline(Vec<u8>, usize);

impl Redis {
    /// Starts it and waits until it listens.
    pub fn start(group: &Group, data: Data) -> Result<Redis, String> {
        let mut command = Command::new(SERVER);
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"]);
        command.args(["--unixsocket", SOCKET]).envs(environment()).stdin(Stdio::null()).stdout(Stdio::null());
        let _ = std::fs::remove_file(SOCKET);
        let mut server = group.start(&mut command)?;
        let deadline = Instant::now() + START_LIMIT;
        let stream = loop {
            match UnixStream::connect(SOCKET) {
                Ok(stream) => break stream,
                Err(why) if Instant::now() > deadline => {
                    let _ = server.kill();
                    let _ = server.wait();
                    return Err(format!("redis-server does not listen: {why}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        stream.set_read_timeout(Some(REPLY_LIMIT)).map_err(|why| why.to_string())?;
        let value = vec![b'w'; 16 << 10];
        Ok(Redis { server, stream: BufReader::new(stream), data, keys: 0, random: Random::new(SEED, 0), value })
    }

    /// Sends the commands and reads a reply to each; the bytes of the values among them.
    fn send(&mut self, pipeline: Pipeline) -> Result<usize, String> {
        let broken = |why: std::io::Error| format!("redis is gone: {why}");
        self.stream.get_mut().write_all(&pipeline.0).map_err(broken)?;
        let mut bytes = 0;
        for _ in 0..pipeline.1 {
            let mut line = String::new();
            if self.stream.read_line(&mut line).map_err(broken)? == 0 {
                return Err("redis has ended".into());
            }
            match line.as_bytes()[0] {
                b'+' | b':' => {}
                b'$' => {
                    let length: usize = line[1..].trim().parse().map_err(|_| format!("redis lost a value: {line}"))?;
                    let mut value = vec![0; length + 2];
                    self.stream.read_exact(&mut value).map_err(broken)?;
                    bytes += length;
                }
                _ => return Err(format!("redis answered {}", line.trim())),
            }
        }
        Ok(bytes)
    }

    fn set(&self, pipeline: &mut Pipeline, key: usize) -> usize {
        let size = size_of(key);
        pipeline.add(&[b"SET", key.to_string().as_bytes(), &self.value[..size]]);
        size
    }
}

/// 16 B to 16 KiB, each doubling as likely as every other.
fn size_of(key: usize) -> usize {
    Random::new(SEED, key + 1).doublings(4, 14)
}

impl Pipeline {
    fn add(&mut self, words: &[&[u8]]) {
        self.0.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.0.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.0.extend_from_slice(word);
            self.0.extend_from_slice(b"\r\n");
        }
        self.1 += 1;
    }
}

impl Subject for Redis {
    fn load(&mut self) -> Result<(), String> {
        let mut held = 0;
        while held < self.data.bytes as usize {
            let mut pipeline = Pipeline::default();
            for _ in 0..PIPELINE {
                held += self.set(&mut pipeline, self.keys);
                self.keys += 1;
            }
            self.send(pipeline)?;
        }
        Ok(())
    }

    fn peak(&mut self) -> Result<(), String> {
        let (mut needed, mut key) = (0, 0);
        while needed < 3 * self.data.bytes as usize {
            let mut pipeline = Pipeline::default();
            pipeline.add(&[b"SELECT", b"1"]);
            for _ in 0..PIPELINE {
                needed += self.set(&mut pipeline, key);
                key += 1;
            }
            pipeline.add(&[b"SELECT", b"0"]);
            let replaced = self.random.below(self.keys);
            self.set(&mut pipeline, replaced);
            self.send(pipeline)?;
        }
        let mut end = Pipeline::default();
        end.add(&[b"SELECT", b"1"]);
        end.add(&[b"FLUSHDB", b"SYNC"]);
        end.add(&[b"SELECT", b"0"]);
        self.send(end).map(drop)
    }

    fn work(&mut self) -> Result<f64, String> {
        let start = Instant::now();
        for _ in 0..REQUESTS / PIPELINE {
            let (mut pipeline, mut expected) = (Pipeline::default(), 0);
            for _ in 0..PIPELINE {
                let key = self.random.below(self.keys);
                pipeline.add(&[b"GET", key.to_string().as_bytes()]);
                expected += size_of(key);
            }
            if self.send(pipeline)? != expected {
                return Err("redis answered with other values than it was given".into());
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
