//! Copying objects in use to free places of other pages, while the program goes on.
//!
//! For each group a *picture* is made: a page with all objects of the group's pages at their places. Then the free places of each
//! page are filled from it. Either is done page by page, each under the lock of the slabs, which is held for one page only. Under
//! that lock the page's bitmap is as it was when the page was chosen. The program meanwhile
//!
//! - **gets an object of the page.** Objects leave a slab under that lock. An object that left before is no longer free in the
//!   bitmap, and the page is passed over. An object that leaves later is filled by then, and what the program writes to it stays.
//!   *The interleaving that this excludes*: the bitmap is read and the lock is let go. The program gets the object and writes,
//!   and the filling goes over what it wrote.
//! - **frees an object of the page.** Its copy is stale then, and of no use: free places hold anything. Therefore `calloc` writes
//!   the zeros of every object: what it had before was never known.
//! - **writes to an object in use.** No word of one is ever written here, so nothing that the program stores is lost. What is
//!   read of it may be half of what is being stored, or a word of now and one of later. Such a picture is stored in free places
//!   alone; it decides nothing, and is no address. All that follows is that the page which has the object differs from the others
//!   of its group. The kernel compares them byte for byte, once it has made them read-only, and merges those that are equal. A
//!   store that comes after that is a fault, by which the page gets memory of its own.
//!
//! *In Rust's memory model* the words are read by relaxed atomic loads. The program may store to them with ordinary ones at the
//! same time. The model calls that a race, whatever is done with the result. The race cannot be avoided, as an allocator does not
//! know its program's stores. Between two threads of machine code it is a load of some of the bytes that were ever there. So the
//! words go from the load to the store through nothing that the compiler could draw a conclusion from. They are compared only
//! with what a free place holds, and no reference to the program's objects is made.

use core::ops::Range;

use crate::platform::sync::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// Copies words of a page to a picture of the group.
pub(super) fn read(page: &[AtomicU64], words: Range<usize>, picture: &mut [u64]) {
    for (from, to) in page[words.clone()].iter().zip(&mut picture[words]) {
        *to = from.load(Relaxed);
    }
}

/// Makes words of a page as those of the picture are; those that are so already are not written, as their page may be merged.
pub(super) fn write(page: &[AtomicU64], words: Range<usize>, picture: &[u64]) {
    for (to, &from) in page[words.clone()].iter().zip(&picture[words]) {
        if to.load(Relaxed) != from {
            to.store(from, Relaxed);
        }
    }
}
