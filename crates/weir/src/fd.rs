//! A file descriptor that is open for as long as it is named here.

use core::marker::PhantomData;

/// A borrowed file descriptor, as `std::os::fd::BorrowedFd` is, which `core` does not have.
///
/// To and from the standard library's:
///
/// ```
/// use std::os::fd::{AsRawFd, BorrowedFd};
///
/// let file = std::fs::File::open("/dev/null")?;
/// // SAFETY: the file is open for as long as `fd` is used.
/// let fd = unsafe { weir::Fd::borrow_raw(file.as_raw_fd()) };
/// // SAFETY: the same.
/// let again = unsafe { BorrowedFd::borrow_raw(fd.as_raw()) };
/// assert_eq!(again.as_raw_fd(), file.as_raw_fd());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fd<'a>(i32, PhantomData<&'a ()>);

impl Fd<'_> {
    /// The descriptor of that number.
    ///
    /// # Safety
    /// It is open, and stays so while this is used.
    pub const unsafe fn borrow_raw(number: i32) -> Self {
        Self(number, PhantomData)
    }

    /// The descriptor's number, to poll it, for example. Not to be closed.
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}
