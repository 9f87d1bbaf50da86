//! What the webhook counts of itself.

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Ended {
    /// The pod got Weir.
    Injected,
    /// Nothing was to be done.
    Unchanged,
    /// The pod asked and cannot have it.
    Left,
    /// The request could not be read, or had no room: the pod was let through as it is.
    Failed,
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Told {
    /// It was written.
    Written,
    /// The API server did not take it.
    Failed,
    /// Too many waited.
    Dropped,
}

/// A counter for each outcome.
type ByOutcome<T> = Family<[(&'static str, T); 1], Counter>;

/// All of it.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: ByOutcome<Ended>,
    seconds: Histogram,
    events: ByOutcome<Told>,
}

impl Default for Metrics {
    fn default() -> Self {
        // From 50 us, doubling, to 1.6 s: beyond the second that an API server waits.
        let buckets = std::iter::successors(Some(50e-6), |bound| Some(bound * 2.0)).take(16);
        let (requests, events) = (ByOutcome::default(), ByOutcome::default());
        let seconds = Histogram::new(buckets);
        let mut registry = Registry::with_prefix("weir_webhook");
        registry.register("requests", "Admission requests, by how they ended", requests.clone());
        let help = "Time from the whole request to its answer";
        registry.register_with_unit("request", help, Unit::Seconds, seconds.clone());
        registry.register("events", "Events, by what became of them", events.clone());
        Self { registry, requests, seconds, events }
    }
}

impl Metrics {
    /// A request ended so, after this time.
    pub fn ended(&self, outcome: Ended, took: Duration) {
        self.requests.get_or_create(&[("outcome", outcome)]).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// A request was answered without a review.
    pub fn refused(&self) {
        self.requests.get_or_create(&[("outcome", Ended::Failed)]).inc();
    }

    /// An event became this.
    pub fn told(&self, outcome: Told) {
        self.events.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// The text of OpenMetrics.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut page = String::new();
        text::encode(&mut page, &self.registry)?;
        Ok(page)
    }
}
