//! One look at the machine: each group that has processes with Weir, what they hold, and what is charged to it.

use super::figures::{Figures, parts_of};
use super::groups::{Charge, Group, Groups};
use anyhow::Result;
use std::collections::HashSet;
use std::path::Path;
use weir_cli::survey::{Cost, CostCurve, Process, Survey};

/// See the module.
pub struct Machine {
    survey: Survey,
    /// The groups.
    pub groups: Groups,
    /// The price up to which memory is spare, nanoseconds a MiB.
    bar: u64,
}

/// A group, looked at.
#[derive(Clone, Debug)]
pub struct Looked {
    /// The group.
    pub group: Group,
    /// What its processes hold.
    pub figures: Figures,
    /// What is charged to it.
    pub charge: Charge,
    /// Its processes with Weir, with their cost curves.
    pub processes: Vec<Process>,
}

/// What a look has found.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Groups that have processes with Weir.
    pub groups: Vec<Looked>,
    /// Groups of containers that are lowered, of which no process could be read.
    pub unread: Vec<Looked>,
    /// Processes with Weir whose figures could not be read, and one of the reasons.
    pub unreadable: (usize, Option<String>),
    /// Processes that this one may not look into.
    pub not_allowed: usize,
    /// Processes with Weir in groups of which it is not known what is charged to them, such as the root.
    pub unaccounted: usize,
}

impl Looked {
    /// Memory that the group really needs: what is charged or swapped out, without what is spare and what the kernel drops by
    /// itself. A limit that is lowered to what swap has left would keep the rest there.
    ///
    /// What forked processes share is spare in each of them, and charged once: of more than is charged that part counts. What the
    /// kernel drops is charged too, and none of theirs.
    pub fn needed(&self) -> u64 {
        let Charge { charged, droppable, swapped, .. } = self.charge;
        let Figures { resident, spare, .. } = self.figures;
        let own = charged.saturating_sub(droppable).min(resident);
        let part = u128::from(spare) * u128::from(own) / u128::from(resident.max(1));
        // No more than is spare.
        let spare = part as u64;
        charged.saturating_add(swapped).saturating_sub(spare).saturating_sub(droppable)
    }

    /// The cost curve of the group: the points of one curve that is of all of its processes. What forked processes share counts
    /// in each.
    pub fn costs(&self) -> Vec<Cost> {
        let mut curve = CostCurve::default();
        self.processes.iter().flat_map(parts_of).for_each(|part| curve.add(part));
        curve.points().collect()
    }
}

impl Machine {
    /// With groups mounted there, and that price.
    pub fn at(mount: &Path, bar: u64) -> Result<Self> {
        Ok(Self { survey: Survey::default(), groups: Groups::at(mount)?, bar })
    }

    /// Looks. `lowered`: IDs of containers that are looked at without figures, too.
    pub fn look(&mut self, lowered: &HashSet<String>) -> Look {
        let found = self.survey.look();
        let unreadable = (found.unreadable.len(), found.unreadable.values().next().cloned());
        let mut unaccounted = 0;
        let of_group = |group: Group| {
            let processes: Vec<Process> =
                group.pids.iter().filter_map(|pid| found.processes.get(pid)).cloned().collect();
            let figures = processes.iter().fold(Figures::default(), |sum, process| sum.and(process, self.bar));
            let is_lowered = group.place.as_ref().is_some_and(|place| lowered.contains(&place.container));
            let charge = if processes.is_empty() && !is_lowered { None } else { self.groups.charge(&group.path) };
            unaccounted += if charge.is_none() { processes.len() } else { 0 };
            charge.map(|charge| Looked { group, figures, charge, processes })
        };
        let all = self.groups.all().into_iter().filter_map(of_group);
        let (unread, groups) = all.partition(|looked| looked.processes.is_empty());
        Look { groups, unread, unreadable, not_allowed: found.not_allowed, unaccounted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spare_is_not_needed_and_what_is_swapped_out_is() {
        let group = Group { path: "a".into(), place: None, pids: Vec::new() };
        let charge = Charge { charged: 100, droppable: 10, swapped: 50, ..Charge::default() };
        let figures = Figures { resident: 90, spare: 30, ..Figures::default() };
        let looked = Looked { group, figures, charge, processes: Vec::new() };
        assert_eq!(looked.needed(), 110);
        let spare = Looked { figures: Figures { spare: u64::MAX, ..figures }, ..looked };
        assert_eq!(spare.needed(), 0);
    }

    /// Nine forked processes hold the same memory.
    #[test]
    fn what_processes_share_is_spare_once() {
        let group = Group { path: "a".into(), place: None, pids: Vec::new() };
        let figures = Figures { processes: 9, resident: 900, spare: 270, ..Figures::default() };
        // Beside page cache, too.
        for (charged, droppable) in [(100, 0), (900, 800)] {
            let charge = Charge { charged, droppable, ..Charge::default() };
            let looked = Looked { group: group.clone(), figures, charge, processes: Vec::new() };
            assert_eq!(looked.needed(), 70, "{charge:?}");
        }
    }
}
