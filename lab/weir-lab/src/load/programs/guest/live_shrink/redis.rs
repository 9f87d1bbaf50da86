//! redis-server on a socket, with the data that stays in its database 0 and the peak in database 1.

use super::subject::Subject;
use crate::base::guest::{Started, environment};
use crate::base::prelude::*;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_lab::common::resp::SERVER;

const SOCKET: &str = "/redis.sock";
const START_LIMIT: Duration = Duration::from_secs(20);
const PIPELINE: usize = 100;
const REQUESTS: usize = 2_000;

pub struct Redis {
    server: Started,
    data: usize,
    keys: usize,
    random: Random,
    value: Vec<u8>,
    client: Client,
}

impl Redis {
    pub fn start(group: &Group, data: usize) -> Result<Redis> {
        let mut command = Command::new("/redis-server");
        command.args(SERVER).arg(SOCKET).envs(environment()).stdin(Stdio::null()).stdout(Stdio::null());
        let _ = std::fs::remove_file(SOCKET);
        let server = Started::new(group, &mut command)?;
        let client = Client::connect(Path::new(SOCKET), START_LIMIT)?;
        let (random, value) = (Random::new(SEED, 0), vec![b'w'; 16 << 10]);
        Ok(Redis { server, data, keys: 0, random, value, client })
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

impl Subject for Redis {
    fn load(&mut self) -> Result<()> {
        self.keys = self.client.fill("", self.data, PIPELINE, size_of)?;
        Ok(())
    }

    fn peak(&mut self) -> Result<()> {
        let (mut needed, mut key) = (0, 0);
        while needed < 3 * self.data {
            let mut pipeline = Pipeline::default();
            pipeline.add(&[b"SELECT", b"1"]);
            for _ in 0..PIPELINE {
                needed += self.set(&mut pipeline, key);
                key += 1;
            }
            pipeline.add(&[b"SELECT", b"0"]);
            let replaced = self.random.below(self.keys);
            self.set(&mut pipeline, replaced);
            self.client.send(&pipeline)?;
        }
        let mut end = Pipeline::default();
        [&[&b"SELECT"[..], b"1"], &[b"FLUSHDB", b"SYNC"], &[b"SELECT", b"0"]]
            .into_iter()
            .for_each(|words| end.add(words));
        self.client.send(&end).map(drop)
    }

    fn work(&mut self) -> Result<()> {
        ensure!(matches!(self.server.0.try_wait(), Ok(None)), "redis has ended");
        for _ in 0..REQUESTS / PIPELINE {
            let (mut pipeline, mut expected) = (Pipeline::default(), 0);
            for _ in 0..PIPELINE {
                let key = self.random.below(self.keys);
                pipeline.add(&[b"GET", key.to_string().as_bytes()]);
                expected += size_of(key);
            }
            ensure!(self.client.send(&pipeline)? == expected, "redis answered with other values than it was given");
        }
        Ok(())
    }
}
