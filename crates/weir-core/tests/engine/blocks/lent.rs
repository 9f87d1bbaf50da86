//! Blocks that are lent to a CPU: a pair of `malloc` and `free` without the table, and what is not lost by that.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use weir_core::base::invalid_free::InvalidFree::DoubleFree;
use weir_core::base::units::PAGE;
use weir_core::platform::Diagnostics;
use weir_core::telemetry::trace::Kind;

use crate::blocks::mapped::{MIB, Part, Peaks, random};
use crate::fake::{Call, run_on};

const LEN: usize = 6 * MIB;

/// A block in use that is lent to the current CPU, of which `touched` bytes were touched.
fn lent(peaks: &mut Peaks, touched: usize) -> Part {
    for _ in 0..64 {
        let before = allocations(peaks);
        let mut part = peaks.alloc(LEN);
        peaks.touch(&mut part, touched);
        if allocations(peaks) == before {
            return part;
        }
        peaks.free(part);
    }
    panic!("no block is lent");
}

/// Allocations that the table has counted.
fn allocations(peaks: &Peaks) -> u64 {
    peaks.heap.platform().stats().large_allocs.load(Relaxed)
}

fn frees(peaks: &Peaks) -> u64 {
    peaks.heap.platform().stats().free_misses.load(Relaxed)
}

fn free_wrongly(peaks: &Peaks, addr: *mut u8) {
    // SAFETY: it is not: that is what is tested. The engine must not touch what is not this caller's.
    unsafe { peaks.heap.free(addr) };
    assert_eq!(peaks.heap.platform().take_misuses(), [(DoubleFree, addr as usize)]);
}

/// A block that has been as it is for long is the table's once in 256 frees, which may need a look then.
#[test]
fn pairs_on_a_cpu_do_not_ask_the_table() {
    for touched in [0, PAGE, LEN] {
        let mut peaks = Peaks::new();
        let (allocated, freed, mut pairs) = (allocations(&peaks), frees(&peaks), 0);
        // Pairs until the table is asked for the block.
        let mut until_asked = |peaks: &mut Peaks| {
            let (before, first) = (allocations(peaks), pairs);
            while allocations(peaks) == before {
                let mut part = peaks.alloc(LEN);
                peaks.touch(&mut part, touched);
                peaks.free(part);
                pairs += 1;
            }
            pairs - first
        };
        (0..64).for_each(|_| _ = until_asked(&mut peaks));
        assert_eq!(until_asked(&mut peaks), 256, "{touched} bytes are touched");
        assert_eq!(peaks.heap.audit().unwrap().mapped, 0);
        peaks.heap.figures().publish();
        let counted = (allocations(&peaks) - allocated, frees(&peaks) - freed);
        assert_eq!(counted, (pairs, pairs), "each is counted in the end");
    }
}

#[test]
fn a_block_freed_twice_is_named_on_each_cpu() {
    for (first, second) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        run_on(0);
        let mut peaks = Peaks::new();
        let addr = lent(&mut peaks, 0).addr;
        run_on(first);
        // SAFETY: the block is the test's.
        unsafe { peaks.heap.free(addr) };
        assert!(!peaks.heap.is_block(addr as usize), "freed on CPU {first}");
        run_on(second);
        free_wrongly(&peaks, addr);
        assert_eq!(peaks.heap.audit().unwrap().mapped, 0);
    }
}

#[test]
fn a_block_freed_on_another_cpu_is_handed_out_there() {
    let mut peaks = Peaks::new();
    for cpu in 1..40 {
        let part = lent(&mut peaks, 0);
        let addr = part.addr;
        run_on(cpu);
        peaks.free(part);
        let part = peaks.alloc(LEN);
        assert_eq!(part.addr, addr, "CPU {cpu}");
        peaks.free(part);
    }
    assert_eq!(peaks.heap.audit().unwrap().mapped, 0);
}

/// A block that is free on one CPU is for another block's allocation on another CPU as any that is kept.
#[test]
fn what_is_free_on_a_cpu_is_not_mapped_again_for_another() {
    let mut peaks = Peaks::new();
    let part = lent(&mut peaks, LEN);
    let addr = part.addr;
    peaks.free(part);
    run_on(1);
    let part = peaks.alloc(LEN);
    assert_eq!(part.addr, addr);
    peaks.free(part);
    peaks.check("one block");
}

#[test]
fn reclaim_has_what_is_free_on_a_cpu() {
    for touched in [0, LEN] {
        let mut peaks = Peaks::new();
        let before = peaks.heap.platform().resident_blocks();
        let part = lent(&mut peaks, touched);
        peaks.free(part);
        assert_eq!(peaks.heap.figures().mapped_count(), 0);
        peaks.heap.purge();
        assert_eq!(peaks.heap.platform().stats().mapped_bytes.load(Relaxed), 0);
        assert_eq!(peaks.heap.platform().resident_blocks(), before, "{touched} bytes touched");
    }
}

