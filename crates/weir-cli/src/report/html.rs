//! The report as one HTML page that needs nothing else: no script, no file beside it, no network. All text that comes
//! from a file is escaped by the templates.

use super::column::{self, Column, Comparison};
use super::pictures::{self, Extent, PARTS};
use super::reading::{Stat, Trace};
use crate::base::units::{bytes, nanoseconds};
use crate::figures::released::{CAUSES, Released};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The browser loads nothing and runs nothing, whatever the page has in it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Caches that are listed.
const CACHES: usize = 10;

/// The page.
pub fn page(runs: &Comparison) -> String {
    let extent = Extent::of(&runs.columns);
    let names: Vec<String> = runs.columns.iter().map(Column::name).collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Weir: " (names.join(" and ")) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header {
                    h1 { "Weir: what was released, when, and why" }
                    @for note in &runs.notes { p.note { (note) } }
                }
                @let figures = compared(&runs.columns, &names);
                div.runs {
                    @for (column, name) in runs.columns.iter().zip(&names) {
                        section {
                            h2 { (name) }
                            @if let Some(stat) = &column.stat { (memory(column, stat, extent)) }
                            @if names.len() == 1 { (figures) }
                            (run(column, extent))
                        }
                    }
                }
                @if names.len() != 1 { (figures) }
                footer { "weir " (env!("CARGO_PKG_VERSION")) }
            }
        }
    };
    page.into_string() + "\n"
}

/// The figures, a column for each run.
fn compared(columns: &[Column], names: &[String]) -> Markup {
    html! {
        div.wide { table {
            thead { tr { th {} @for name in names { th { (name) } } } }
            tbody { @for (name, values) in column::compared(columns) {
                tr { th scope="row" { (name) } @for value in values { td { (value.as_deref().unwrap_or("-")) } } }
            } }
        } }
    }
}

fn run(column: &Column, extent: Extent) -> Markup {
    html! {
        @if let Some(trace) = &column.trace { (batches(column, trace, extent)) }
        @if let Some(released) = column.released().filter(|all| all.total() > 0) { (by_cause(released)) }
        @for (of, times) in column.times() {
            figure {
                @let below = |share| nanoseconds(times.below(share).unwrap_or(0));
                figcaption {
                    "Times: " (of) ". " (times.count()) " in all, half below " (below(0.5)) ", 99 % below " (below(0.99)) "."
                }
                (pictures::histogram(&of, &times))
            }
        }
        @if let Some(rows) = column.reclaim() {
            h3 { "Reclaim" }
            div.wide { table { tbody {
                @for (name, value) in rows { tr { th scope="row" { (name) } td { (value) } } }
            } } }
        }
        @if let Some(stat) = &column.stat { (holders(stat)) }
    }
}

/// A square of a colour.
fn swatch(class: &str) -> Markup {
    html! { svg viewBox="0 0 10 10" aria-hidden="true" { rect class=(class) width="10" height="10" {} } }
}

fn legend(class: &str, names: &[&str]) -> Markup {
    html! {
        p.legend { @for (i, name) in names.iter().enumerate() {
            span { (swatch(&format!("{class}{i}"))) (name) }
        } }
    }
}

fn memory(column: &Column, stat: &Stat, extent: Extent) -> Markup {
    html! {
        figure {
            figcaption { "Resident set over time, and pressure behind it" }
            (pictures::resident(column, stat, extent))
            (legend("part", &PARTS))
            p.legend {
                @for level in ["some", "severe"] {
                    span { (swatch(&format!("pressure {level}"))) "pressure: " (level) }
                }
            }
        }
    }
}

fn batches(column: &Column, trace: &Trace, extent: Extent) -> Markup {
    html! {
        figure {
            figcaption { "Memory released over time, by cause" }
            (pictures::released(column, trace, extent))
            (legend("cause", &CAUSES))
        }
        div.wide { table {
            thead { tr { th { "what was released" } th { "batches" } th { "bytes" } } }
            tbody { @for (kind, (batches, size)) in trace.kinds.iter().filter(|(_, (batches, _))| *batches > 0) {
                tr { th scope="row" { (kind) } td { (batches) } td { (bytes(*size)) } }
            } }
        } }
    }
}

/// A bar for each cause, as long as its part of all.
fn by_cause(released: Released) -> Markup {
    let most = released.all().into_iter().max().unwrap_or(0).max(1);
    html! {
        h3 { "Released by cause" }
        div.wide { table.bars { tbody { @for (i, (name, size)) in CAUSES.iter().zip(released.all()).enumerate().filter(|(_, (_, size))| *size > 0) {
            tr {
                th scope="row" { (name) }
                td { (bytes(size)) }
                td.bar { svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" {
                    @let part = size as f64 * 100.0 / most as f64;
                    rect class=(format!("cause{i}")) width=(super::chart::px(part)) height="6" {}
                } }
            }
        } } } }
    }
}

/// What holds the memory at the last sample.
fn holders(stat: &Stat) -> Markup {
    html! {
        @if let Some(process) = stat.process.as_ref().filter(|process| process.caches.iter().any(|cache| cache.slab_bytes > 0)) {
            h3 { "The caches with the most memory, at the end" }
            div.wide { table {
                thead { tr { th { "cache" } th { "object" } th { "in use" } th { "slabs" } th { "released" } } }
                tbody { @for cache in process.caches.iter().filter(|cache| cache.slab_bytes > 0).take(CACHES) {
                    tr {
                        th scope="row" { (cache.name) }
                        td { (bytes(cache.size)) }
                        td { (cache.used) }
                        td { (bytes(cache.slab_bytes)) }
                        td { (bytes(cache.trimmed_bytes.saturating_add(cache.drained_bytes))) }
                    }
                } }
            } }
        }
        @if let Some(table) = &stat.table {
            h3 { "The processes with the largest resident sets, at the end" }
            div.wide { table {
                thead { tr { th { "process" } th { "resident" } th { "live" } th { "idle" } th { "released" } } }
                tbody { @for line in table.processes.iter().take(CACHES) {
                    tr {
                        th scope="row" { (line.command) " (" (line.pid) ")" }
                        @let it = &line.memory;
                        @for size in [Some(it.resident_bytes), it.live_bytes, it.idle_bytes, Some(line.released_bytes)] {
                            td { (bytes(size.unwrap_or(0))) }
                        }
                    }
                } }
            } }
        }
    }
}
