//! The pictures of a run.

use super::chart::{Chart, Scale, px};
use super::column::Column;
use super::reading::{Stat, Trace};
use super::records::Pressure;
use crate::base::units::{bytes, nanoseconds};
use crate::figures::memory::Memory;
use crate::figures::released::CAUSES;
use crate::figures::times::Times;
use maud::{Markup, html};

/// Ends of the axes that all runs share, so that their pictures can be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extent {
    seconds: f64,
    samples: f64,
    resident: f64,
    released: f64,
}

const NS: f64 = 1e9;

/// The names of the parts of a resident set, in the order in which they are drawn on each other.
pub const PARTS: [&str; 6] = ["not Weir's", "metadata", "live", "fragmented", "idle", "merged"];

/// The parts in that order; 0 where they are unknown.
fn parts(memory: &Memory) -> [u64; 6] {
    let [live, idle, fragmented, merged, metadata, others] = memory.parts().unwrap_or_default();
    [others, metadata, live, fragmented, idle, merged]
}

impl Extent {
    pub fn of(columns: &[Column]) -> Self {
        columns.iter().fold(Self::default(), |mut most, column| {
            let start = column.start_ns().unwrap_or(0);
            if let Some(stat) = &column.stat {
                let points = stat.samples.points();
                let last = points.iter().map(|point| point.at).max().unwrap_or(0);
                let end = if stat.is_timed { &mut most.seconds } else { &mut most.samples };
                *end = end.max(if stat.is_timed { last.saturating_sub(start) as f64 / NS } else { last as f64 });
                let resident = points.iter().map(|point| point.memory.resident_bytes.max(sum(&parts(&point.memory))));
                most.resident = most.resident.max(resident.max().unwrap_or(0) as f64);
            }
            for (_, to, parts) in column.trace.iter().flat_map(|trace| trace.bins.iter()) {
                let start = column.trace.as_ref().map_or(0, |trace| trace.bins.start_ns).saturating_sub(start);
                most.seconds = most.seconds.max(start.saturating_add(to) as f64 / NS);
                most.released = most.released.max(sum(&parts) as f64);
            }
            most
        })
    }
}

fn sum(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(*part))
}

fn of_bytes(count: f64) -> String {
    bytes(count as u64)
}

fn of_seconds(seconds: f64) -> String {
    format!("{} s", (seconds * 1000.0).round() / 1000.0)
}

fn of_samples(number: f64) -> String {
    format!("sample {number}")
}

/// The resident set by its parts, and the pressure behind it.
pub fn resident(column: &Column, stat: &Stat, extent: Extent) -> Markup {
    let start = column.start_ns().unwrap_or(0);
    let points = stat.samples.points();
    let place = |at: u64| if stat.is_timed { at.saturating_sub(start) as f64 / NS } else { at as f64 };
    let (x, x_label): (_, fn(f64) -> String) = match stat.is_timed {
        true => (Scale::of_numbers(extent.seconds), of_seconds),
        false => (Scale::of_numbers(extent.samples), of_samples),
    };
    let chart = Chart { x, y: Scale::of_bytes(extent.resident), x_label, y_label: of_bytes };
    let xs: Vec<f64> = points.iter().map(|point| place(point.at)).collect();
    let whole: Vec<f64> = points.iter().map(|point| point.memory.resident_bytes as f64).collect();
    let mut low = vec![0.0; points.len()];
    let areas: Vec<Markup> = PARTS
        .iter()
        .enumerate()
        .map(|(part, name)| {
            let raised = points.iter().zip(&low).map(|(point, low)| low + parts(&point.memory)[part] as f64);
            let high: Vec<f64> = raised.collect();
            let area = chart.area(&format!("part{part}"), &xs, &low, &high, name);
            low = high;
            area
        })
        .collect();
    chart.draw(
        "resident set over time, by what it consists of, and memory pressure",
        &html! {
            @for (from, to, level) in pressed(&xs, points.iter().map(|point| point.pressure), x.end) {
                (chart.bar(level, [from, to], [0.0, chart.y.end], level))
            }
            // Behind the parts, which may be unknown.
            (chart.area("whole", &xs, &vec![0.0; xs.len()], &whole, "resident set"))
            @for area in areas { (area) }
        },
    )
}

