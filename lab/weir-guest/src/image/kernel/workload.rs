//! The guest's work. It allocates and touches memory in blocks of many sizes between others that stay in use, frees
//! it, and lets the engine give it back. It does so once by waiting, as an idle machine does, and once under
//! pressure.

use core::ptr::{self, null_mut};

use weir_core::base::cause::Cause;
use weir_core::base::level::Level;
use weir_core::base::run::Run;
use weir_core::base::units::{PAGE, REPORT_ORDER};
use weir_core::platform::Diagnostics;
use weir_guest::reporter::Counters;
use weir_guest::settings::Settings;
use weir_guest::zero::is_zero;

use super::console::{self, say};
use super::start::HEAP;
use super::{clock, ending};

/// Sizes of the blocks: four of object caches, three of runs of pages, one mapped on its own.
const SIZES: [usize; 8] = [512, 4000, 9000, 32 << 10, 160 << 10, 1 << 20, 3 << 20, 6 << 20];
/// Bytes allocated of one size before it is the next one's turn.
const TURN: usize = 8 << 20;
/// From this size on, blocks come with the promise that they are zero, and the promise is checked.
const CHECKED_ZERO: usize = 160 << 10;
/// Longest time that an idle machine is waited for, ns.
const PATIENCE: u64 = 20_000_000_000;

/// At the start of each block.
struct Block {
    next: *mut Block,
    size: usize,
    seed: u64,
}

/// Blocks in use, linked through themselves.
struct Blocks {
    first: *mut Block,
    bytes: usize,
    /// All of each block is written, not only a word of each page.
    filled: bool,
}

/// Runs the workload; `false` if anything was not as it has to be.
pub fn run(settings: &Settings) -> bool {
    let (touch, keep) = ((settings.touch << 20) as usize, (settings.keep << 20) as usize);
    let mut wrong = 0;
    // What stays lies before, between and behind what goes.
    let kept_before = allocate(keep / 3, true, &mut wrong);
    let first = allocate(touch / 2, false, &mut wrong);
    let kept_between = allocate(keep / 3, true, &mut wrong);
    let second = allocate(touch - touch / 2, false, &mut wrong);
    let kept_behind = allocate(keep / 3, true, &mut wrong);
    let kept = [kept_before, kept_between, kept_behind];
    wrong += round("calm", settings, [first, second], wait_for_calm);
    wrong += report_checked("calm", &kept);

    let first = allocate(touch / 2, false, &mut wrong);
    let second = allocate(touch - touch / 2, false, &mut wrong);
    wrong += round("pressure", settings, [first, second], || {
        HEAP.reclaim().balance_pressure(Level::Severe, Cause::Pressure);
    });
    wrong += report_checked("pressure", &kept);
    if let Err(fault) = HEAP.audit() {
        say!("audit=\"{}\" at={}", fault.what, fault.at);
        wrong += 1;
    }
    wrong == 0
}

/// Frees `blocks`, has their memory given back, and says what that took. Returns how much was wrong.
fn round(name: &str, settings: &Settings, blocks: [Blocks; 2], give_back: impl FnOnce()) -> usize {
    let bytes = blocks[0].bytes + blocks[1].bytes;
    let before = HEAP.platform().counters();
    phase(settings, format_args!("phase=touched round={name} bytes={bytes}"));
    let wrong = blocks.into_iter().map(free).sum();
    let freed = clock::now();
    say!("phase=freed round={name} bytes={bytes}");
    let begin = clock::counter();
    give_back();
    let spent = clock::counter() - begin;
    let after = HEAP.platform().counters();
    say_costs(name, &before, &after, freed, spent);
    phase(settings, format_args!("phase=returned round={name}"));
    wrong
}

fn phase(settings: &Settings, what: core::fmt::Arguments) {
    say!("{what}");
    if settings.step != 0 {
        console::read();
    }
}

/// Ends calm windows, one after another, until the engine has nothing more to do: what a machine does that is idle.
fn wait_for_calm() {
    if !HEAP.platform().take_notice() {
        return;
    }
    let begin = clock::now();
    let window = HEAP.platform().tunables().idle_ms.get() * 1_000_000;
    loop {
        let end = clock::now() + window;
        while clock::now() < end {
            core::hint::spin_loop();
        }
        if !HEAP.reclaim().balance_calm() || clock::now() - begin > PATIENCE {
            return;
        }
    }
}

