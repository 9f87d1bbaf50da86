//! What is served to Prometheus: the last look, and what was done since the start.

use crate::machine::look::Looked;
use crate::resize::Outcome;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use weir_cli::survey::by_share;
use weir_policy::limits::Recommendation;

/// A container, or a group that is of none.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its namespace, pod and name, empty where no API tells them.
    pub namespace: String,
    /// See `namespace`.
    pub pod: String,
    /// See `namespace`.
    pub container: String,
    /// What was found.
    pub looked: Looked,
    /// What it should get.
    pub recommended: Option<Recommendation>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct State {
    /// By the last look.
    pub rows: Vec<Row>,
    /// Resizes by outcome.
    pub resizes: BTreeMap<&'static str, u64>,
    /// Seconds that the last look took.
    pub look_seconds: f64,
    /// Looks since the start.
    pub looks: u64,
    /// Processes whose figures could not be read.
    pub unreadable: usize,
    /// Processes that hold memory back for the machine.
    pub relieving: usize,
    /// Statuses of autoscalers written.
    pub recommendations: u64,
    /// Whether the API answers; none: none is asked.
    pub is_api_up: Option<bool>,
}

/// Shared by who looks and who serves.
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Mutex<State>>);

type Figure = (&'static str, &'static str, fn(&Row) -> Option<f64>);
type Labels<'a> = [(&'static str, &'a str); 4];

/// A gauge of bytes for each container: name, help and value.
const BYTES: [Figure; 5] = [
    ("container_charged", "Memory that the kernel charges to the container.", |it| {
        Some(it.looked.charge.charged as f64)
    }),
    ("container_limit", "Its limit; no sample without one.", |it| it.looked.charge.limit.map(|limit| limit as f64)),
    ("container_needed", "What it really needs: charged, without what is spare or dropped by the kernel.", |it| {
        Some(it.looked.needed() as f64)
    }),
    ("container_spare", "What its processes could give below the cost bar.", |it| Some(it.looked.figures.spare as f64)),
    (
        "container_spare_at_any_cost",
        "What its processes could do without, by their cost curves; no sample where they have none.",
        |it| it.looked.costs().last().map(|all| all.bytes as f64),
    ),
];

/// A gauge of a share for each container.
const RATIOS: [Figure; 2] = [
    ("container_stalled", "Share of ten seconds in which some task waited for memory.", |it| it.looked.charge.stall),
    (
        "container_touched_again",
        "Share of what was released since its processes' start that was touched again soon.",
        |it| Some(it.looked.figures.refault_share()),
    ),
];

impl Metrics {
    /// The state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|panicked| panicked.into_inner())
    }

    /// Counts what came of a resize.
    pub fn count(&self, outcome: &Outcome) {
        *self.state().resizes.entry(outcome.name()).or_default() += 1;
    }

    /// The text.
    pub fn text(&self) -> String {
        let mut registry = Registry::with_prefix("weir");
        registry.register_collector(Box::new(self.clone()));
        let mut written = String::new();
        // A string takes all that is written.
        let _ = text::encode(&mut written, &registry);
        written
    }
}

