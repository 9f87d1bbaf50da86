//! The control groups that the process is in, followed when it is moved.
//!
//! The kernel does not report that a process was moved. So the membership is read again (one small file) wherever the
//! sources are read, and before any event of a group is believed.

use super::cgroup::{self, GroupDir, Membership};
use super::memcg::read_ahead;
use crate::os::fd;

/// The groups, as open directories. Only for a thread with a descriptor table of its own, as they stay open.
pub struct Groups {
    /// The file of [`cgroup::own_file`], kept open; -1 before.
    pub(in crate::pressure) membership: i32,
    /// The membership's digest as the directories were opened.
    seen: Option<u64>,
    /// The group that the memory controller charges.
    pub memory: Option<GroupDir>,
    /// The group in the unified hierarchy whose stalls are to be heard; none for the hierarchy's root, whose stalls are
    /// the system's.
    pub unified: Option<GroupDir>,
}

impl Groups {
    /// Nothing open.
    pub const fn new() -> Self {
        Self { membership: -1, seen: None, memory: None, unified: None }
    }

    /// Opens the groups that the process is in now, instead of those before.
    pub fn open(&mut self) {
        [self.memory.take(), self.unified.take()].into_iter().flatten().for_each(GroupDir::close);
        if self.membership < 0 {
            self.membership = fd::open(cgroup::own_file(), fd::O_RDONLY).unwrap_or(-1);
        }
        // First, so that a move in between is seen next time.
        self.seen = cgroup::digest(self.membership);
        (self.memory, self.unified) = open_groups();
        [&mut self.memory, &mut self.unified].into_iter().flatten().for_each(GroupDir::keep_files);
        self.memory.iter().for_each(read_ahead);
    }

    /// The main thread has ended before others: what is kept open speaks of it alone.
    pub fn main_thread_has_ended(&mut self) {
        if self.membership >= 0 {
            let _ = fd::close(self.membership);
            self.membership = fd::open(cgroup::own_file(), fd::O_RDONLY).unwrap_or(-1);
        }
    }

    /// Has `look` see the memory controller's group and the unified one. Where none `are_kept` open they are open meanwhile.
    pub fn with<R>(&self, are_kept: bool, look: impl FnOnce(Option<&GroupDir>, Option<&GroupDir>) -> R) -> R {
        if are_kept { look(self.memory.as_ref(), self.unified.as_ref()) } else { with_open(look) }
    }

    /// Whether the process is in other groups than those open.
    pub fn have_changed(&self) -> bool {
        let now = cgroup::digest(self.membership);
        now.is_some() && now != self.seen
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self::new()
    }
}

/// Has `look` see the memory controller's group and the unified one, which are open meanwhile.
pub fn with_open<R>(look: impl FnOnce(Option<&GroupDir>, Option<&GroupDir>) -> R) -> R {
    let (memory, unified) = open_groups();
    let result = look(memory.as_ref(), unified.as_ref());
    [memory, unified].into_iter().flatten().for_each(GroupDir::close);
    result
}

/// The groups, to be closed by the caller.
fn open_groups() -> (Option<GroupDir>, Option<GroupDir>) {
    let groups = Membership::find();
    let open = |group: Option<_>| GroupDir::open(group.as_ref()?).ok();
    let unified = open(groups.unified).and_then(|dir| {
        let is_root = dir.is_hierarchy_root();
        if is_root {
            dir.close();
            return None;
        }
        Some(dir)
    });
    (open(groups.memory), unified)
}
