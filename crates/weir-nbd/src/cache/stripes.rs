//! Which blocks are being written, so that a read that fetches an older content does not put it into the cache.
//!
//! A read misses, fetches block B from the file, and inserts it. Meanwhile a write of B may begin, reach the file and
//! end: then what was fetched is old, and stays in the cache for ever. So a write counts itself at B's stripe before it
//! removes B and touches the file, and raises the stripe's generation. A read notes the generation before it fetches. It
//! inserts only if no write is there and none has come since, all under the stripe's lock. Two writes of B may reach the
//! file in either order. So the last to end inserts only if no other has begun since it began.
//!
//! Blocks share stripes: that costs an insertion now and then, and never a wrong one.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Stripes of the whole server. Blocks that follow each other have different ones.
pub const STRIPES: usize = 1 << 14;

#[derive(Default)]
struct Stripe {
    writers: u32,
    generation: u32,
}

/// The stripes of all blocks.
pub struct Stripes(Box<[Mutex<Stripe>]>);

impl Default for Stripes {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Mutex::default()).collect())
    }
}

impl Stripes {
    /// The stripe of a block of a file.
    pub fn of(&self, file: u32, block: u64) -> usize {
        (u64::from(file).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(block)) as usize % STRIPES
    }

    fn lock(&self, stripe: usize) -> MutexGuard<'_, Stripe> {
        self.0[stripe].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write begins. `under_lock` removes what is cached.
    pub fn begin_write<T>(&self, stripe: usize, under_lock: impl FnOnce() -> T) -> (u32, T) {
        let mut held = self.lock(stripe);
        held.writers += 1;
        held.generation = held.generation.wrapping_add(1);
        (held.generation, under_lock())
    }

    /// Ends a write. `insert` runs if it was alone from its beginning on.
    pub fn end_write(&self, stripe: usize, generation: u32, insert: impl FnOnce()) {
        let mut held = self.lock(stripe);
        held.writers -= 1;
        if held.writers == 0 && held.generation == generation {
            insert();
        }
    }

    /// A change that is one step, `change`, under the lock: a block becomes dirty, or has been written back. `change`
    /// gets what a read would have noted before, and returns `None` if it changed nothing.
    ///
    /// Then the generation stays. Otherwise two writes to parts of one block, each of which fetches it and fails because
    /// of the other's attempt, would go on for ever.
    pub fn change<T>(&self, stripe: usize, change: impl FnOnce(Option<u32>) -> Option<T>) -> Option<T> {
        let mut held = self.lock(stripe);
        let result = change((held.writers == 0).then_some(held.generation))?;
        held.generation = held.generation.wrapping_add(1);
        Some(result)
    }

    /// The generation that a read has to note before it fetches; none while a write is there.
    pub fn begin_read(&self, stripe: usize) -> Option<u32> {
        let held = self.lock(stripe);
        (held.writers == 0).then_some(held.generation)
    }

    /// Ends a read that has what it fetched: `insert` runs if that is not older than what was written. `insert` runs if
    /// it is not older than what was written.
    pub fn end_read(&self, stripe: usize, generation: Option<u32>, insert: impl FnOnce()) {
        let held = self.lock(stripe);
        if held.writers == 0 && Some(held.generation) == generation {
            insert();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(stripes: &Stripes, noted: Option<u32>) -> bool {
        let mut is_inserted = false;
        stripes.end_read(7, noted, || is_inserted = true);
        is_inserted
    }

    #[test]
    fn a_read_that_a_write_overtook_inserts_nothing() {
        let stripes = Stripes::default();
        let before = stripes.begin_read(7);
        assert!(reads(&stripes, before));
        let (write, ()) = stripes.begin_write(7, || {});
        let during = stripes.begin_read(7);
        assert!(!reads(&stripes, before) && !reads(&stripes, during), "the write is under way");
        stripes.end_write(7, write, || {});
        assert!(!reads(&stripes, before) && !reads(&stripes, during), "they may have fetched what was before it");
        let after = stripes.begin_read(7);
        assert!(reads(&stripes, after));
    }

    #[test]
    fn of_two_writes_at_a_time_none_is_inserted() {
        let stripes = Stripes::default();
        let (first, ()) = stripes.begin_write(7, || {});
        let (second, ()) = stripes.begin_write(7, || {});
        let unwanted = || panic!("which of them the file has is not known");
        stripes.end_write(7, second, unwanted);
        stripes.end_write(7, first, unwanted);
        let (third, ()) = stripes.begin_write(7, || {});
        let mut is_inserted = false;
        stripes.end_write(7, third, || is_inserted = true);
        assert!(is_inserted);
    }

    #[test]
    fn neighbours_have_stripes_of_their_own() {
        let stripes = Stripes::default();
        let all: std::collections::HashSet<_> = (5..5 + STRIPES as u64).map(|block| stripes.of(3, block)).collect();
        assert_eq!(all.len(), STRIPES);
    }
}
