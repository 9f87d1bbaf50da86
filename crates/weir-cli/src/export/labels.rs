//! The labels of every sample of a process.

use super::container;
use procfs::process::Process;
use prometheus_client::encoding::{EncodeLabel, EncodeLabelSet, LabelSetEncoder};
use std::fmt;

/// Who a sample is of.
pub struct Labels {
    pid: String,
    comm: String,
    cgroup: String,
    /// Empty, which is the same as no label, where the process is in none.
    container: String,
}

impl Labels {
    /// Of a process with this name.
    pub fn of(process: &Process, comm: String) -> Self {
        let cgroup = cgroup_of(process);
        let container = container::of_cgroup(&cgroup).unwrap_or_default();
        Self { pid: process.pid().to_string(), comm, cgroup, container }
    }

    /// These, and those of one of the process's samples.
    pub fn with<'a>(&'a self, of_sample: &'a [(&'static str, &'a str)]) -> SampleLabels<'a> {
        SampleLabels { process: self, of_sample }
    }
}

/// All labels of a sample.
pub struct SampleLabels<'a> {
    process: &'a Labels,
    of_sample: &'a [(&'static str, &'a str)],
}

impl EncodeLabelSet for SampleLabels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder) -> fmt::Result {
        let Labels { pid, comm, cgroup, container } = self.process;
        let of_process = [("pid", pid), ("comm", comm), ("cgroup", cgroup), ("container", container)];
        let mut of_process = of_process.into_iter().filter(|(_, value)| !value.is_empty());
        of_process.try_for_each(|(name, value)| (name, value.as_str()).encode(encoder.encode_label()))?;
        self.of_sample.iter().try_for_each(|label| label.encode(encoder.encode_label()))
    }
}

/// The path of the group that accounts the process's memory: of version 1's memory controller where it is in use, else
/// of version 2. Empty if the kernel tells none.
fn cgroup_of(process: &Process) -> String {
    let groups = process.cgroups().map(|groups| groups.0).unwrap_or_default();
    let memory = groups.iter().find(|group| group.controllers.iter().any(|controller| controller == "memory"));
    memory.or(groups.iter().find(|group| group.hierarchy == 0)).map_or_else(String::new, |group| group.pathname.clone())
}
