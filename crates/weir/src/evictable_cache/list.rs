//! A list of entries, linked both ways by their headers, oldest first. It is used under the lock of the entries' shard.

use core::ptr::NonNull;

use super::header::Header;

/// The list. An entry is in one list at most.
#[derive(Debug)]
pub struct List {
    first: Option<NonNull<Header>>,
    last: Option<NonNull<Header>>,
}

impl List {
    /// Empty.
    pub const fn new() -> Self {
        Self { first: None, last: None }
    }

    /// Appends an entry that is in no list.
    ///
    /// # Safety
    /// The entry and those in the list are valid, and the caller holds the lock of their shard.
    pub unsafe fn push(&mut self, entry: NonNull<Header>) {
        // SAFETY: the caller's promise.
        unsafe {
            entry.as_ref().links.set([self.last, None]);
            match self.last {
                Some(last) => last.as_ref().links.set([last.as_ref().links.get()[0], Some(entry)]),
                None => self.first = Some(entry),
            }
        }
        self.last = Some(entry);
    }

    /// Takes an entry out.
    ///
    /// # Safety
    /// It is in this list, all entries of which are valid, and the caller holds the lock of their shard.
    pub unsafe fn remove(&mut self, entry: NonNull<Header>) {
        // SAFETY: the caller's promise; the neighbours are in the list.
        unsafe {
            let [previous, next] = entry.as_ref().links.get();
            match previous {
                Some(previous) => previous.as_ref().links.set([previous.as_ref().links.get()[0], next]),
                None => self.first = next,
            }
            match next {
                Some(next) => next.as_ref().links.set([previous, next.as_ref().links.get()[1]]),
                None => self.last = previous,
            }
            entry.as_ref().links.set([None; 2]);
        }
    }

    /// The entries, oldest first. One may be taken out once the iterator has passed it.
    pub fn iter(&self) -> impl Iterator<Item = NonNull<Header>> + use<> {
        let mut at = self.first;
        core::iter::from_fn(move || {
            let entry = at?;
            // SAFETY: entries in the list are valid, and the lock is held as long as the list is borrowed or its owner
            // goes on holding it.
            at = unsafe { entry.as_ref() }.links.get()[1];
            Some(entry)
        })
    }

    /// True without entries.
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}
