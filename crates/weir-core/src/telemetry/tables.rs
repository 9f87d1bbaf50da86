//! Tables inside the page of statistics: a row for each cache, zone, evictable cache and point of the cost curve.
//!
//! One thread writes a table now and then, whole; other processes read it whenever they like, by copying its bytes in ascending
//! order. They must not take for a table a copy that a write changed half-way. So the writer counts `begun` up, then writes the
//! rows, then sets `ended` to the same. A reader has the whole table if both are equal in its copy. `ended` lies before the rows
//! and `begun` behind them. So the copy has `ended` first and `begun` last, the reverse of the order in which they were written.
//! If both lay before the rows, a write that begins after the copy has passed them would go unseen.
//!
//! The kernel promises no order for its copy of another process's memory. A reader would take a mixed table for a whole one if that
//! copy loaded `ended` later than some row, and the rest of a write fell in between. It would show wrong figures once.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
    fence,
};

use super::name::{NAME_WORDS, Name};
use crate::base::cost::Cost;
use crate::base::run_class;

/// The most words that a row has.
const MOST_WORDS: usize = 28;

/// A line of a table.
pub trait Row: Copy {
    /// Length of a line in words of 8 bytes, at most 28.
    const WORDS: usize;
    /// Stores the line's words.
    fn store(&self, words: &mut [u64]);
    /// The row of these words, of which there are [`Row::WORDS`].
    fn load(words: &[u64]) -> Self;
}

