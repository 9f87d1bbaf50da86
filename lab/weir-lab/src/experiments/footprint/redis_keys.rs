//! Keys of a redis-server of which most are deleted at random. Values are 16 to 511 bytes, keys about 10.

use crate::harness::prelude::*;

/// Commands sent together.
const PIPELINE: usize = 500;
/// One key in so many stays.
pub const KEEP: usize = 16;

/// What a key is called.
pub fn name_of(key: usize) -> Vec<u8> {
    format!("key:{key}").into_bytes()
}

/// A key's value, `len` bytes long.
pub fn value(key: usize, len: usize) -> Vec<u8> {
    vec![b'a' + (key % 26) as u8; len]
}

/// Sends a command for each key; the bytes of what was answered.
pub fn send(client: &mut Client, keys: &[usize], add: impl Fn(&mut Pipeline, usize)) -> Result<usize> {
    let mut bytes = 0;
    for keys in keys.chunks(PIPELINE) {
        let mut batch = Pipeline::default();
        keys.iter().for_each(|&key| add(&mut batch, key));
        bytes += client.send(&batch)?;
    }
    Ok(bytes)
}

/// Sets the keys; the lengths of their values.
pub fn fill(client: &mut Client, keys: usize) -> Result<Vec<usize>> {
    let mut random = Random::new(0x5eed, 0);
    let lengths: Vec<usize> = (0..keys).map(|_| 16 + random.below(496)).collect();
    let all: Vec<usize> = (0..keys).collect();
    send(client, &all, |batch, key| batch.add(&[b"SET", &name_of(key), &value(key, lengths[key])]))?;
    Ok(lengths)
}

/// Deletes all keys but one in [`KEEP`], in a random order; those that are left.
pub fn thin(client: &mut Client, keys: usize) -> Result<Vec<usize>> {
    let mut random = Random::new(0x5eed, 1);
    let (left, mut gone): (Vec<usize>, Vec<usize>) = (0..keys).partition(|_| random.below(KEEP) == 0);
    for i in (1..gone.len()).rev() {
        gone.swap(i, random.below(i + 1));
    }
    send(client, &gone, |batch, key| batch.add(&[b"DEL", &name_of(key)]))?;
    Ok(left)
}

/// Reads the keys that are left, and fails where a byte of one is lost.
pub fn check(client: &mut Client, left: &[usize], lengths: &[usize]) -> Result<()> {
    let live: usize = left.iter().map(|&key| lengths[key]).sum();
    let read = send(client, left, |batch, key| batch.add(&[b"GET", &name_of(key)]))?;
    ensure!(read == live, "{read} bytes are left of {live}");
    Ok(())
}
