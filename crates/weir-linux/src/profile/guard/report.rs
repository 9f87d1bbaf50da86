//! Message on an error in a guarded block: what was done, to which block, and the stacks of its allocation and its free.
//!
//! Each frame is the object's name and the offset in it that `addr2line -e OBJECT` takes, as addresses differ in each run.

use weir_core::base::invalid_free::InvalidFree;

use super::slots::{Slot, Trace};
use crate::messages::guarded::{self, Access};
use crate::platform::statics::TUNABLES;
use crate::profile::unwind::objects;

/// A wrong free. The process ends, where the setting says so.
#[cold]
pub(super) fn wrong_free(what: InvalidFree, at: usize, slot: Option<&Slot>) {
    guarded::wrong_free(what, at);
    if let Some(slot) = slot {
        guarded::block(slot.block(), slot.size());
        stacks(slot);
    }
    end();
}

/// Bytes beside a block were written while it was in use; `wrong` is the nearest of them. It is seen at the free.
#[cold]
pub(super) fn written_beside(slot: &Slot, wrong: usize) {
    let (block, size) = (slot.block(), slot.size());
    guarded::written_beside(wrong, distance(wrong, block, size));
    guarded::block(block, size);
    stacks(slot);
    end();
}

/// A wrong access, which the hardware refused. What happens then is the program's handler's to say, or the kernel's.
pub(super) fn fault(slot: Option<&Slot>, at: usize, is_write: Option<bool>) {
    let Some(slot) = slot else { return guarded::fault_nowhere(at, is_write) };
    let (block, size) = (slot.block(), slot.size());
    let access = if slot.freed.thread() != 0 { Access::AfterFree } else { Access::Outside };
    guarded::fault(access, at, is_write, distance(at, block, size));
    guarded::block(block, size);
    stacks(slot);
}

/// How far an address is from a block. Below 0: before it. From 1 on: behind its end (1 is the first byte there). 0: inside.
fn distance(at: usize, block: usize, size: usize) -> isize {
    if at < block { -((block - at) as isize) } else { (at - block + 1).saturating_sub(size) as isize }
}

fn stacks(slot: &Slot) {
    trace("allocated", &slot.allocated);
    trace("freed", &slot.freed);
}

fn trace(what: &str, trace: &Trace) {
    if trace.thread() == 0 {
        return;
    }
    guarded::stack(what, trace.thread());
    for frame in trace.frames() {
        let named = objects::place(frame);
        guarded::frame(frame, named.as_ref().map(|place| (place.name, place.offset)));
    }
}

fn end() {
    if TUNABLES.abort_on_misuse.get() != 0 {
        guarded::end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_from_the_edges() {
        assert_eq!([99, 100, 109, 110, 117].map(|at| distance(at, 100, 10)), [-1, 0, 0, 1, 8]);
        assert_eq!(distance(100, 100, 0), 1);
    }
}
