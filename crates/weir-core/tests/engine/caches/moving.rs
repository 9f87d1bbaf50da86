//! Blocks that a program moves by itself, from sparse slabs to fuller ones.

use weir_core::base::invalid_free::InvalidFree::{DoubleFree, InteriorPointer};
use weir_core::base::units::PAGE;

use crate::fake::Fake;
use crate::held::World;
use crate::reclaim::order::calm;

/// Bytes of a size's blocks that may be resident, in percent of what is live.
const MOST_PERCENT: usize = 130;

/// A block of a program that moves its blocks: its address, its number, and how often it was moved.
struct Block {
    addr: *mut u8,
    number: u64,
    moves: usize,
}

/// A program that has blocks of one size.
struct Program {
    world: World,
    size: usize,
    blocks: Vec<Block>,
    random: u64,
}

impl Program {
    fn new(size: usize) -> Self {
        Self { world: World::new(Fake::new()), size, blocks: Vec::new(), random: 88_172_645_463_325_252 }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn fill(&self, addr: *mut u8, number: u64) {
        // SAFETY: the block is the program's, aligned to 16, and as long as a number at each end.
        unsafe {
            addr.cast::<u64>().write(number);
            addr.add(self.size - 8).cast::<u64>().write(number);
        }
    }

    fn check(&self) {
        for block in &self.blocks {
            // SAFETY: as in `fill`.
            let found =
                unsafe { (block.addr.cast::<u64>().read(), block.addr.add(self.size - 8).cast::<u64>().read()) };
            assert_eq!(found, (block.number, block.number), "another block has its place");
        }
    }

    fn alloc(&mut self, count: usize) {
        for number in 0..count as u64 {
            let addr = self.world.heap.alloc(self.size);
            self.fill(addr, number);
            self.blocks.push(Block { addr, number, moves: 0 });
        }
    }

    /// Frees all blocks but one in `keep`, at random, and puts the rest in a random order.
    fn thin(&mut self, keep: u64) {
        for block in std::mem::take(&mut self.blocks) {
            if self.random().is_multiple_of(keep) {
                self.blocks.push(block);
            } else {
                // SAFETY: allocated here, and forgotten.
                unsafe { self.world.heap.free(block.addr) };
            }
        }
        for i in (1..self.blocks.len()).rev() {
            let other = self.random() as usize % (i + 1);
            self.blocks.swap(i, other);
        }
    }

    /// Goes once over all blocks, and moves those that should be; returns how many.
    fn pass(&mut self) -> usize {
        let mut moved = 0;
        for block in &mut self.blocks {
            let heap = &self.world.heap;
            if !heap.should_move(block.addr) {
                continue;
            }
            let new = heap.alloc_to_move(block.addr);
            assert!(!new.is_null() && new != block.addr, "where nobody else allocates there is a place");
            // SAFETY: both are blocks of this size; the old one is not used any more.
            unsafe {
                new.copy_from_nonoverlapping(block.addr, self.size);
                assert!(heap.free_moved(block.addr));
            }
            (block.addr, block.moves, moved) = (new, block.moves + 1, moved + 1);
        }
        self.check();
        moved
    }

    fn rest(&self) {
        (0..20).for_each(|_| calm(&self.world));
    }

    /// Bytes that are live, and the blocks' memory beside them.
    fn live_and_resident(&self) -> (usize, usize) {
        let usage = self.world.heap.figures().usage();
        (usage.live, usage.resident() - usage.metadata)
    }
}

/// Frees all blocks before the world ends.
impl Drop for Program {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
            self.thin(u64::MAX);
        }
    }
}

#[test]
fn a_program_that_moves_what_it_is_told_to_has_little_more_than_what_is_live() {
    for (size, keep) in [(64, 16), (128, 16), (256, 16), (304, 16), (512, 20), (1024, 20), (2048, 20), (256, 4)] {
        let mut program = Program::new(size);
        program.alloc((16 << 20) / size);
        program.thin(keep);
        program.rest();
        let (live, before) = program.live_and_resident();
        let mut passes = Vec::new();
        while passes.last() != Some(&0) {
            passes.push(program.pass());
            assert!(passes.len() <= 4, "{size}: it says yes again and again: {passes:?}");
        }
        let most = program.blocks.iter().map(|block| block.moves).max();
        program.rest();
        let (_, after) = program.live_and_resident();
        println!("{size} 1/{keep}: live {live}, {before} -> {after}, passes {passes:?}, most {most:?}");
        assert!(before * 100 > live * 170, "{size}: it was not sparse: {before} for {live}");
        assert!(after * 100 <= live * MOST_PERCENT, "{size}: {after} for {live}, {before} before");
        assert!(most <= Some(2), "{size}: a block was moved {most:?} times");
    }
}

