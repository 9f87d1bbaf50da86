//! A profile for people to read: the lines that allocate, and the call stacks that hold most.

use crate::base::output::printable_line;
use crate::base::units::bytes;
use crate::profile::data::{Measure, Profile, Stack};
use crate::profile::symbols::Symbols;
use crate::profile::symbols::object_file::Frame;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Write};

/// Lines and stacks that are shown: two screens.
const LINES: usize = 15;
const STACKS: usize = 8;
/// Frames of a stack that are shown: those further out say little more.
const FRAMES: usize = 16;
const NANOSECONDS: f64 = 1e9;

/// The text.
pub fn text(profile: &Profile, symbols: &Symbols, measure: Measure) -> String {
    let mut out = String::new();
    // A String takes all that is written.
    let _ = head(&mut out, profile, symbols);
    let _ = lines(&mut out, profile, symbols, measure);
    let _ = stacks(&mut out, profile, symbols, measure);
    out
}

fn head(out: &mut String, profile: &Profile, symbols: &Symbols) -> fmt::Result {
    write!(out, "{}", printable_line(&profile.subject))?;
    if profile.duration_ns > 0 {
        write!(out, ", over {:.1} s", profile.duration_ns as f64 / NANOSECONDS)?;
    }
    if let Some(pace) = profile.pace() {
        write!(out, "; {pace}")?;
    }
    let total = profile.total();
    writeln!(out, "\nlive       {:>10} in {} objects{}", bytes(total.live_bytes), total.live_objects, growth(profile))?;
    writeln!(out, "allocated  {:>10} in {} objects", bytes(total.allocated_bytes), total.allocated_objects)?;
    let notes = profile.notes.iter().cloned().chain(symbols.doubts());
    notes.into_iter().try_for_each(|note| writeln!(out, "note: {}", printable_line(&note)))
}

/// How much more is live than at the beginning, and in a second.
fn growth(profile: &Profile) -> String {
    let Some(grown) = profile.grown_bytes() else { return String::new() };
    let seconds = profile.duration_ns as f64 / NANOSECONDS;
    let rate = if seconds > 0.0 { (grown.unsigned_abs() as f64 / seconds) as u64 } else { 0 };
    let rate = if rate > 0 { format!(", {}/s", bytes(rate)) } else { String::new() };
    format!("; {} since the beginning{rate}", change(grown))
}

/// A line of the program, and what it holds: by itself, and in what it calls.
struct Line<'a> {
    frame: &'a Frame,
    flat: u64,
    cumulative: u64,
    grown: i64,
}

fn lines(out: &mut String, profile: &Profile, symbols: &Symbols, measure: Measure) -> fmt::Result {
    let total = measure.bytes(&profile.total());
    let mut lines = by_line(profile, symbols, measure);
    lines.sort_by_key(|line| (Reverse(line.flat), Reverse(line.cumulative), &line.frame.function));
    let word = measure.word();
    writeln!(out, "\nThe lines that allocate what is {word}: FLAT by themselves, CUM with what they call")?;
    write!(out, "\n{:>10} {:>6}  {:>10} {:>6}", "FLAT", "%", "CUM", "%")?;
    writeln!(out, "{}  FUNCTION", if profile.has_growth { format!("  {:>11}", "GROWN") } else { String::new() })?;
    for line in lines.iter().take(LINES).filter(|line| line.cumulative > 0) {
        let (flat, cumulative) = (bytes(line.flat), bytes(line.cumulative));
        let shares = [line.flat, line.cumulative].map(|part| share(part, total));
        write!(out, "{flat:>10} {:>6}  {cumulative:>10} {:>6}", shares[0], shares[1])?;
        if profile.has_growth {
            write!(out, "  {:>11}", change(line.grown))?;
        }
        writeln!(out, "  {}", named(line.frame))?;
    }
    Ok(())
}

