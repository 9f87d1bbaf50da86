//! Processes by parent: a process's descendants.

use crate::processes::{maps, tree};

/// Which process it is: the kernel gives a number again once its process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub pid: i32,
    /// When it was started, clock ticks since the machine was (`starttime` in proc(5)).
    pub started: u64,
}

/// A process, as far as anybody may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub pid: i32,
    /// As [`Identity::started`].
    pub started: u64,
    pub parent: i32,
    pub command: String,
    pub resident_bytes: u64,
}

/// All processes that are visible here, by number. Threads of the kernel, which have no memory, are left out.
pub fn everybody() -> Vec<Member> {
    let mut all: Vec<Member> =
        tree::numbers().into_iter().filter_map(member).filter(|it| it.resident_bytes > 0).collect();
    all.sort_unstable_by_key(|member| member.pid);
    all
}

fn member(pid: i32) -> Option<Member> {
    let stat_of = |pid| procfs::process::Process::new(pid).ok()?.stat().ok();
    let mut stat: procfs::process::Stat = stat_of(pid)?;
    // Its main thread has ended, and others may go on: it is known by one of those, as in the list of those with Weir.
    if stat.state == 'Z' {
        stat = stat_of(maps::living(pid))?;
    }
    let resident_bytes = stat.rss * procfs::page_size();
    Some(Member { pid: stat.pid, started: stat.starttime, parent: stat.ppid, command: stat.comm, resident_bytes })
}

/// The descendants of process `pid`, parents before children.
pub fn descendants(all: &[Member], pid: i32) -> Vec<&Member> {
    tree::below(all, pid, |member| (member.pid, member.parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_come_after_their_parents_and_circles_end() {
        let member = |pid, parent| Member { pid, started: 0, parent, command: String::new(), resident_bytes: 1 };
        let all =
            [member(1, 0), member(5, 2), member(2, 1), member(7, 5), member(9, 1), member(20, 21), member(21, 20)];
        let numbers = |pid| descendants(&all, pid).iter().map(|it| it.pid).collect::<Vec<_>>();
        assert_eq!((numbers(1), numbers(2), numbers(9)), (vec![2, 9, 5, 7], vec![5, 7], vec![]));
        assert_eq!(numbers(20), [21, 20]);
    }

    #[test]
    fn this_process_is_among_them() {
        let own = std::process::id() as i32;
        assert!(everybody().iter().any(|it| it.pid == own && it.resident_bytes > 0));
    }
}