#[test]
fn a_busy_program_comes_to_an_end_too_and_its_memory_follows() {
    let mut program = Program::new(128);
    program.alloc(100_000);
    program.thin(16);
    let kept = program.blocks.len();
    for _ in 0..40 {
        program.pass();
        // As many come as go.
        program.alloc(kept / 8);
        let all = std::mem::take(&mut program.blocks);
        for (i, block) in all.into_iter().enumerate() {
            if i < kept / 8 {
                // SAFETY: allocated here, and forgotten.
                unsafe { program.world.heap.free(block.addr) };
            } else {
                program.blocks.push(block);
            }
        }
        calm(&program.world);
    }
    let last = program.pass();
    assert!(last < kept / 4, "{last} of {kept} are still moved");
    program.rest();
    let (live, after) = program.live_and_resident();
    assert!(after * 100 <= live * 150, "{after} for {live}");
}

/// Slabs of objects of 1 KiB.
const SLAB: usize = 4 * PAGE;

/// Blocks of 1 KiB in so many slabs, of each of which as many are left as `left` says.
fn slabs_with(program: &mut Program, count: usize, left: impl Fn(usize) -> usize) -> Vec<Vec<*mut u8>> {
    program.alloc(count * SLAB / program.size);
    let mut slabs = std::collections::BTreeMap::<usize, Vec<*mut u8>>::new();
    program.blocks.drain(..).for_each(|block| slabs.entry(block.addr as usize / SLAB).or_default().push(block.addr));
    let mut slabs: Vec<_> = slabs.into_values().collect();
    for (i, slab) in slabs.iter_mut().enumerate() {
        thin_slab(program, slab, left(i));
    }
    // What CPUs' buckets hold is free in no slab.
    program.world.heap.purge();
    slabs
}

/// Frees all but `left` of a slab's blocks, so that those lie on different pages.
fn thin_slab(program: &Program, slab: &mut Vec<*mut u8>, left: usize) {
    let all = std::mem::take(slab);
    let kept: Vec<_> = (0..left).map(|i| all[i * all.len() / left]).collect();
    for block in all.into_iter().filter(|block| !kept.contains(block)) {
        // SAFETY: allocated by the program, and forgotten.
        assert!(unsafe { program.world.heap.free_moved(block) });
    }
    *slab = kept;
}

fn end(program: Program, slabs: Vec<Vec<*mut u8>>) {
    // SAFETY: allocated by the program, and forgotten.
    slabs.into_iter().flatten().for_each(|block| unsafe { program.world.heap.free(block) });
}

fn slab_of(block: *mut u8) -> usize {
    block as usize / SLAB
}

#[test]
fn blocks_go_to_the_fullest_and_to_slabs_with_as_many_or_more_only() {
    for fullest in [2, 7, 13] {
        let mut program = Program::new(1024);
        let mut slabs = slabs_with(&mut program, 14, |i| match i {
            0 => 2,
            1 => 3,
            i if i == fullest => 7,
            _ => 6,
        });
        let heap = &program.world.heap;
        let to = heap.alloc_to_move(slabs[1][0]);
        assert_eq!(slab_of(to), slab_of(slabs[fullest][0]), "the fullest");
        slabs[fullest].insert(0, to);
        // The program frees what the target had.
        thin_slab(&program, &mut slabs[fullest], 1);
        let to = heap.alloc_to_move(slabs[0][0]);
        assert!(!to.is_null() && slab_of(to) != slab_of(slabs[fullest][0]), "there is one object");
        slabs[0].push(to);
        let to = heap.alloc_to_move(slabs[fullest][0]);
        assert!(!to.is_null() && slab_of(to) != slab_of(slabs[fullest][0]), "it is the target no more");
        slabs[0].push(to);
        end(program, slabs);
    }
}

#[test]
fn blocks_of_the_fullest_sparse_slab_and_those_beside_many_stay() {
    let mut program = Program::new(1024);
    let slabs = slabs_with(&mut program, 12, |i| [8, 5, 5, 5, 16, 16, 16, 16, 0, 0, 0, 0][i]);
    let heap = &program.world.heap;
    assert!(!heap.should_move(slabs[0][0]), "no slab has as many and a free place");
    assert!(heap.should_move(slabs[1][0]));
    end(program, slabs);
    // A slab that is much fuller than the mean is left alone, though there is a fuller one.
    let mut program = Program::new(1024);
    let slabs = slabs_with(&mut program, 12, |i| [12, 13, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1][i]);
    let heap = &program.world.heap;
    assert!(!heap.should_move(slabs[0][0]) && heap.should_move(slabs[2][0]));
    end(program, slabs);
}

