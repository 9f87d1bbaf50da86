//! The rows of the table: which processes, in which order, how deep in the tree.

use super::sample::Process;
use std::cmp::{Ordering, Reverse};
use std::collections::{HashMap, HashSet};

/// A column of the table, by which processes can be sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    Pid,
    #[default]
    Resident,
    Live,
    Idle,
    Fragmented,
    NotWeirs,
    Released,
    Command,
}

impl Column {
    /// In the order of the table.
    pub const ALL: [Self; 8] = {
        use Column::*;
        [Pid, Resident, Live, Idle, Fragmented, NotWeirs, Released, Command]
    };

    /// The column's head, and its meaning for the menu.
    pub fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Pid => ("PID", "process number"),
            Self::Resident => ("RES", "resident set"),
            Self::Live => ("LIVE", "in use by the program"),
            Self::Idle => ("IDLE", "free, can be released"),
            Self::Fragmented => ("FRAG", "free, beside objects in use"),
            Self::NotWeirs => ("OTHER", "resident, not Weir's"),
            Self::Released => ("RELEAS", "released since the start"),
            Self::Command => ("COMMAND", "name of the program"),
        }
    }

    /// The bytes in the column. `None`: the column has none, or the process has no Weir, or its parts are not known (yet).
    pub fn bytes(self, process: &Process) -> Option<u64> {
        let weir = process.weir.as_ref();
        let memory = weir.map(|weir| &weir.memory).filter(|it| it.measured_ns_ago.is_some());
        match self {
            Self::Resident => Some(process.resident_bytes),
            Self::Live => memory?.live_bytes,
            Self::Idle => memory?.idle_bytes,
            Self::Fragmented => memory?.fragmented_bytes,
            Self::NotWeirs => memory?.not_weirs_bytes,
            Self::Released => Some(weir?.released.total()),
            Self::Pid | Self::Command => None,
        }
    }

    /// The order of two processes: bytes from the most on, numbers and names from the least on.
    fn compare(self, a: &Process, b: &Process) -> Ordering {
        let first = match self {
            Self::Pid => Ordering::Equal,
            Self::Command => a.command.cmp(&b.command),
            _ => Reverse(self.bytes(a)).cmp(&Reverse(self.bytes(b))),
        };
        first.then(a.pid.cmp(&b.pid))
    }
}

/// How processes are shown.
#[derive(Clone, Debug, Default)]
pub struct Order {
    pub column: Column,
    pub is_reversed: bool,
    pub is_tree: bool,
    /// Also those without Weir.
    pub shows_all: bool,
    /// Only those with this in their name or number, in any case; empty: all.
    pub filter: String,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    pub process: &'a Process,
    /// 0: at the root.
    pub depth: usize,
}

/// Whether a process is found by a text that was typed.
pub fn is_named(process: &Process, text: &str) -> bool {
    process.command.to_lowercase().contains(&text.to_lowercase()) || process.pid.to_string().contains(text)
}

/// All rows.
pub fn rows<'a>(processes: &'a [Process], order: &Order) -> Vec<Row<'a>> {
    let is_shown = |it: &&Process| {
        (order.shows_all || it.weir.is_some()) && (order.filter.is_empty() || is_named(it, &order.filter))
    };
    let mut shown: Vec<&Process> = processes.iter().filter(is_shown).collect();
    shown.sort_by(|a, b| {
        let ordering = order.column.compare(a, b);
        if order.is_reversed { ordering.reverse() } else { ordering }
    });
    if order.is_tree {
        tree(processes, &shown)
    } else {
        shown.into_iter().map(|process| Row { process, depth: 0 }).collect()
    }
}

/// Children below their nearest parent that is shown, in the order given.
fn tree<'a>(processes: &[Process], shown: &[&'a Process]) -> Vec<Row<'a>> {
    let parents: HashMap<i32, i32> = processes.iter().map(|it| (it.pid, it.parent)).collect();
    let numbers: HashSet<i32> = shown.iter().map(|it| it.pid).collect();
    let shown_parent = |pid: i32| {
        let mut at = *parents.get(&pid)?;
        // A circle, which numbers used again could make, ends.
        for _ in 0..processes.len() {
            if numbers.contains(&at) {
                return Some(at);
            }
            at = *parents.get(&at)?;
        }
        None
    };
    let mut children: HashMap<Option<i32>, Vec<&'a Process>> = HashMap::new();
    for process in shown.iter().rev() {
        children.entry(shown_parent(process.pid)).or_default().push(process);
    }
    let at_depth = |depth| move |process| Row { process, depth };
    let mut waiting: Vec<Row> = children.remove(&None).unwrap_or_default().into_iter().map(at_depth(0)).collect();
    let mut rows = Vec::new();
    while let Some(row) = waiting.pop() {
        rows.push(row);
        let below = children.remove(&Some(row.process.pid)).unwrap_or_default();
        waiting.extend(below.into_iter().map(at_depth(row.depth + 1)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::sample::example::process;

    fn order(column: Column) -> Order {
        Order { column, is_reversed: false, is_tree: false, shows_all: true, filter: String::new() }
    }

    fn numbers(processes: &[Process], order: &Order) -> Vec<(i32, usize)> {
        rows(processes, order).iter().map(|row| (row.process.pid, row.depth)).collect()
    }

    #[test]
    fn they_are_sorted_and_filtered() {
        let all = [process(1, 0, "init", 5, false), process(7, 1, "redis", 90, true), process(8, 1, "shell", 20, true)];
        let flat = |order: &Order| numbers(&all, order).into_iter().map(|(pid, _)| pid).collect::<Vec<_>>();
        let mut order = order(Column::Resident);
        assert_eq!(flat(&order), [7, 8, 1]);
        order.is_reversed = true;
        assert_eq!(flat(&order), [1, 8, 7]);
        order = Order { column: Column::Command, is_reversed: false, shows_all: false, ..order };
        assert_eq!(flat(&order), [7, 8]);
        order.filter = "SHE".into();
        assert_eq!(flat(&order), [8]);
        order.filter = "7".into();
        assert_eq!(flat(&order), [7]);
    }

    #[test]
    fn in_a_tree_children_follow_their_nearest_parent_that_is_shown() {
        let all = [
            process(1, 0, "init", 5, false),
            process(2, 1, "server", 50, true),
            process(3, 2, "shell", 1, false),
            process(4, 3, "worker", 70, true),
            process(5, 2, "helper", 60, true),
            process(6, 1, "other", 55, true),
        ];
        let mut order = Order { is_tree: true, ..order(Column::Resident) };
        assert_eq!(numbers(&all, &order), [(1, 0), (6, 1), (2, 1), (5, 2), (3, 2), (4, 3)]);
        order.shows_all = false;
        assert_eq!(numbers(&all, &order), [(6, 0), (2, 0), (4, 1), (5, 1)]);
        // Two processes that name each other as parent are not shown for ever.
        assert_eq!(numbers(&[process(1, 2, "a", 1, true), process(2, 1, "b", 1, true)], &order).len(), 0);
    }
}
