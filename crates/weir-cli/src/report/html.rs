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
    let names: Vec<&str> = [""].into_iter().chain(names.iter().map(String::as_str)).collect();
    let cell = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let row = |(name, values): (&str, Vec<_>)| (name.to_owned(), values.into_iter().map(cell).collect());
    table(&names, &column::compared(columns).map(row).collect::<Vec<_>>())
}

fn table(names: &[&str], rows: &[(String, Vec<String>)]) -> Markup {
    html! {
        div.wide { table {
            thead { tr { @for name in names { th { (name) } } } }
            tbody { @for (name, values) in rows {
                tr { th scope="row" { (name) } @for value in values { td { (value) } } }
            } }
        } }
    }
}

fn run(column: &Column, extent: Extent) -> Markup {
    html! {
        @if let Some(trace) = column.trace.as_ref().filter(|it| !it.bins.is_empty()) { (batches(column, trace, extent)) }
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
        @for it in [column.reclaim(), column.holders()].iter().flatten() {
            h3 { (it.title) }
            (table(&it.names, &it.rows))
        }
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
        @if let Some(kinds) = column.kinds() { (table(&kinds.names, &kinds.rows)) }
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
