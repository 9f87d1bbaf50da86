//! User ids as a user namespace shows them.

use super::fd;
use super::text::{number, words};
use core::ffi::CStr;

/// The id that stands for every user who has none in the namespace, where the kernel does not say which that is.
const OVERFLOW: u64 = 65_534;

/// Whether a user id that the kernel reported may stand for any user: those that have none in this thread's user
/// namespace are all shown as one, which may have a user of its own as well.
pub fn may_be_anyone(user: u32) -> bool {
    let overflow = read_number(c"/proc/sys/kernel/overflowuid").unwrap_or(OVERFLOW);
    u64::from(user) == overflow && !is_every_user_shown()
}

/// Whether each user has an id: in the first namespace of a system, mostly.
fn is_every_user_shown() -> bool {
    let mut buf = [0; 128];
    fd::read_file(c"/proc/thread-self/uid_map", &mut buf).is_ok_and(|map| {
        let mut numbers = words(map).map(number);
        [0, 0, u64::from(u32::MAX)].into_iter().all(|expected| numbers.next() == Some(Some(expected)))
    })
}

fn read_number(path: &CStr) -> Option<u64> {
    let mut buf = [0; 32];
    number(fd::read_file(path, &mut buf).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_id_that_stands_for_others_may_be_anyone() {
        let overflow = read_number(c"/proc/sys/kernel/overflowuid").unwrap_or(OVERFLOW) as u32;
        assert!(!may_be_anyone(0) && !may_be_anyone(overflow - 1));
        assert_eq!(may_be_anyone(overflow), !is_every_user_shown());
    }
}