/// Each line once, whatever stacks it is in.
fn by_line<'a>(profile: &'a Profile, symbols: &'a Symbols, measure: Measure) -> Vec<Line<'a>> {
    let mut lines: HashMap<(&str, &str, u32), Line> = HashMap::new();
    for stack in &profile.stacks {
        let size = measure.bytes(&stack.figures);
        let mut seen = HashSet::new();
        for (depth, frame) in symbols.frames(stack).enumerate() {
            let key = (frame.function.as_str(), frame.file.as_str(), frame.line);
            let line = lines.entry(key).or_insert(Line { frame, flat: 0, cumulative: 0, grown: 0 });
            if depth == 0 {
                line.flat = line.flat.saturating_add(size);
            }
            // One that calls itself holds it once.
            if seen.insert(key) {
                line.cumulative = line.cumulative.saturating_add(size);
                line.grown = line.grown.saturating_add(stack.grown_bytes);
            }
        }
    }
    lines.into_values().collect()
}

fn stacks(out: &mut String, profile: &Profile, symbols: &Symbols, measure: Measure) -> fmt::Result {
    let total = measure.bytes(&profile.total());
    let mut all: Vec<&Stack> = profile.stacks.iter().filter(|stack| measure.bytes(&stack.figures) > 0).collect();
    all.sort_by_key(|stack| Reverse(measure.bytes(&stack.figures)));
    writeln!(out, "\nThe call stacks with most {}, the innermost call first", measure.word())?;
    for (number, stack) in all.iter().take(STACKS).enumerate() {
        let (size, objects) = (measure.bytes(&stack.figures), measure.objects(&stack.figures));
        write!(out, "\n{}. {} ({}) in {objects} objects", number + 1, bytes(size), share(size, total))?;
        if profile.has_growth && stack.grown_bytes != 0 {
            write!(out, ", {} since the beginning", change(stack.grown_bytes))?;
        }
        writeln!(out)?;
        let mut frames = symbols.frames(stack);
        for frame in frames.by_ref().take(FRAMES) {
            writeln!(out, "     {}", named(frame))?;
        }
        match frames.count() {
            0 => {}
            more => writeln!(out, "     and {more} more")?,
        }
    }
    match all.len().saturating_sub(STACKS) {
        0 => Ok(()),
        more => writeln!(out, "\nand {more} more stacks: --format flame or pprof has all"),
    }
}

fn named(frame: &Frame) -> String {
    printable_line(&format!("{}  {}", frame.function, frame.place())).trim_end().to_owned()
}

fn share(part: u64, total: u64) -> String {
    if total == 0 { "-".into() } else { format!("{:.1}%", part as f64 * 100.0 / total as f64) }
}

fn change(change: i64) -> String {
    let sign = if change < 0 { '-' } else { '+' };
    format!("{sign}{}", bytes(change.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::data::Figures;

    #[test]
    fn a_leak_is_named_by_its_line_with_its_growth() {
        let stack = |frames: &[u64], live_bytes, grown_bytes| Stack {
            frames: frames.to_vec(),
            figures: Figures { live_bytes, live_objects: 1, ..Figures::default() },
            grown_bytes,
        };
        let profile = Profile {
            subject: "process 1 (evil\x1b)".into(),
            stacks: vec![stack(&[0x11, 0x101], 3 << 20, 3 << 20), stack(&[0x101, 0x101], 1 << 20, -(1 << 10))],
            duration_ns: 3_000_000_000,
            has_growth: true,
            notes: vec!["a note".into()],
            ..Profile::default()
        };
        let symbols = Symbols::for_tests(&[(0x11, &[("leak", "src/a.c", 3)]), (0x101, &[("main", "src/a.c", 20)])]);
        let text = text(&profile, &symbols, Measure::Live);
        for line in [
            "process 1 (evil?), over 3.0 s",
            "live          4.0 MiB in 2 objects; +3.0 MiB since the beginning, 1023.7 KiB/s",
            "note: a note",
            "   3.0 MiB  75.0%     3.0 MiB  75.0%     +3.0 MiB  leak  src/a.c:3",
            "   1.0 MiB  25.0%     4.0 MiB 100.0%     +3.0 MiB  main  src/a.c:20",
            "1. 3.0 MiB (75.0%) in 1 objects, +3.0 MiB since the beginning",
            "     leak  src/a.c:3",
        ] {
            assert!(text.lines().any(|it| it == line), "`{line}` is not in\n{text}");
        }
    }
}
