//! The profile that a process writes at its end (`WEIR_PROFILE=NAME`), as text: gperftools' format, of which pprof's
//! readers know the first line by `heap_v2/PERIOD`.
//!
//! ```text
//! heap profile: 2: 2097152 [3: 3145728] @ heap_v2/1
//!  1: 1048576 [2: 2097152] @ 0x5581 0x55aa
//! MAPPED_LIBRARIES:
//! 5000-6000 r-xp 00000000 08:01 77 /bin/program
//! ```

use crate::processes::maps;
use crate::profile::data::{Figures, Profile, Stack};
use crate::profile::symbols::mappings;

/// The first words of the file.
const HEAD: &str = "heap profile:";
const MAPS: &str = "MAPPED_LIBRARIES:";

/// Reads the text of a file; else what is wrong with it.
pub fn parse(text: &str) -> Result<Profile, String> {
    let head = text.lines().next().unwrap_or_default();
    if !head.starts_with(HEAD) {
        return Err("it does not begin with `heap profile:`, as what WEIR_PROFILE writes does".into());
    }
    let period = head.rsplit_once("heap_v2/").and_then(|(_, period)| period.trim().parse::<u64>().ok());
    let Some(period) = period else {
        return Err("its first line does not end with `@ heap_v2/1`: it is no heap profile of Weir's".into());
    };
    if period > 1 {
        return Err(format!("its figures are samples (heap_v2/{period}), not estimates as Weir's are (heap_v2/1)"));
    }
    let (stacks, maps) = text.split_once(MAPS).ok_or("it has no MAPPED_LIBRARIES: it was not written to its end")?;
    let lines =
        stacks.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let stacks = lines
        .map(|(at, line)| stack(line).ok_or_else(|| format!("line {} is no stack: `{}`", at + 1, line.trim())))
        .collect::<Result<Vec<_>, _>>()?;
    let maps = maps::parse(maps.trim_start().as_bytes()).map_err(|_| "its mappings cannot be read")?;
    Ok(Profile { stacks, mappings: mappings::executable(&maps), ..Profile::default() })
}

/// ` live: bytes [allocated: bytes] @ 0x… 0x…`.
fn stack(line: &str) -> Option<Stack> {
    let (figures, frames) = line.split_once('@')?;
    let (live, allocated) = figures.split_once('[')?;
    let pair = |text: &str| {
        let (objects, bytes) = text.split_once(':')?;
        Some((objects.trim().parse::<u64>().ok()?, bytes.trim().parse::<u64>().ok()?))
    };
    let ((live_objects, live_bytes), (allocated_objects, allocated_bytes)) =
        (pair(live)?, pair(allocated.trim().strip_suffix(']')?)?);
    let address = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let frames = frames.split_whitespace().map(address).collect::<Option<Vec<_>>>()?;
    let figures = Figures { allocated_objects, allocated_bytes, live_objects, live_bytes };
    Some(Stack { frames, figures, grown_bytes: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "heap profile: 2: 2097152 [3: 3145728] @ heap_v2/1\n \
         1: 1048576 [2: 2097152] @ 0x5581 0x55aa\n \
         1: 1048576 [1: 1048576] @\n\
         \nMAPPED_LIBRARIES:\n\
         5000-6000 r-xp 00000000 08:01 77 /bin/program\n\
         7000-8000 rw-p 00000000 08:01 78 /bin/program\n";

    #[test]
    fn a_file_is_read() {
        let profile = parse(FILE).unwrap();
        let figures = Figures { allocated_objects: 2, allocated_bytes: 2097152, live_objects: 1, live_bytes: 1048576 };
        assert_eq!(profile.stacks[0], Stack { frames: vec![0x5581, 0x55aa], figures, grown_bytes: 0 });
        assert_eq!((profile.stacks.len(), profile.stacks[1].frames.len(), profile.mappings.len()), (2, 0, 1));
        assert_eq!(profile.total().live_bytes, 2 << 20);
    }

    #[test]
    fn what_is_no_profile_is_refused_with_the_reason() {
        for (text, say) in [
            ("", "does not begin"),
            ("\u{1f}\u{8b}\u{8}", "does not begin"),
            ("heap profile: 1: 2 [3: 4] @ growthz", "first line"),
            ("heap profile: 1: 2 [3: 4] @ heap_v2/524288\nMAPPED_LIBRARIES:\n", "samples"),
            (&FILE[..100], "not written to its end"),
            (&FILE.replace("[2: 2097152]", "[2: 2097152"), "line 2"),
            (&FILE.replace("0x55aa", "55aa"), "line 2"),
        ] {
            assert!(parse(text).unwrap_err().contains(say), "{text}: {:?}", parse(text));
        }
    }
}