/// Ends windows as the background thread does, until it would sleep.
fn rest(peaks: &Peaks) {
    while peaks.heap.reclaim().balance_calm() {}
}

/// A program that freed its block after the heap came to rest, and does nothing more.
#[test]
fn what_is_free_on_a_cpu_is_given_back_at_rest() {
    let mut peaks = Peaks::new();
    let before = peaks.heap.platform().resident_blocks();
    let part = lent(&mut peaks, LEN);
    rest(&peaks);
    peaks.free(part);
    rest(&peaks);
    assert_eq!(peaks.heap.platform().resident_blocks(), before);
}

/// What the trace, the count of batches and their times tell is one thing.
#[test]
fn a_batch_of_blocks_is_counted_as_any_other() {
    let mut peaks = Peaks::new();
    let part = lent(&mut peaks, LEN);
    peaks.free(part);
    rest(&peaks);
    let stats = peaks.heap.platform().stats();
    let recorded = stats.trace.recorded();
    assert!((0..recorded).filter_map(|n| stats.trace.read(n)).any(|event| event.kind == Some(Kind::Mapped)));
    let timed: u64 = stats.release_times.counts.iter().map(|count| count.load(Relaxed)).sum();
    assert_eq!((stats.reports.load(Relaxed), timed), (recorded, recorded));
}

/// The background thread sleeps, and is woken by what is freed. A block of which little was touched may be full by then.
#[test]
fn the_first_free_after_rest_is_looked_at() {
    for is_lent in [true, false] {
        let mut peaks = Peaks::new();
        let mut part = lent(&mut peaks, PAGE);
        rest(&peaks);
        peaks.touch(&mut part, LEN);
        run_on(usize::from(!is_lent));
        peaks.heap.platform().take_looks();
        peaks.free(part);
        assert!(!peaks.heap.platform().take_looks().is_empty(), "on its CPU: {is_lent}");
        run_on(0);
    }
}

#[test]
fn pairs_on_a_cpu_are_no_rest() {
    let mut peaks = Peaks::new();
    let mut part = lent(&mut peaks, LEN);
    for _ in 0..20 {
        for _ in 0..10 {
            peaks.free(part);
            part = peaks.alloc(LEN);
            peaks.touch(&mut part, LEN);
        }
        assert!(peaks.heap.reclaim().balance_calm(), "the balancer would sleep");
    }
    peaks.free(part);
}

#[test]
fn the_last_figures_of_a_process_know_what_is_free_on_a_cpu() {
    let mut peaks = Peaks::new();
    let part = lent(&mut peaks, LEN);
    peaks.free(part);
    peaks.heap.figures().publish_counts();
    let stats = peaks.heap.platform().stats();
    assert_eq!((stats.live_bytes.load(Relaxed), stats.mapped_bytes.load(Relaxed)), (0, 0));
    assert_eq!(allocations(&peaks), frees(&peaks));
}

/// Once a block was not as it was expected, none is freed without a look.
#[test]
fn a_surprise_ends_loans() {
    let mut peaks = Peaks::new();
    let mut part = lent(&mut peaks, PAGE);
    let other = lent(&mut peaks, PAGE).addr;
    // SAFETY: inside the block.
    unsafe { other.write_bytes(1, LEN) };
    run_on(1);
    // SAFETY: the block is the test's.
    unsafe { peaks.heap.free(other) };
    run_on(0);
    peaks.touch(&mut part, LEN);
    peaks.heap.platform().take_looks();
    peaks.free(part);
    assert!(!peaks.heap.platform().take_looks().is_empty());
}

#[test]
fn under_a_hard_limit_each_free_is_looked_at() {
    let mut peaks = Peaks::new();
    let mut part = lent(&mut peaks, PAGE);
    peaks.heap.platform().tunables().hard_limit.set((64 * MIB) as u64);
    for _ in 0..8 {
        peaks.free(part);
        assert!(!peaks.heap.platform().take_looks().is_empty());
        part = peaks.alloc(LEN);
        peaks.touch(&mut part, PAGE);
    }
    peaks.free(part);
}

#[test]
fn a_lent_block_grows_and_shrinks_as_any() {
    let mut peaks = Peaks::new();
    let mut part = lent(&mut peaks, LEN);
    // SAFETY: inside the block.
    unsafe { part.addr.add(PAGE).write(7) };
    peaks.realloc(&mut part, 3 * LEN);
    // SAFETY: inside the block.
    unsafe {
        assert_eq!(part.addr.add(PAGE).read(), 7);
        part.addr.add(3 * LEN - 1).write(1);
        assert!(peaks.heap.usable_size(part.addr) >= 3 * LEN);
    }
    assert_eq!(peaks.heap.audit().unwrap().mapped, 1);
    peaks.free(part);
    assert_eq!((peaks.heap.audit().unwrap().mapped, peaks.heap.platform().take_misuses()), (0, vec![]));
}