fn say_costs(name: &str, before: &Counters, after: &Counters, freed: u64, spent: u64) {
    let bytes = after.bytes - before.bytes;
    let of_gib = |amount: u64| (u128::from(amount) << 30).checked_div(bytes.into()).unwrap_or(0);
    let cycles = |ns: u64| ns * clock::khz() / 1_000_000;
    let (fill, wait) = (after.fill_ns - before.fill_ns, after.wait_ns - before.wait_ns);
    say!(
        "cost round={name} reported_bytes={bytes} block_order={REPORT_ORDER} requests={} entries={} refused_runs={} \
         return_ns={} given_back_cycles={spent} fill_ns={fill} wait_ns={wait} report_ns_per_gib={} \
         report_cycles_per_gib={} fill_cycles_per_gib={} wait_cycles_per_gib={}",
        after.requests - before.requests,
        after.entries - before.entries,
        after.refused - before.refused,
        if bytes > 0 { after.last.saturating_sub(freed) } else { 0 },
        of_gib(fill + wait),
        of_gib(cycles(fill + wait)),
        of_gib(cycles(fill)),
        of_gib(cycles(wait)),
    );
    if let Some(why) = HEAP.platform().failure() {
        say!("reporting=ended why=\"{why}\"");
    }
}

fn report_checked(name: &str, kept: &[Blocks]) -> usize {
    let wrong = kept.iter().map(check).sum();
    say!("checked round={name} kept_bytes={} wrong_blocks={wrong}", kept.iter().map(|k| k.bytes).sum::<usize>());
    wrong
}

// ---- blocks ----------------------------------------------------------------------------------------------------

/// Allocates `bytes`, all sizes in turn; `filled`: writes all of it, else a word of each page.
fn allocate(bytes: usize, filled: bool, wrong: &mut usize) -> Blocks {
    let mut blocks = Blocks { first: null_mut(), bytes: 0, filled };
    let turn = TURN.min(bytes.div_ceil(SIZES.len()));
    let mut which = 0;
    let mut left_of_turn = turn;
    while blocks.bytes < bytes {
        let size = SIZES[which % SIZES.len()];
        let block = if size >= CHECKED_ZERO { HEAP.alloc_zeroed(size) } else { HEAP.alloc(size) };
        if block.is_null() {
            say!("error=\"out of memory after {} bytes: give the guest more, or touch less\"", blocks.bytes);
            ending::exit(ending::End::Bad);
        }
        // SAFETY: a fresh block, of whole pages where it is that large.
        if size >= CHECKED_ZERO && !unsafe { is_zero(Run { addr: block as usize, len: size / PAGE * PAGE }) } {
            *wrong += 1;
        }
        let block = block.cast::<Block>();
        // SAFETY: a fresh block, aligned to 16, longer than its head.
        unsafe { block.write(Block { next: blocks.first, size, seed: block as u64 ^ clock::counter() << 32 }) };
        for word in words(block, filled) {
            // SAFETY: inside the block, behind its head.
            unsafe { ptr::write_volatile(word.0, word.1) };
        }
        blocks.first = block;
        blocks.bytes += size;
        left_of_turn = left_of_turn.saturating_sub(size);
        if left_of_turn == 0 {
            (which, left_of_turn) = (which + 1, turn);
        }
    }
    blocks
}

/// The words of a block that are written, and what belongs there: all behind its head, or the last of each page.
fn words(block: *mut Block, all: bool) -> impl Iterator<Item = (*mut u64, u64)> {
    // SAFETY: the block is in use and begins with its head.
    let (size, seed) = unsafe { ((*block).size, (*block).seed) };
    let (first, step) = if all { (size_of::<Block>(), 8) } else { (size.min(PAGE) - 8, PAGE) };
    (first..size - 7).step_by(step).map(move |at| {
        let word = (block as usize + at) as *mut u64;
        (word, seed.rotate_left(at as u32 % 63) ^ at as u64)
    })
}

/// How many blocks do not hold what was written to them.
fn check(blocks: &Blocks) -> usize {
    let mut wrong = 0;
    let mut block = blocks.first;
    while !block.is_null() {
        // SAFETY: inside a block in use.
        wrong += usize::from(!words(block, blocks.filled).all(|(at, value)| unsafe { at.read_volatile() } == value));
        // SAFETY: as above.
        block = unsafe { (*block).next };
    }
    wrong
}

/// Checks blocks and frees them; returns how many were wrong.
fn free(blocks: Blocks) -> usize {
    let wrong = check(&blocks);
    let mut block = blocks.first;
    while !block.is_null() {
        // SAFETY: a block in use, given up here.
        unsafe {
            let next = (*block).next;
            HEAP.free(block.cast());
            block = next;
        }
    }
    wrong
}
