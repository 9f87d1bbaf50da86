//! Files without a name in any file system, which are gone with their last descriptor and mapping.

use crate::os::syscall::{Errno, Result, check, syscall2, syscall3};
use core::ffi::CStr;
use linux_raw_sys::general as sys;

/// A new file of `len` bytes of zeros that its owner alone may open, and only to read it.
pub fn create(name: &CStr, len: usize) -> Result<i32> {
    const OWNER_READS: usize = 0o400;
    let file = create_empty(name)?;
    // SAFETY: both change the new file only.
    let made = unsafe {
        check(syscall2(sys::__NR_fchmod, file as usize, OWNER_READS))
            .and_then(|_| check(syscall2(sys::__NR_ftruncate, file as usize, len)))
    };
    if made.is_err() {
        let _ = crate::os::fd::close(file);
    }
    made.map(|_| file)
}

fn create_empty(name: &CStr) -> Result<i32> {
    let flags = sys::MFD_CLOEXEC | sys::MFD_ALLOW_SEALING;
    // SAFETY: the kernel reads the C string; a new descriptor is made.
    let with = |flags: u32| check(unsafe { syscall2(sys::__NR_memfd_create, name.as_ptr() as usize, flags as usize) });
    // A system may refuse a memfd that could be executed. Kernels before 6.3 do not have the flag.
    let made = match with(flags | sys::MFD_NOEXEC_SEAL) {
        Err(Errno::EINVAL) => with(flags),
        other => other,
    };
    made.map(|fd| fd as i32)
}

/// Makes it impossible to change the file's length, and to write to it other than by mappings that are there.
pub fn seal(file: i32) -> Result<()> {
    let seals = sys::F_SEAL_SHRINK | sys::F_SEAL_GROW | sys::F_SEAL_SEAL;
    let add = |seals: u32| {
        // SAFETY: touches no memory of ours.
        check(unsafe { syscall3(sys::__NR_fcntl, file as usize, sys::F_ADD_SEALS as usize, seals as usize) }).map(drop)
    };
    // The last seal is there from Linux 5.1 on.
    match add(seals | sys::F_SEAL_FUTURE_WRITE) {
        Err(Errno::EINVAL) => add(seals),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::fd;

    #[test]
    fn a_sealed_file_keeps_its_length_and_its_contents() {
        let file = create(c"test", 8192).unwrap();
        seal(file).unwrap();
        let found = fd::fstat(file).unwrap();
        assert_eq!((found.size, found.links, found.mode), (8192, 0, 0o400));
        assert_eq!(fd::write(file, b"x"), Err(Errno::EPERM));
        // SAFETY: touches no memory.
        let cut = check(unsafe { syscall2(sys::__NR_ftruncate, file as usize, 0) });
        assert_eq!(cut, Err(Errno::EPERM));
        fd::close(file).unwrap();
    }
}
