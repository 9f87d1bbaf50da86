//! Malloc as a C program calls it, and random numbers that call it not at all.

use std::hint::black_box;

/// Bytes of a page (x86-64).
pub const PAGE: usize = 4096;

/// A block from malloc. Owns nothing: a workload decides when and by whom it is freed, as a C program does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Block(*mut u8);

// SAFETY: a malloc'd block may be used and freed by any thread; workloads hand each block to one thread at a time.
unsafe impl Send for Block {}
// SAFETY: a shared `&Block` only lets the pointer be copied.
unsafe impl Sync for Block {}

impl Block {
    /// No block: freeing it does nothing.
    pub const NONE: Block = Block(std::ptr::null_mut());

    /// `malloc(size)`, its first byte written, as any use would.
    #[inline]
    pub fn new(size: usize) -> Block {
        // SAFETY: malloc takes any size.
        let raw = unsafe { libc::malloc(size) };
        Block::checked(raw, size)
    }

    /// `calloc(1, size)`.
    #[inline]
    pub fn zeroed(size: usize) -> Block {
        // SAFETY: calloc takes any size.
        let raw = unsafe { libc::calloc(1, size) };
        Block::checked(raw, size)
    }

    /// A block aligned to 64 bytes, or to a page from a page on.
    pub fn aligned(size: usize) -> Block {
        let align = if size < PAGE { 64 } else { PAGE };
        // SAFETY: the alignment is a power of two, and the size a multiple of it.
        Block::checked(unsafe { libc::aligned_alloc(align, size.next_multiple_of(align)) }, size)
    }

    /// A block from elsewhere (operator new), checked alike.
    #[inline]
    pub fn checked(raw: *mut libc::c_void, size: usize) -> Block {
        // The optimiser removes a malloc whose result it can see thrown away.
        let raw = black_box(raw).cast::<u8>();
        if raw.is_null() {
            out_of_memory(size);
        }
        if size > 0 {
            // SAFETY: `raw` has `size` > 0 writable bytes.
            unsafe { raw.write_volatile(size as u8) };
        }
        Block(raw)
    }

    /// `realloc`: the block's new place.
    #[inline]
    pub fn resized(self, size: usize) -> Block {
        // SAFETY: the block came from malloc and is given up here for the one that realloc answers.
        let raw = unsafe { libc::realloc(self.0.cast(), size) };
        Block::checked(raw, size)
    }

    /// `free`.
    #[inline]
    pub fn free(self) {
        // SAFETY: the block came from malloc, and workloads free each block once.
        unsafe { libc::free(black_box(self.0).cast()) };
    }

    /// Whether this is [`Block::NONE`].
    #[inline]
    pub fn is_none(self) -> bool {
        self.0.is_null()
    }

    /// The block's address, for callers that use the memory itself.
    #[inline]
    pub fn address(self) -> *mut u8 {
        self.0
    }

    /// A block seen again from its address.
    #[inline]
    pub fn from_address(address: *mut u8) -> Block {
        Block(address)
    }

    /// Writes every byte.
    pub fn fill(self, size: usize) {
        // SAFETY: the caller's block has `size` bytes, and no other thread uses it meanwhile.
        unsafe { std::ptr::write_bytes(self.0, 0x5a, size) };
        black_box(self.0);
    }

    /// Writes one byte in every page.
    pub fn touch_pages(self, size: usize) {
        for offset in (0..size).step_by(PAGE) {
            // SAFETY: offset < size, which the caller's block has.
            unsafe { self.0.add(offset).write_volatile(1) };
        }
    }

    /// Writes the byte at `offset`.
    #[inline]
    pub fn touch(self, offset: usize) {
        // SAFETY: callers stay inside the size they allocated.
        unsafe { self.0.add(offset).write_volatile(1) };
    }

    /// The word at `index`, counted in 8 bytes.
    #[inline]
    pub fn word(self, index: usize) -> u64 {
        // SAFETY: callers stay inside the size they allocated, and wrote the word before.
        unsafe { self.0.cast::<u64>().add(index).read_unaligned() }
    }

    /// Sets the word at `index`, counted in 8 bytes.
    #[inline]
    pub fn set_word(self, index: usize, value: u64) {
        // SAFETY: callers stay inside the size they allocated.
        unsafe { self.0.cast::<u64>().add(index).write_unaligned(value) };
    }
}

#[cold]
fn out_of_memory(size: usize) -> ! {
    eprintln!("weir-lab-load: malloc({size}) failed");
    std::process::exit(3);
}

/// Marsaglia's xorshift64*: a few cycles a number, no state elsewhere.
pub struct Random(u64);

impl Random {
    /// Starts a stream that is the same for every allocator and another for every thread.
    pub fn new(seed: u64, thread: usize) -> Random {
        let mut random = Random((seed ^ (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
        random.next();
        random
    }

    /// The next 64 random bits.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    #[inline]
    pub fn below(&mut self, limit: usize) -> usize {
        (((self.next() >> 32) * limit as u64) >> 32) as usize
    }

    /// A number from `low` to `high`, both included.
    #[inline]
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// A number from 2^`low` to 2^`high`, every doubling as likely as every other (log-uniform), even inside each.
    #[inline]
    pub fn doublings(&mut self, low: u32, high: u32) -> usize {
        let base = 1usize << (low + self.below((high - low) as usize) as u32);
        base + self.below(base)
    }
}
