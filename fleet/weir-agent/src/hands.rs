//! What is done on this machine itself, apart from the API: all of it waits for files and processes, so that a thread of its own
//! does it.

use crate::machine::look::{Look, Looked, Machine};
use crate::merging::Merging;
use crate::options::Options;
use crate::relief::Relief;
use anyhow::Result;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// See the module.
pub struct Hands {
    machine: Machine,
    merging: Option<Merging>,
    relief: Option<Relief>,
}

/// What was found and done.
pub struct Done {
    /// The look.
    pub look: Look,
    /// How long it took.
    pub took: Duration,
    /// Processes that hold memory back for the machine.
    pub relieving: usize,
    /// What should be said of it.
    pub said: Vec<String>,
}

impl Hands {
    /// As the command line says.
    pub fn new(options: &Options) -> Result<Self> {
        let acts = !options.dry_run;
        Ok(Self {
            machine: Machine::at(&options.cgroup_root, options.bar())?,
            merging: (options.merge && acts).then(|| Merging::by(&options.ksm)),
            relief: options.relieve.filter(|_| acts).map(|percent| Relief::below(percent / 100.0)),
        })
    }

    /// The directory of a group.
    pub fn directory(&self, path: &Path) -> PathBuf {
        self.machine.groups.directory(path)
    }

    /// Looks, relieves the machine, and tells the processes of some containers to merge. Both sets have IDs of containers.
    pub fn work(&mut self, merge: &HashSet<String>, lowered: &HashSet<String>) -> Done {
        let begun = Instant::now();
        let look = self.machine.look(lowered);
        let (took, mut said) = (begun.elapsed(), Vec::new());
        if let Some(merging) = &mut self.merging {
            let asks = |it: &&Looked| it.group.place.as_ref().is_some_and(|place| merge.contains(&place.container));
            let processes: Vec<_> = look.groups.iter().filter(asks).flat_map(|it| it.processes.clone()).collect();
            said.extend(merging.tell(&processes));
        }
        let mut relieving = 0;
        if let Some(relief) = &mut self.relief {
            let asked = relief.look(look.groups.iter().flat_map(|it| &it.processes));
            relieving = relief.holding();
            if asked > 0 {
                said.push(format!("the machine is short: {asked} processes were asked for their cheapest memory"));
            }
        }
        Done { look, took, relieving, said }
    }
}