/// The times under pressure, each as long as the same level lasts: from a sample to the first of another level.
fn pressed(xs: &[f64], levels: impl Iterator<Item = Pressure>, end: f64) -> Vec<(f64, f64, &'static str)> {
    let mut spans: Vec<(f64, f64, Pressure)> = Vec::new();
    for (i, level) in levels.enumerate() {
        let to = xs.get(i + 1).copied().unwrap_or(end);
        match spans.last_mut() {
            Some(last) if last.2 == level => last.1 = to,
            _ => spans.push((xs[i], to, level)),
        }
    }
    let named = |(from, to, level): (f64, f64, Pressure)| match level {
        Pressure::None => None,
        Pressure::Some => Some((from, to, "pressure some")),
        Pressure::Severe => Some((from, to, "pressure severe")),
    };
    spans.into_iter().filter_map(named).collect()
}

/// A picture of the bytes released over time, by cause.
pub fn released(column: &Column, trace: &Trace, extent: Extent) -> Markup {
    let after = trace.bins.start_ns.saturating_sub(column.start_ns().unwrap_or(0));
    let chart = Chart {
        x: Scale::of_numbers(extent.seconds),
        y: Scale::of_bytes(extent.released),
        x_label: of_seconds,
        y_label: of_bytes,
    };
    let place = |ns: u64| after.saturating_add(ns) as f64 / NS;
    let bars = trace.bins.iter().flat_map(|(from, to, parts)| {
        let mut low = 0.0;
        let bar = |(cause, part): (usize, u64)| {
            let high = low + part as f64;
            let name = CAUSES.get(cause).copied().unwrap_or("unknown");
            let says = format!("{name}: {} at {}", bytes(part), of_seconds(place(from)));
            let bar = chart.bar(&format!("cause{cause}"), [place(from), place(to)], [low, high], &says);
            low = high;
            (part > 0).then_some(bar)
        };
        parts.into_iter().enumerate().filter_map(bar).collect::<Vec<_>>()
    });
    let bars: Vec<Markup> = bars.collect();
    chart.draw("memory released over time, by cause", &html! { @for bar in bars { (bar) } })
}

/// How many times fell where.
pub fn histogram(of: &str, times: &Times) -> Markup {
    let counts = times.counts();
    let first = counts.iter().position(|&count| count > 0).unwrap_or(0);
    let most = counts.iter().copied().max().unwrap_or(0) as f64;
    let chart = Chart {
        x: Scale { end: (counts.len() - first) as f64, step: 1.0 },
        y: Scale::of_numbers(most),
        x_label: |_| String::new(),
        y_label: |count| count.round().to_string(),
    };
    let range = |bucket: usize| format!("{} to {}", nanoseconds(1 << bucket), nanoseconds(2 << bucket));
    // A label for each, as long as they do not touch.
    let every = (counts.len() - first).div_ceil(8);
    chart.draw(
        &format!("histogram of times: {}", of),
        &html! {
            @for (bucket, &count) in counts.iter().enumerate().skip(first) {
                @let at = (bucket - first) as f64;
                @let says = format!("{count} times {}", range(bucket));
                (chart.bar("times", [at + 0.05, at + 0.95], [0.0, count as f64], &says))
                @if (bucket - first).is_multiple_of(every) {
                    text.mark x=(px(chart.x(at))) y="232" text-anchor="start" { (nanoseconds(1 << bucket)) }
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_lasts_until_a_sample_without() {
        let levels = [Pressure::None, Pressure::Some, Pressure::Some, Pressure::None, Pressure::Severe];
        let spans = pressed(&[0.0, 1.0, 2.0, 3.0, 4.0], levels.into_iter(), 5.0);
        assert_eq!(spans, [(1.0, 3.0, "pressure some"), (4.0, 5.0, "pressure severe")]);
    }
}