#[test]
fn zeroed_memory_of_a_lent_block_is_zero_and_is_looked_at() {
    for touched in [PAGE, LEN] {
        let mut peaks = Peaks::new();
        let part = lent(&mut peaks, touched);
        // SAFETY: inside the block.
        unsafe { part.addr.write_bytes(0xaa, touched) };
        peaks.free(part);
        let block = peaks.heap.alloc_zeroed(LEN);
        // SAFETY: the block is the test's, and has so many bytes.
        unsafe {
            assert!((0..LEN).step_by(PAGE / 2).all(|at| block.add(at).read() == 0), "{touched} bytes were touched");
            block.write_bytes(1, LEN);
            peaks.heap.free(block);
        }
        let usage = peaks.heap.figures().usage();
        let resident = peaks.heap.platform().resident_blocks();
        assert!(resident <= usage.idle + LEN / 8, "{resident} bytes are resident, and {usage:?}");
    }
}

/// A block that the system does not give again is unmapped, and another takes its place.
#[test]
fn a_lent_block_that_cannot_be_renewed_gives_way() {
    let mut peaks = Peaks::new();
    let part = lent(&mut peaks, 0);
    peaks.free(part);
    peaks.heap.platform().fail(Call::Renew, u64::MAX);
    let part = peaks.alloc(LEN);
    peaks.heap.platform().fail_nothing();
    assert_eq!(peaks.heap.audit().unwrap().mapped, 1);
    peaks.free(part);
    assert_eq!(peaks.heap.audit().unwrap().mapped, 0);
}

/// More blocks than a CPU may have, of other lengths, freed in another order.
#[test]
fn of_many_blocks_none_is_lost() {
    let mut peaks = Peaks::new();
    for round in 0..200_usize {
        let parts: Vec<Part> = (0..7).map(|i| peaks.alloc(LEN + (round * i % 3) * MIB)).collect();
        let mut addrs: Vec<usize> = parts.iter().map(|part| part.addr as usize).collect();
        addrs.sort_unstable();
        assert!(addrs.windows(2).all(|pair| pair[0] + LEN <= pair[1]), "two blocks are at one place");
        for (i, part) in parts.into_iter().enumerate() {
            run_on((round + i) % 3);
            peaks.free(part);
        }
    }
    assert_eq!(peaks.heap.platform().take_misuses(), []);
    assert_eq!(peaks.heap.audit().unwrap().mapped, 0);
    peaks.heap.purge();
    assert_eq!(peaks.heap.platform().stats().mapped_bytes.load(Relaxed), 0);
}

/// Blocks go through all threads' hands, while others resize them, ask the table and reclaim.
#[test]
fn threads_hand_blocks_to_each_other() {
    let peaks = Peaks::new();
    let slots: [AtomicUsize; 6] = Default::default();
    std::thread::scope(|scope| {
        for thread in 1..5_u8 {
            let (heap, slots) = (&peaks.heap, &slots);
            scope.spawn(move || {
                let mut state = 42 + u64::from(thread);
                for round in 0..1_500_usize {
                    let r = random(&mut state);
                    run_on(r % 3 * 17);
                    let (len, is_zeroed) = (LEN + (r >> 8) % 3 * MIB, (r >> 20).is_multiple_of(8));
                    let block = if is_zeroed { heap.alloc_zeroed(len) } else { heap.alloc(len) };
                    // SAFETY: the block is this thread's until it is in a slot, and what is taken out of one is.
                    unsafe {
                        let ends = [0, len / 2, len - 1];
                        ends.iter().for_each(|&at| assert!(!is_zeroed || block.add(at).read() == 0));
                        ends.iter().for_each(|&at| block.add(at).write(thread));
                        std::thread::yield_now();
                        let more = if (r >> 24).is_multiple_of(16) { len + (r >> 30) % 4 * MIB } else { len };
                        let block = if more > len { heap.realloc(block, more) } else { block };
                        ends.iter().for_each(|&at| assert_eq!(block.add(at).read(), thread));
                        assert!(heap.usable_size(block) >= more);
                        run_on((r >> 40) % 3 * 17);
                        heap.free(slots[(r >> 44) % slots.len()].swap(block as usize, AcqRel) as *mut u8);
                    }
                    match round % 500 {
                        0 => _ = heap.purge(),
                        1 => _ = heap.reclaim().balance_calm(),
                        _ => {}
                    }
                }
            });
        }
    });
    // SAFETY: what is in a slot is a block, or null.
    slots.into_iter().for_each(|slot| unsafe { peaks.heap.free(slot.into_inner() as *mut u8) });
    assert_eq!(peaks.heap.platform().take_misuses(), []);
    assert_eq!(peaks.heap.audit().unwrap().mapped, 0);
    peaks.heap.purge();
    peaks.heap.figures().publish();
    assert_eq!(peaks.heap.platform().stats().mapped_bytes.load(Relaxed), 0);
    assert_eq!(allocations(&peaks), frees(&peaks), "each allocation was freed");
}
