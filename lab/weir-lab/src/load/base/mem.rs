//! Malloc as a C program calls it, and random numbers that call it not at all.

use std::hint::black_box;
pub use weir_lab::common::random::Random;

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
