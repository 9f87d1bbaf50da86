//! A profile as lines of `main;work;leak 1048576`, which flame graph programs read: functions from the outermost on, then
//! bytes.

use super::data::Profile;
use super::measure::Measure;
use super::symbols::Symbols;
use crate::base::output::printable_line;
use std::collections::BTreeMap;

/// The lines, sorted. Stacks of the same functions are one.
pub fn text(profile: &Profile, symbols: &Symbols, measure: Measure) -> String {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for stack in &profile.stacks {
        // A semicolon ends a name.
        let name = |name: &str| printable_line(name).replace(';', ":");
        let names: Vec<String> = symbols.frames(stack).rev().map(|frame| name(&frame.function)).collect();
        let bytes = measure.bytes(&stack.figures);
        if bytes > 0 {
            let sum = lines.entry(names.join(";")).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }
    lines.iter().map(|(names, bytes)| format!("{names} {bytes}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::data::{Figures, Stack};

    #[test]
    fn stacks_of_the_same_functions_are_one_line() {
        let stack = |frames: &[u64], live_bytes| Stack {
            frames: frames.to_vec(),
            figures: Figures { live_bytes, allocated_bytes: 1000, ..Figures::default() },
            grown_bytes: 0,
        };
        let profile = Profile {
            stacks: vec![stack(&[0x11, 0x101], 5), stack(&[0x21, 0x101], 7), stack(&[0x101], 0)],
            ..Profile::default()
        };
        let symbols = Symbols::for_tests(&[
            (0x11, &[("f;\n", "a.c", 3)]),
            (0x21, &[("f;\n", "a.c", 4)]),
            (0x101, &[("g", "a.c", 9), ("main", "a.c", 20)]),
        ]);
        assert_eq!(text(&profile, &symbols, Measure::Live), "main;g;f:? 12\n");
        assert_eq!(text(&profile, &symbols, Measure::Allocated), "main;g 1000\nmain;g;f:? 2000\n");
    }
}
