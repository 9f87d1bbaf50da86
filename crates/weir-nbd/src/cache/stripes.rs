//! Which blocks are being written, so that a read that fetches an older content does not put it into the cache.
//!
//! A read misses, fetches block B from the file, and inserts it. Meanwhile a write of B may begin, reach the file and
//! end: then what was fetched is old, and stays in the cache for ever. So a write counts itself at B's stripe before it
//! removes B and touches the file, and raises the stripe's generation. A read notes the generation before it fetches. It
//! inserts only if no write is there and none has come since, all under the stripe's lock. Two writes of B may reach the
//! file in either order, whichever of them begins or ends first. So a write inserts only if it was alone from its
//! beginning to its end: one that begins, and one that ends before others, raise the generation.
//!
//! **Dirty blocks.** Where writes are answered before they reach the file, the generation says when the *file* may have
//! changed. A block that becomes dirty, and later writes to it, change nothing in the file and raise nothing. What is
//! fetched meanwhile is what the file has, and older than the dirty block. So under the stripe's lock nothing is put in
//! whose block is dirty: a dirty block is never in the cache. Without that rule the following happened. A read fetched
//! the old B and put it in while B was dirty. B was written to the file, and taken out of the dirty blocks to be put in.
//! Between these two steps another read found no dirty B, and the old one in the cache.
//!
//! A block stops being dirty by a write to the file, which raises the generation, or by a trim or zeroing, which has
//! counted itself. So a read that began before B became dirty, and ends after B is clean again, finds another generation.
//! If writes to dirty blocks raised it as well, one block that is written often would outdate each fetch of the others
//! of its stripe. A write to a part of one of those would fetch its block again and again.
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

    /// Ends a write. `insert` runs if it was alone from its beginning to its end.
    pub fn end_write(&self, stripe: usize, generation: u32, insert: impl FnOnce()) {
        let mut held = self.lock(stripe);
        held.writers -= 1;
        if held.writers > 0 {
            // The file may get this write after those under way: none of them inserts.
            held.generation = held.generation.wrapping_add(1);
        } else if held.generation == generation {
            insert();
        }
    }

    /// One step under the lock that leaves the file as it is. It gets what a read would note now.
    pub fn step<T>(&self, stripe: usize, step: impl FnOnce(Option<u32>) -> T) -> T {
        let held = self.lock(stripe);
        step((held.writers == 0).then_some(held.generation))
    }

    /// One step under the lock after the file has changed: reads that began before it insert nothing. The step gets what
    /// a read would have noted before.
    pub fn change(&self, stripe: usize, step: impl FnOnce(Option<u32>)) {
        let mut held = self.lock(stripe);
        step((held.writers == 0).then_some(held.generation));
        held.generation = held.generation.wrapping_add(1);
    }

    /// The generation that a read has to note before it fetches; none while a write is there.
    pub fn begin_read(&self, stripe: usize) -> Option<u32> {
        self.step(stripe, |generation| generation)
    }

    /// Ends a read that has what it fetched: `insert` runs if that is not older than what was written to the file.
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
        // Each order of the ends.
        let (early, ()) = stripes.begin_write(7, || {});
        let (late, ()) = stripes.begin_write(7, || {});
        stripes.end_write(7, early, unwanted);
        stripes.end_write(7, late, unwanted);
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