#[test]
fn of_two_sparse_slabs_one_becomes_empty_though_it_was_the_target() {
    let mut program = Program::new(1024);
    let mut slabs = slabs_with(&mut program, 3, |i| [4, 5, 5][i]);
    let heap = &program.world.heap;
    let to = heap.alloc_to_move(slabs[0][0]);
    let (target, other) = if slab_of(to) == slab_of(slabs[1][0]) { (1, 2) } else { (2, 1) };
    assert_eq!(slab_of(to), slab_of(slabs[target][0]));
    slabs[target].insert(0, to);
    thin_slab(&program, &mut slabs[target], 2);
    thin_slab(&program, &mut slabs[0], 0);
    let to = heap.alloc_to_move(slabs[target][1]);
    assert_eq!(slab_of(to), slab_of(slabs[other][0]), "the other slab has more");
    slabs[other].push(to);
    end(program, slabs);
}

#[test]
fn what_is_dense_or_a_page_of_its_own_or_no_block_stays() {
    let mut program = Program::new(96);
    program.alloc(50_000);
    assert_eq!(program.pass(), 0, "all of it is in use");
    // One in 16 goes: less than an eighth.
    let mut i = 0;
    program.blocks.retain(|block| {
        i += 1;
        if i % 16 == 0 {
            // SAFETY: allocated here, and forgotten.
            unsafe { program.world.heap.free(block.addr) };
        }
        i % 16 != 0
    });
    program.rest();
    assert_eq!(program.pass(), 0, "little is free");
    program.thin(16);
    let heap = &program.world.heap;
    let sparse: Vec<_> = program.blocks.iter().filter(|block| heap.should_move(block.addr)).collect();
    assert!(sparse.len() * 2 > program.blocks.len());
    for block in &sparse {
        let inside = block.addr.wrapping_add(16);
        assert!(!heap.should_move(inside) && heap.alloc_to_move(inside).is_null(), "no block begins there");
    }
    let nothing = [0, 1, 8, 4096, usize::MAX, usize::MAX - 15, std::ptr::from_ref(&program.size).addr()];
    for addr in nothing.map(std::ptr::without_provenance::<u8>) {
        assert!(!heap.should_move(addr) && heap.alloc_to_move(addr).is_null());
    }
    // SAFETY: allocated here, and not used any more; then no block.
    unsafe {
        for size in [PAGE, 5000, 40_000, 1 << 20, 8 << 20] {
            let block = heap.alloc(size);
            assert!(!heap.should_move(block) && heap.alloc_to_move(block).is_null());
            heap.free(block);
            assert!(!heap.should_move(block));
        }
    }
}

#[test]
fn what_is_freed_so_goes_to_its_slab_and_a_wrong_one_is_named() {
    let world = World::new(Fake::new());
    let heap = &world.heap;
    let run = heap.alloc(100_000);
    // SAFETY: what is no object is left as it is.
    unsafe {
        assert!(!heap.free_moved(std::ptr::null_mut()));
        assert!(!heap.free_moved(run));
        heap.free(run);
    }
    let objects: Vec<_> = (0..100).map(|_| heap.alloc(48)).collect();
    let inside = objects[1].wrapping_add(16);
    // SAFETY: wrong frees are named, and nothing is done.
    unsafe {
        assert!(heap.free_moved(objects[0]) && heap.free_moved(objects[0]) && heap.free_moved(inside));
        objects[1..].iter().for_each(|&object| assert!(heap.free_moved(object)));
    }
    assert_eq!(world.fake().take_misuses(), [(DoubleFree, objects[0] as usize), (InteriorPointer, inside as usize)]);
}

#[test]
fn where_the_target_was_other_blocks_may_be() {
    const OTHER: usize = 256;
    let mut program = Program::new(128);
    program.alloc(50_000);
    program.thin(16);
    while program.pass() > 0 {}
    program.thin(u64::MAX);
    program.world.heap.purge();
    // Their pages are those that were released just now.
    let mut others: Vec<*mut u8> = (0..25_000).map(|_| program.world.heap.alloc(OTHER)).collect();
    // SAFETY: allocated just now, with so many bytes.
    others.iter().for_each(|other| unsafe { other.write_bytes(7, OTHER) });
    let mut number = 0;
    others.retain(|&other| {
        number += 1;
        if number % 2 == 0 {
            // SAFETY: allocated above; the vector forgets it.
            unsafe { program.world.heap.free(other) };
        }
        number % 2 != 0
    });
    program.alloc(50_000);
    program.thin(16);
    while program.pass() > 0 {}
    for other in others {
        // SAFETY: written above, and not used any more afterwards.
        unsafe {
            assert!(std::slice::from_raw_parts(other, OTHER).iter().all(|&byte| byte == 7));
            program.world.heap.free(other);
        }
    }
}