impl Collector for Metrics {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        let state = self.state();
        let (gauge, in_bytes, in_seconds) = (MetricType::Gauge, Unit::Bytes, Unit::Seconds);
        let mut memory = to.encode_descriptor(
            "container_memory",
            "What the container's processes with Weir hold, by state; evictable is a part of live. What forked processes \
             share counts in each. No samples while more than a sixteenth is of processes of which it is unknown.",
            Some(&in_bytes),
            gauge,
        )?;
        for row in state.rows.iter().filter(|row| row.looked.figures.has_parts()) {
            let it = &row.looked.figures;
            let all = [("live", it.live), ("idle", it.idle), ("fragmented", it.fragmented), ("merged", it.merged)];
            for (name, bytes) in all.into_iter().chain([("evictable", it.evictable)]) {
                sample(&mut memory, row, ("state", name), bytes as f64)?;
            }
        }
        let bytes = BYTES.iter().map(|figure| (figure, Unit::Bytes));
        for (&(name, help, value), unit) in bytes.chain(RATIOS.iter().map(|figure| (figure, Unit::Ratios))) {
            let mut metric = to.encode_descriptor(name, help, Some(&unit), gauge)?;
            for (row, value) in state.rows.iter().filter_map(|row| Some((row, value(row)?))) {
                sample(&mut metric, row, ("", ""), value)?;
            }
        }
        let help = "Time that its processes would lose in ten seconds without their cheapest memory, by the share of what they \
                    could do without at any cost.";
        let mut costs = to.encode_descriptor("container_spare_cost", help, Some(&in_seconds), gauge)?;
        for row in &state.rows {
            let points = row.looked.costs();
            by_share(&points)
                .try_for_each(|(share, cost)| sample(&mut costs, row, ("share", share), cost.ns() as f64 / 1e9))?;
        }
        let help = "What the container should get: target, and the bounds of an autoscaler.";
        let mut recommended = to.encode_descriptor("container_recommendation", help, Some(&in_bytes), gauge)?;
        for (row, it) in state.rows.iter().filter_map(|row| Some((row, row.recommended?))) {
            for (bound, bytes) in [("lower", it.lower), ("target", it.target), ("upper", it.upper)] {
                sample(&mut recommended, row, ("bound", bound), bytes as f64)?;
            }
        }
        let mut resizes = to.encode_descriptor("agent_resizes", "Resizes by outcome.", None, MetricType::Counter)?;
        for name in Outcome::NAMES {
            let count = state.resizes.get(name).copied().unwrap_or(0);
            resizes.encode_family(&[("outcome", name)])?.encode_counter::<NoLabelSet, _, f64>(&count, None)?;
        }
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let cpu = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
        to.encode_descriptor("agent_cpu", "Time of the agent's own on a CPU.", Some(&in_seconds), MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, f64>(&cpu, None)?;
        let counts = [("agent_looks", state.looks), ("agent_recommendations", state.recommendations)];
        for (name, count) in counts {
            to.encode_descriptor(name, "Since the start.", None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, f64>(&count, None)?;
        }
        let gauges = [
            ("agent_look", "How long the last look took.", Some(&in_seconds), Some(state.look_seconds)),
            ("agent_unreadable_processes", "Processes without figures.", None, Some(state.unreadable as f64)),
            ("agent_relieving_processes", "Processes that hold memory back.", None, Some(state.relieving as f64)),
            ("agent_api_up", "1 where the API answers.", None, state.is_api_up.map(|is_up| f64::from(u8::from(is_up)))),
        ];
        for (name, help, unit, value) in gauges.iter().filter_map(|it| Some((it.0, it.1, it.2, it.3?))) {
            to.encode_descriptor(name, help, unit, gauge)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

/// A sample of a container. Where no API tells its name, the path of its group does.
fn sample(metric: &mut MetricEncoder, row: &Row, more: (&'static str, &str), value: f64) -> fmt::Result {
    let path = row.looked.group.path.to_string_lossy();
    let path = if row.pod.is_empty() { &*path } else { "" };
    let labels: Labels =
        [("namespace", &row.namespace), ("pod", &row.pod), ("container", &row.container), ("cgroup", path)];
    let all: Vec<_> = labels.into_iter().chain([more]).filter(|(_, value)| !value.is_empty()).collect();
    metric.encode_family(&all.as_slice())?.encode_gauge(&value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::figures::Figures;
    use crate::machine::groups::{Charge, Group};
    use crate::policy::relief::tests::process;

    #[test]
    fn what_less_memory_costs_is_told_of_all_processes_of_a_container() {
        let row = |container: &str, processes| Row {
            namespace: "shop".to_owned(),
            pod: "web".to_owned(),
            container: container.to_owned(),
            looked: Looked {
                group: Group { path: "a".into(), place: None, pids: Vec::new() },
                figures: Figures::default(),
                charge: Charge::default(),
                processes,
            },
            recommended: None,
        };
        let ms = 1_000_000;
        let metrics = Metrics::default();
        let two = vec![process(1, &[(10, 2 * ms), (50, 9 * ms)]), process(2, &[(20, ms)])];
        metrics.state().rows = vec![row("app", two), row("none", vec![process(3, &[])])];
        let text = metrics.text();
        let told: Vec<_> = text.lines().filter(|line| line.starts_with("weir_container_spare_")).collect();
        let of_app = |name, more, value: &str| {
            format!("weir_container_spare_{name}{{namespace=\"shop\",pod=\"web\",container=\"app\"{more}}} {value}")
        };
        let costs = [("0.25", "0.02"), ("0.5", "0.13"), ("1", "0.49")];
        let costs = costs.map(|(share, cost)| of_app("cost_seconds", format!(",share=\"{share}\""), cost));
        let all = of_app("at_any_cost_bytes", String::new(), "83886080.0");
        assert!(costs.iter().chain([&all]).all(|line| told.contains(&line.as_str())), "{text}");
        assert_eq!(
            told.iter().filter(|line| line.contains("none")).count(),
            1,
            "what is spare is known to be 0: {text}"
        );
    }
}
