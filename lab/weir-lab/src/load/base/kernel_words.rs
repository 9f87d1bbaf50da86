//! Memory straight from the kernel, for what a program keeps beside the heap that is measured.

/// An array of words that no allocator knows of.
pub struct KernelWords {
    at: *mut usize,
    capacity: usize,
    count: usize,
}

impl KernelWords {
    /// Room for so many.
    pub fn new(capacity: usize) -> Result<KernelWords, String> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let len = capacity.max(1) * size_of::<usize>();
        // SAFETY: a fresh mapping, chosen by the kernel.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, kind, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(format!("cannot map {len} bytes: {}", std::io::Error::last_os_error()));
        }
        Ok(KernelWords { at: at.cast(), capacity: capacity.max(1), count: 0 })
    }

    /// Adds a word. One for which there is no room is left out.
    pub fn push(&mut self, word: usize) {
        if self.count == self.capacity {
            return;
        }
        // SAFETY: the place is below the capacity, so inside the mapping, which is this value's alone.
        unsafe { self.at.add(self.count).write(word) };
        self.count += 1;
    }

    /// All words that were added.
    pub fn words(&mut self) -> &mut [usize] {
        // SAFETY: that many were written, and the mapping is borrowed as long as this value is.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.count) }
    }
}

impl Drop for KernelWords {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, of that length; nothing points into it any more.
        unsafe { libc::munmap(self.at.cast(), self.capacity * size_of::<usize>()) };
    }
}
