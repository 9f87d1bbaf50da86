//! The functions and lines of a profile's stacks.

pub mod files;
mod folding;
pub mod mappings;
mod names;
pub mod object_file;

use super::data::{Profile, Stack};
use crate::base::output::printable_line;
use files::Files;
use folding::folded;
use mappings::Mapping;
use object_file::{Budget, Frame, Located, look_up};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// The functions of an address.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The functions that it is in, the innermost first; never empty.
    pub frames: Vec<Frame>,
    /// Whether the frames are functions, not numbers.
    pub is_known: bool,
}

/// See the module.
#[derive(Default)]
pub struct Symbols {
    places: HashMap<u64, Place>,
    /// The build ID of each mapping; empty: not known.
    pub build_ids: Vec<Vec<u8>>,
    /// Names of files that could not be read, or not as a whole, or are not those that were mapped.
    doubtful: Vec<String>,
    /// Names of files that did not answer.
    silent: Vec<String>,
}

/// The call that a return address belongs to is before it, and may be the last instruction of its function.
pub fn call_of(return_address: u64) -> u64 {
    return_address.saturating_sub(1)
}

#[cfg(test)]
type OfAddress<'a> = (u64, &'a [(&'a str, &'a str, u32)]);

impl Symbols {
    /// Looks all addresses of a profile up.
    pub fn of(profile: &Profile, files: Files) -> Self {
        let calls: BTreeSet<u64> =
            profile.stacks.iter().flat_map(|stack| &stack.frames).map(|&address| call_of(address)).collect();
        let mut symbols = Self { build_ids: vec![Vec::new(); profile.mappings.len()], ..Self::default() };
        let mut by_file: BTreeMap<&Path, Vec<(usize, u64)>> = BTreeMap::new();
        for call in calls {
            match mappings::find(&profile.mappings, call) {
                Some(at) => by_file.entry(&profile.mappings[at].path).or_default().push((at, call)),
                None => drop(symbols.places.insert(call, unknown(format!("{call:#x}")))),
            }
        }
        // One file at a time: its debug information may be as large as memory.
        let mut budget = Budget::new();
        for calls in by_file.values() {
            symbols.look_up(calls, &profile.mappings, files, &mut budget);
        }
        symbols.doubtful.sort();
        symbols
    }

    fn look_up(&mut self, calls: &[(usize, u64)], mappings: &[Mapping], files: Files, budget: &mut Budget) {
        let mapping = &mappings[calls[0].0];
        let offsets: Vec<u64> = calls.iter().map(|&(at, call)| mappings[at].file_offset(call)).collect();
        let mut found = look_up(mapping, files, &offsets, budget);
        for (nth, &(at, call)) in calls.iter().enumerate() {
            let located = found.places.get_mut(nth).and_then(Option::take);
            let address = located.as_ref().map_or(offsets[nth], |it| it.address);
            let mut place = match located {
                Some(Located { frames, .. }) if !frames.is_empty() => Place { frames, is_known: true },
                _ => unknown(format!("{}+{address:#x}", mapping.name())),
            };
            place.frames.iter_mut().for_each(|frame| frame.module = mapping.name());
            self.places.insert(call, place);
            // By it another machine would name functions of the file that was mapped.
            if !found.is_other {
                self.build_ids[at].clone_from(&found.build_id);
            }
        }
        if found.is_silent || !found.is_whole || found.is_other {
            let files = if found.is_silent { &mut self.silent } else { &mut self.doubtful };
            files.push(mapping.path.to_string_lossy().into_owned());
        }
    }

    /// Notes on files whose functions are not to be relied on, a sentence each.
    pub fn doubts(&self) -> impl Iterator<Item = String> {
        let doubtful = "cannot be read, or is not the file that was mapped: do not rely on its functions";
        let silent = "did not answer in time, or was not asked as others had not: its functions may be numbers";
        let all = [(&self.doubtful, doubtful), (&self.silent, silent)];
        all.into_iter()
            .flat_map(|(files, says)| files.iter().map(move |file| format!("{} {says}", printable_line(file))))
    }

    /// The place of the call that a return address belongs to.
    pub fn place(&self, return_address: u64) -> Option<&Place> {
        self.places.get(&call_of(return_address))
    }

    /// The functions of a stack that are shown, the innermost first, with those that were inlined.
    pub fn frames<'a>(&'a self, stack: &'a Stack) -> impl DoubleEndedIterator<Item = &'a Frame> {
        let all = stack.frames.iter().filter_map(|&address| self.place(address)).flat_map(|place| &place.frames);
        folded(all.collect()).into_iter()
    }

    /// Made of return addresses and of their functions, files and lines.
    #[cfg(test)]
    pub fn for_tests(places: &[OfAddress]) -> Self {
        let frame = |&(function, file, line): &(&str, &str, u32)| Frame {
            function: function.into(),
            symbol: function.into(),
            file: file.into(),
            line,
            module: "program".into(),
        };
        let place = |&(address, frames): &OfAddress| {
            let frames = frames.iter().map(frame).collect();
            (call_of(address), Place { frames, is_known: true })
        };
        Self { places: places.iter().map(place).collect(), build_ids: vec![vec![0xab, 1]], ..Self::default() }
    }
}

fn unknown(name: String) -> Place {
    let frame = Frame { symbol: name.clone(), function: name, ..Frame::default() };
    Place { frames: vec![frame], is_known: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::data::Figures;
    use std::os::unix::fs::MetadataExt;

    /// Where it was in a container, another file may have the name that the kernel told.
    #[test]
    fn of_a_process_that_has_ended_a_file_of_another_number_is_not_relied_on() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let path = std::env::current_exe().unwrap();
        let inode = path.metadata().unwrap().ino() + 1;
        let mapping = Mapping { start: 0x1000, end: 0x2000, inode, path, ..Mapping::default() };
        let stack = Stack { frames: vec![0x1100], figures: Figures::default(), grown_bytes: 0 };
        let profile = Profile { stacks: vec![stack], mappings: vec![mapping], ..Profile::default() };
        let symbols = Symbols::of(&profile, Files::Of(child.id() as i32));
        assert_eq!((symbols.doubts().count(), symbols.build_ids), (1, vec![Vec::new()]));
    }
}