macro_rules! rows {
    ($($(#[$what:meta])* $Row:ident { $($(#[$field_what:meta])* $field:ident,)* })*) => {$(
        $(#[$what])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $Row {
            /// Name.
            pub name: Name,
            $($(#[$field_what])* pub $field: u64,)*
        }

        impl $Row {
            /// Name, as far as it is text.
            pub fn name(&self) -> &str {
                self.name.text()
            }

            /// All figures by name, in this order.
            pub fn fields(&self) -> [(&'static str, u64); <Self as Row>::WORDS - NAME_WORDS] {
                [$((stringify!($field), self.$field),)*]
            }
        }

        impl Row for $Row {
            const WORDS: usize = NAME_WORDS + [$(stringify!($field),)*].len();

            fn store(&self, words: &mut [u64]) {
                let all = self.name.words().into_iter().chain([$(self.$field,)*]);
                words.iter_mut().zip(all).for_each(|(word, value)| *word = value);
            }

            fn load(words: &[u64]) -> Self {
                let mut words = words.iter().copied();
                let mut next = || words.next().unwrap_or(0);
                Self { name: Name::of_words(core::array::from_fn(|_| next())), $($field: next(),)* }
            }
        }

        const _: () = assert!(<$Row as Row>::WORDS <= MOST_WORDS);
    )*};
}

impl CacheRow {
    /// Whether it is of a run class: it has neither depots nor slabs.
    pub fn is_of_runs(&self) -> bool {
        let nth = (self.number as usize).checked_sub(run_class::FIRST.index());
        nth.is_some_and(|nth| nth < run_class::RUN_CLASSES)
    }
}

rows! {
    /// An object cache: malloc's size classes, and those of the program. The words are those of
    /// [`CacheStats`](crate::caches::figures::CacheStats).
    CacheRow {
        /// Number.
        number,
        /// Object size, bytes.
        size,
        /// Objects that may be out at a time; the largest number: any.
        limit,
        /// Objects in use.
        used,
        /// Free objects in CPUs' buckets.
        free_cpu,
        /// Free objects in the depot.
        free_depot,
        /// Free objects in slabs.
        free_slab,
        /// Bytes of its slabs.
        slab_bytes,
        /// Allocations that succeeded.
        requests,
        /// Allocations that failed.
        failures,
        /// Visits to the depot.
        visits,
        /// Allocations that found bucket and depot empty.
        misses,
        /// Objects that were freed on another CPU than they were allocated on, at least. It falls where their flow turns round.
        crossed,
        /// Objects that a CPU's bucket may hold now; 0: it has none.
        bucket,
        /// Objects of the depot that will be wanted again.
        working_set,
        /// Time since an allocation last found the depot empty, ns; 0 where there is no depot.
        stale_ns,
        /// Trims that took something.
        trims,
        /// Bytes that trims took from the depot.
        trimmed_bytes,
        /// Drains that took something.
        drains,
        /// Bytes that drains took from CPUs' buckets.
        drained_bytes,
    }

    /// A zone of a node, or one of the program's own.
    ZoneRow {
        /// Bytes of address space in it, resident or not.
        bytes,
        /// Bytes handed out.
        used,
        /// Bytes that are free and resident.
        idle,
        /// Capacity, by the tightest limit; 0: nothing limits it, or nothing is known.
        capacity,
        /// Bytes that may still become resident below the limit.
        free,
        /// The watermarks of that: below it an allocation reclaims by itself.
        min,
        /// Below it the balancer wakes.
        low,
        /// Above it caches may grow.
        high,
    }

    /// An evictable cache of the program's.
    EvictableRow {
        /// Weight of the entries, bytes.
        bytes,
        /// Entries.
        entries,
        /// Bytes that the cache may hold now.
        target_bytes,
        /// Bytes that the cache may hold at most.
        max_bytes,
        /// Look-ups that found their key.
        hits,
        /// Look-ups that did not.
        misses,
        /// Values put in.
        insertions,
        /// Entries evicted because another needed room.
        evicted_for_room,
        /// Entries evicted because memory was short.
        evicted_for_pressure,
        /// Bytes that pressure on the heap may take.
        spare_bytes,
        /// Hits in 1,000 seconds, at the rate of late.
        hit_rate,
        /// Values put in, in 1,000 seconds, whose key had been evicted not long before: hits that more room would have brought.
        return_rate,
        /// Mean time to compute a value that was missed, ns. Where none was timed, what the program said; 0: not known.
        miss_ns,
    }
}

/// A point of the cost curve: without a name.
impl Row for Cost {
    const WORDS: usize = 4;

    fn store(&self, words: &mut [u64]) {
        words.copy_from_slice(&[self.bytes, self.once_ns, self.second_ns, self.lost_ppm]);
    }

    fn load(words: &[u64]) -> Self {
        Self { bytes: words[0], once_ns: words[1], second_ns: words[2], lost_ppm: words[3] }
    }
}

/// Rows for up to `N` of something, in `WORDS` words: `N * R::WORDS`.
#[repr(C)]
pub struct Table<const WORDS: usize> {
    /// The write that ended last.
    ended: AtomicU64,
    /// Rows that are there.
    count: AtomicU64,
    /// Rows that found no place.
    left_out: AtomicU64,
    words: [AtomicU64; WORDS],
    /// The write that began last.
    begun: AtomicU64,
}

impl<const WORDS: usize> Table<WORDS> {
    /// Writes all rows anew: those that `rows` adds by the function that it is given. One thread at a time.
    pub fn write<R: Row>(&self, rows: impl FnOnce(&mut dyn FnMut(R))) {
        let number = self.begun.load(Relaxed).wrapping_add(1);
        self.begun.store(number, Relaxed);
        // What follows is not seen before `begun`.
        fence(Release);
        let (mut count, mut left_out) = (0, 0);
        rows(&mut |row| {
            let Some(place) = self.words.get(count * R::WORDS..(count + 1) * R::WORDS) else {
                left_out += 1;
                return;
            };
            let mut words = [0; MOST_WORDS];
            row.store(&mut words[..R::WORDS]);
            place.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
            count += 1;
        });
        self.count.store(count as u64, Relaxed);
        self.left_out.store(left_out, Relaxed);
        self.ended.store(number, Release);
    }

    /// The rows, and how many found no place; `None`: this is the copy of a table that was being written.
    pub fn read<R: Row>(&self) -> Option<(impl Iterator<Item = R>, u64)> {
        let ended = self.ended.load(Acquire);
        if ended != self.begun.load(Acquire) {
            return None;
        }
        let count = (self.count.load(Relaxed) as usize).min(WORDS / R::WORDS);
        let row = |place: &[AtomicU64]| {
            let mut words = [0; MOST_WORDS];
            words.iter_mut().zip(place).for_each(|(word, from)| *word = from.load(Relaxed));
            R::load(&words[..R::WORDS])
        };
        Some((self.words[..count * R::WORDS].chunks_exact(R::WORDS).map(row), self.left_out.load(Relaxed)))
    }

    /// A copy of a table that another thread or process may be writing, to be read.
    pub(crate) fn copied(&self) -> Self {
        let copy = |word: &AtomicU64| AtomicU64::new(word.load(Relaxed));
        let ended = AtomicU64::new(self.ended.load(Acquire));
        let (count, left_out) = (copy(&self.count), copy(&self.left_out));
        let words = core::array::from_fn(|at| copy(&self.words[at]));
        // What was read above is not newer than `begun`.
        fence(Acquire);
        Self { ended, count, left_out, words, begun: copy(&self.begun) }
    }

    /// Forgets all rows: for a forked child.
    pub(crate) fn clear(&self) {
        self.count.store(0, Relaxed);
        self.left_out.store(0, Relaxed);
        // The parent's thread may have been writing.
        self.ended.store(self.begun.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    type Zones = Table<{ 2 * ZoneRow::WORDS }>;

    fn empty() -> Zones {
        // SAFETY: atomic integers alone, for which zeros are a value.
        unsafe { core::mem::zeroed() }
    }

    fn row(number: u64) -> ZoneRow {
        ZoneRow { name: Name::new("NORMAL é".as_bytes()), bytes: number, high: !number, ..ZoneRow::default() }
    }

    #[test]
    fn rows_are_read_as_they_were_written_and_those_without_a_place_are_counted() {
        let table = empty();
        assert_eq!(table.read::<ZoneRow>().map(|(rows, left_out)| (rows.count(), left_out)), Some((0, 0)));
        table.write(|add| (1..=5).map(row).for_each(add));
        let (rows, left_out) = table.read::<ZoneRow>().unwrap();
        let rows: Vec<_> = rows.collect();
        assert_eq!((rows.as_slice(), left_out), (&[row(1), row(2)][..], 3));
        assert_eq!((rows[0].name(), rows[1].fields()[7]), ("NORMAL é", ("high", !2)));
        table.write(|add| add(row(9)));
        assert_eq!(table.read::<ZoneRow>().unwrap().0.collect::<Vec<_>>(), [row(9)]);
        table.clear();
        assert_eq!(table.read::<ZoneRow>().unwrap().0.count(), 0);
    }

    #[test]
    fn a_copy_of_a_table_that_is_being_written_is_known() {
        let table = empty();
        table.write(|add| {
            assert!(table.read::<ZoneRow>().is_none());
            add(row(1));
            assert!(table.read::<ZoneRow>().is_none());
        });
        assert!(table.read::<ZoneRow>().is_some());
        // A fork while the parent's thread writes.
        table.begun.fetch_add(1, Relaxed);
        assert!(table.read::<ZoneRow>().is_none());
        table.clear();
        assert!(table.read::<ZoneRow>().is_some());
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        let table = empty();
        table.count.store(u64::MAX, Relaxed);
        table.words.iter().for_each(|word| word.store(u64::MAX, Relaxed));
        let (rows, _) = table.read::<ZoneRow>().unwrap();
        assert_eq!(rows.map(|row| row.name().len()).collect::<Vec<_>>(), [0, 0]);
    }
}
