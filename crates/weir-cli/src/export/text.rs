//! A snapshot in the OpenMetrics text format.

use super::families::{Family, OF_CACHES, OF_PROCESSES, OF_THE_EXPORTER, Value};
use super::snapshot::Snapshot;
use crate::base::failure::Failure;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::fmt;

/// Begins the names of all metrics.
const PREFIX: &str = "weir";

/// The text.
pub fn of(snapshot: Snapshot) -> Result<String, Failure> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(snapshot));
    let mut written = String::new();
    let done = text::encode(&mut written, &registry);
    done.map(|()| written).map_err(|fmt::Error| Failure::of_weir("the metrics cannot be written".into()))
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for family in OF_THE_EXPORTER {
            let mut metric = begin(&mut encoder, family)?;
            (family.samples)(self, &mut |labels, value| match labels {
                [] => write(&mut metric, family.kind, value),
                labels => sample(&mut metric, family.kind, &labels, value),
            })?;
        }
        let of_caches = if self.extent.caches { OF_CACHES } else { &[] };
        for family in OF_PROCESSES.iter().chain(of_caches) {
            let mut metric = begin(&mut encoder, family)?;
            for process in &self.processes {
                (family.samples)(process, &mut |labels, value| {
                    sample(&mut metric, family.kind, &process.labels.with(labels), value)
                })?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("processes", &self.processes.len()).finish_non_exhaustive()
    }
}

/// The lines that describe a metric, before its samples.
fn begin<'a, T>(encoder: &'a mut DescriptorEncoder, family: &'a Family<T>) -> Result<MetricEncoder<'a>, fmt::Error> {
    encoder.encode_descriptor(family.name, family.help, family.unit.as_ref(), family.kind)
}

/// A sample with labels.
fn sample(metric: &mut MetricEncoder, kind: MetricType, labels: &impl EncodeLabelSet, value: Value) -> fmt::Result {
    write(&mut metric.encode_family(labels)?, kind, value)
}

fn write(sample: &mut MetricEncoder, kind: MetricType, value: Value) -> fmt::Result {
    match (kind, value) {
        (MetricType::Counter, Value::Whole(count)) => sample.encode_counter::<NoLabelSet, _, f64>(&count, None),
        (MetricType::Counter, Value::Real(count)) => sample.encode_counter::<NoLabelSet, _, f64>(&count, None),
        (_, Value::Whole(figure)) => sample.encode_gauge(&figure),
        (_, Value::Real(figure)) => sample.encode_gauge(&figure),
        (_, Value::Histogram(it)) => sample.encode_histogram::<NoLabelSet>(it.sum, it.count, &it.buckets, None),
    }
}
