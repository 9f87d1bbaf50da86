//! Larson and Krishnan's server (1998). Each thread replaces random blocks of an array, then ends and passes the
//! array to a new thread. So blocks are freed by others than those that allocated them, and threads come and go.

use crate::base::prelude::*;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCKS_A_THREAD: usize = 5_000;
const ROUNDS_A_GENERATION: usize = 10;
const SMALLEST: usize = 8;
const LARGEST: usize = 1_000;

/// How blocks are got and given back.
#[derive(Clone, Copy)]
struct Calls {
    new: unsafe extern "C" fn(usize) -> *mut libc::c_void,
    delete: unsafe extern "C" fn(*mut libc::c_void, usize),
}

unsafe extern "C" fn free_of_any_size(block: *mut libc::c_void, _size: usize) {
    // SAFETY: the caller's block came from malloc.
    unsafe { libc::free(block) }
}

/// By malloc and free.
pub fn plain(run: &Run) -> u64 {
    server(run, Calls { new: libc::malloc, delete: free_of_any_size })
}

/// By C++'s operators, delete being told the size.
pub fn sized(run: &Run) -> u64 {
    let (new, delete) = (cxx(c"_Znwm"), cxx(c"_ZdlPvm"));
    // SAFETY: these are `operator new(unsigned long)` and `operator delete(void*, unsigned long)` by their mangled
    // names, with the types of `Calls` on every 64-bit Linux ABI.
    let calls = unsafe {
        Calls {
            new: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(usize) -> *mut libc::c_void>(new),
            delete: std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn(*mut libc::c_void, usize)>(delete),
        }
    };
    server(run, calls)
}

/// The preloaded operator, or the C++ runtime's, which calls malloc and free.
fn cxx(name: &CStr) -> *mut libc::c_void {
    // SAFETY: both names are C strings; the handle is never closed.
    let found = unsafe {
        let preloaded = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        if preloaded.is_null() {
            let runtime = libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL);
            if runtime.is_null() { runtime } else { libc::dlsym(runtime, name.as_ptr()) }
        } else {
            preloaded
        }
    };
    if found.is_null() {
        eprintln!("weir-lab-load: larson-sized needs the C++ runtime (apt-get install libstdc++6)");
        std::process::exit(2);
    }
    found
}

type Slot = (Block, usize);

fn server(run: &Run, calls: Calls) -> u64 {
    run.until_time_is_over(|index, over| {
        let mut slots = vec![(Block::NONE, 0); BLOCKS_A_THREAD];
        let mut random = Random::new(run.seed, index);
        for slot in &mut slots {
            replace(slot, &mut random, calls);
        }
        let mut done = 0;
        while !over.load(Ordering::Relaxed) {
            let (mut kept, mut rng) = (std::mem::take(&mut slots), random);
            // The generation's end is the next one's beginning: a thread for each, one alive at a time.
            (slots, random, done) = std::thread::scope(|scope| {
                let generation = scope.spawn(move || {
                    let ops = done + generation(&mut kept, &mut rng, over, calls);
                    (kept, rng, ops)
                });
                generation.join().unwrap_or_else(|_| std::process::exit(3))
            });
        }
        for (block, size) in slots {
            // SAFETY: each slot holds a live block of `calls.new` with its size.
            unsafe { (calls.delete)(block.address().cast(), size) };
        }
        done
    })
}

fn generation(slots: &mut [Slot], random: &mut Random, over: &AtomicBool, calls: Calls) -> u64 {
    let mut done = 0;
    for _ in 0..ROUNDS_A_GENERATION {
        for _ in 0..slots.len() {
            let chosen = random.below(slots.len());
            replace(&mut slots[chosen], random, calls);
        }
        done += slots.len() as u64;
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    done
}

#[inline]
fn replace(slot: &mut Slot, random: &mut Random, calls: Calls) {
    let (old, old_size) = *slot;
    if !old.is_none() {
        // SAFETY: the slot holds a live block of `calls.new` of that size, and is overwritten below.
        unsafe { (calls.delete)(old.address().cast(), old_size) };
    }
    let size = random.between(SMALLEST, LARGEST);
    // SAFETY: both ways of allocating take any size.
    *slot = (Block::checked(unsafe { (calls.new)(size) }, size), size);
}
