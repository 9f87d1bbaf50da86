//! E7's stream: writes a file from its beginning to its end, makes it durable, and reads it again.

use crate::base::args::{number, read_words};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::Instant;

/// `stream file=PATH bytes=N block=N times=N`: prints the time that each turn's writing and reading took.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let (mut path, mut bytes, mut block, mut times) = (String::new(), 0, 64 << 10, 1);
    read_words(args, "file, bytes, block, times", |key, value| {
        match key {
            "file" => path = value.into(),
            "bytes" => bytes = number(value)?,
            "block" => block = number(value)? as usize,
            "times" => times = number(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if path.is_empty() || bytes == 0 || block == 0 {
        return Err("stream needs file=PATH bytes=N".into());
    }
    let told = |what: &'static str| move |why: std::io::Error| format!("cannot {what} the stream's file: {why}");
    let mut buffer: Vec<u8> = (0..block).map(|at| at as u8).collect();
    let (mut write_ns, mut read_ns) = (0, 0);
    for _ in 0..times {
        let start = Instant::now();
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&path).map_err(told("make"))?;
        for _ in 0..bytes / block as u64 {
            file.write_all(&buffer).map_err(told("write"))?;
        }
        file.sync_all().map_err(told("flush"))?;
        write_ns += start.elapsed().as_nanos();
        let mut file = File::open(&path).map_err(told("open"))?;
        // SAFETY: advice on the file's own descriptor; no memory is involved. What the kernel has of it is clean.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        let start = Instant::now();
        while file.read(&mut buffer).map_err(told("read"))? > 0 {}
        read_ns += start.elapsed().as_nanos();
    }
    let all = bytes / block as u64 * block as u64 * times;
    println!("{{\"bytes\":{all},\"write_ns\":{write_ns},\"read_ns\":{read_ns}}}");
    Ok(())
}
