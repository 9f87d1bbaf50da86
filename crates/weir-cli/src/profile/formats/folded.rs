//! A profile by its functions, in two forms. One is lines of `main;work;leak 1048576`, which flame graph programs read. The
//! other is one HTML page with flame graphs, which needs nothing else: no file beside it, no network. All that
//! comes from the process is text to the page.

use crate::base::failure::Failure;
use crate::base::output::printable_line;
use crate::base::units::bytes;
use crate::profile::data::{Measure, Profile};
use crate::profile::symbols::Symbols;
use crate::profile::symbols::object_file::Frame;
use inferno::flamegraph::{self, Options, TextTruncateDirection};
use maud::{DOCTYPE, PreEscaped, html};
use std::collections::BTreeMap;

/// The browser loads nothing, and runs what is in the page alone.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Width of a graph, and what a frame around it has more, pixels.
const WIDTH: usize = 1200;
const AROUND: usize = 20;
/// Name of what has no stack.
const NO_STACK: &str = "no call stack";

/// The lines, sorted: functions from the outermost on, then bytes. Stacks of the same functions are one.
pub fn text(profile: &Profile, symbols: &Symbols, measure: Measure) -> String {
    let lines = folded(profile, symbols, measure, |frame| frame.function.clone());
    lines.iter().filter(|(_, (bytes, _))| *bytes > 0).map(|(names, (bytes, _))| format!("{names} {bytes}\n")).collect()
}

/// Names of functions, with their bytes and how much more of them is live than when the profile began.
fn folded(
    profile: &Profile,
    symbols: &Symbols,
    measure: Measure,
    name: impl Fn(&Frame) -> String,
) -> BTreeMap<String, (u64, i64)> {
    let mut lines: BTreeMap<String, (u64, i64)> = BTreeMap::new();
    for stack in &profile.stacks {
        // A semicolon ends a name.
        let names = symbols.frames(stack).rev().map(|frame| printable_line(&name(frame)).replace(';', ":"));
        let names = names.collect::<Vec<_>>().join(";");
        let (bytes, grown) = lines.entry(names).or_default();
        *bytes = bytes.saturating_add(measure.bytes(&stack.figures));
        *grown = grown.saturating_add(stack.grown_bytes);
    }
    lines
}

/// A flame graph as SVG. It shows functions with their places, and is coloured by what grew, where that is known.
fn graph(profile: &Profile, symbols: &Symbols, measure: Measure) -> Result<String, Failure> {
    let place = |frame: &Frame| format!("{} {}", frame.function, frame.place());
    let by_growth = profile.has_growth && measure == Measure::Live;
    let line = |(names, (bytes, grown)): (String, (u64, i64))| {
        let names = if names.is_empty() { NO_STACK } else { names.trim_end() };
        let before = by_growth.then(|| format!(" {}", bytes.saturating_add_signed(grown.saturating_neg())));
        (bytes > 0).then(|| format!("{names}{} {bytes}", before.unwrap_or_default()))
    };
    let lines: Vec<String> = folded(profile, symbols, measure, place).into_iter().filter_map(line).collect();
    let mut options = Options::default();
    options.title = format!("{}: {}", measure.word(), bytes(measure.bytes(&profile.total())));
    (options.count_name, options.name_type) = ("bytes".into(), "Function:".into());
    (options.image_width, options.text_truncate_direction) = (Some(WIDTH), TextTruncateDirection::Right);
    let mut svg = Vec::new();
    if lines.is_empty() {
        return Ok(format!("nothing is {}", measure.word()));
    }
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| Failure::of_weir(format!("the graph cannot be drawn: {error}")))?;
    Ok(String::from_utf8_lossy(&svg).into_owned())
}

/// The height that it says of itself, pixels.
fn height(svg: &str) -> usize {
    let said = svg.split_once(" height=\"").and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
    said.unwrap_or(0)
}

/// The page: a graph of what is live and one of what was allocated, that of `measure` first. Each is a document of its own.
pub fn page(profile: &Profile, symbols: &Symbols, measure: Measure) -> Result<String, Failure> {
    let measures = [measure, if measure == Measure::Live { Measure::Allocated } else { Measure::Live }];
    let graphs = measures.map(|measure| graph(profile, symbols, measure).map(|svg| (measure.word(), svg)));
    let graphs = graphs.into_iter().collect::<Result<Vec<_>, _>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Weir: heap profile of " (profile.subject) }
                style { (PreEscaped(include_str!("flame.css"))) }
            }
            body {
                h1 { "Heap profile of " (profile.subject) }
                p {
                    @if profile.duration_ns > 0 { "Over " (format!("{:.1}", profile.duration_ns as f64 / 1e9)) " s. " }
                    @if let Some(pace) = profile.pace() { (pace) ". " }
                    "Each box is a function, as wide as what was allocated in it and in what it called; below it is who called it. "
                    "Click a box to see it alone. "
                    @if profile.has_growth { "Red is what grew, blue what shrank." }
                }
                @for note in profile.notes.iter().cloned().chain(symbols.doubts()) { p.note { (note) } }
                @for (word, svg) in graphs {
                    iframe title=(word) srcdoc=(svg) width=(WIDTH + AROUND) height=(height(&svg) + AROUND) {}
                }
                footer { "weir " (env!("CARGO_PKG_VERSION")) }
            }
        }
    };
    Ok(page.into_string() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::data::{Figures, Stack};

    fn stack(frames: &[u64], live_bytes: u64) -> Stack {
        let figures = Figures { live_bytes, allocated_bytes: 1000, ..Figures::default() };
        Stack { frames: frames.to_vec(), figures, grown_bytes: 0 }
    }

    #[test]
    fn stacks_of_the_same_functions_are_one_line() {
        let stacks = vec![stack(&[0x11, 0x101], 5), stack(&[0x21, 0x101], 7), stack(&[0x101], 0)];
        let profile = Profile { stacks, ..Profile::default() };
        let symbols = Symbols::for_tests(&[
            (0x11, &[("f;\n", "a.c", 3)]),
            (0x21, &[("f;\n", "a.c", 4)]),
            (0x101, &[("g", "a.c", 9), ("main", "a.c", 20)]),
        ]);
        assert_eq!(text(&profile, &symbols, Measure::Live), "main;g;f:? 12\n");
        assert_eq!(text(&profile, &symbols, Measure::Allocated), "main;g 1000\nmain;g;f:? 2000\n");
    }

    #[test]
    fn a_hostile_name_is_text_alone() {
        let subject = "</title><script>alert(1)</script>".into();
        let profile = Profile { subject, stacks: vec![stack(&[0x11], 1)], ..Profile::default() };
        let symbols = Symbols::for_tests(&[(0x11, &[("f</script><script>alert(2)\"", "a.c", 1)])]);
        let page = page(&profile, &symbols, Measure::Live).unwrap();
        assert!(!page.contains("<script>") && page.matches("<iframe").count() == 2, "{page}");
        // Escaped by the graph, and again by the page around it.
        assert!(page.contains("f&amp;lt;/script&amp;gt;"), "{page}");
        assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "{page}");
    }

    #[test]
    fn a_graph_of_nothing_is_none() {
        let profile = Profile { stacks: vec![stack(&[], 0)], has_growth: true, ..Profile::default() };
        let page = page(&profile, &Symbols::for_tests(&[]), Measure::Live).unwrap();
        assert!(page.contains("nothing is live") && page.contains(NO_STACK), "{page}");
    }
}
