//! A profile in pprof's format, gzip around it, which `go tool pprof` and most viewers of profiles read.

use super::messages as out;
use crate::base::failure::Failure;
use crate::profile::data::{Measure, Profile, Stack};
use crate::profile::symbols::files::hex;
use crate::profile::symbols::object_file::Frame;
use crate::profile::symbols::{Place, Symbols, call_of, mappings};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use std::collections::HashMap;
use std::io::Write;

/// The counts of each stack: names and units that pprof's readers know from Go's heap profiles.
const SAMPLE_TYPES: [(&str, &str); 4] =
    [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")];

/// The file.
pub fn file(profile: &Profile, symbols: &Symbols, measure: Measure) -> Result<Vec<u8>, Failure> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let packed = gzip.write_all(&message(profile, symbols, measure).encode_to_vec()).and_then(|()| gzip.finish());
    packed.map_err(|error| Failure::of_weir(format!("cannot compress the profile: {error}")))
}

fn message(profile: &Profile, symbols: &Symbols, measure: Measure) -> out::Profile {
    let mut writer = Writer::new(symbols);
    let sample_type = SAMPLE_TYPES.map(|(name, unit)| writer.value_type(name, unit)).to_vec();
    writer.mappings(profile);
    let sample = profile.stacks.iter().map(|stack| writer.sample(profile, stack)).collect();
    let mut notes = vec![format!("weir {}: {}", env!("CARGO_PKG_VERSION"), profile.subject)];
    notes.extend(profile.notes.iter().cloned().chain(symbols.doubts()));
    let comment = notes.iter().map(|note| writer.text(note)).collect();
    let period_type = Some(writer.value_type("space", "bytes"));
    // What a reader shows first.
    let default_sample_type = writer.text(if measure == Measure::Live { "inuse_space" } else { "alloc_space" });
    out::Profile {
        sample_type,
        sample,
        mapping: writer.mappings,
        location: writer.locations,
        function: writer.functions,
        string_table: writer.texts,
        time_nanos: signed(profile.began_ns),
        duration_nanos: signed(profile.duration_ns),
        period_type,
        period: signed(profile.mean_bytes),
        comment,
        default_sample_type,
    }
}

/// The tables that samples refer to. Numbers of entries begin at 1; those of texts at 0, which is the empty one.
struct Writer<'a> {
    symbols: &'a Symbols,
    texts: Vec<String>,
    text_numbers: HashMap<String, i64>,
    mappings: Vec<out::Mapping>,
    locations: Vec<out::Location>,
    location_numbers: HashMap<u64, u64>,
    functions: Vec<out::Function>,
    function_numbers: HashMap<(i64, i64), u64>,
}

impl<'a> Writer<'a> {
    fn new(symbols: &'a Symbols) -> Self {
        let (texts, text_numbers) = (vec![String::new()], HashMap::from([(String::new(), 0)]));
        let (mappings, locations, functions) = (Vec::new(), Vec::new(), Vec::new());
        let (location_numbers, function_numbers) = (HashMap::new(), HashMap::new());
        Self { symbols, texts, text_numbers, mappings, locations, location_numbers, functions, function_numbers }
    }

    fn text(&mut self, text: &str) -> i64 {
        let next = self.texts.len() as i64;
        let number = *self.text_numbers.entry(text.to_owned()).or_insert(next);
        if number == next {
            self.texts.push(text.to_owned());
        }
        number
    }

    fn value_type(&mut self, name: &str, unit: &str) -> out::ValueType {
        out::ValueType { r#type: self.text(name), unit: self.text(unit) }
    }

    fn mappings(&mut self, profile: &Profile) {
        for (at, mapping) in profile.mappings.iter().enumerate() {
            let build_id = self.symbols.build_ids.get(at).map_or_else(String::new, |id| hex(id));
            let entry = out::Mapping {
                id: at as u64 + 1,
                memory_start: mapping.start,
                memory_limit: mapping.end,
                file_offset: mapping.offset,
                filename: self.text(&mapping.path.to_string_lossy()),
                build_id: self.text(&build_id),
                ..out::Mapping::default()
            };
            self.mappings.push(entry);
        }
    }

    fn sample(&mut self, profile: &Profile, stack: &Stack) -> out::Sample {
        let figures = &stack.figures;
        let value =
            [figures.allocated_objects, figures.allocated_bytes, figures.live_objects, figures.live_bytes].map(signed);
        let location_id = stack.frames.iter().map(|&address| self.location(profile, address)).collect();
        out::Sample { location_id, value: value.to_vec() }
    }

    fn location(&mut self, profile: &Profile, return_address: u64) -> u64 {
        if let Some(&number) = self.location_numbers.get(&return_address) {
            return number;
        }
        let call = call_of(return_address);
        let symbols = self.symbols;
        let place = symbols.place(return_address).filter(|place| place.is_known);
        let line = place.map_or_else(Vec::new, |place| place.frames.iter().map(|frame| self.line(frame)).collect());
        let mapping = mappings::find(&profile.mappings, call);
        if let Some((at, place)) = mapping.zip(place) {
            note(&mut self.mappings[at], place);
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.push(out::Location {
            id,
            mapping_id: mapping.map_or(0, |at| at as u64 + 1),
            address: call,
            line,
        });
        self.location_numbers.insert(return_address, id);
        id
    }

    fn line(&mut self, frame: &Frame) -> out::Line {
        let (name, filename) = (self.text(&frame.function), self.text(&frame.file));
        let next = self.functions.len() as u64 + 1;
        let id = *self.function_numbers.entry((name, filename)).or_insert(next);
        if id == next {
            let system_name = self.text(&frame.symbol);
            self.functions.push(out::Function { id, name, system_name, filename });
        }
        out::Line { function_id: id, line: frame.line.into() }
    }
}

/// A reader does not look up by itself what a mapping says to have.
fn note(mapping: &mut out::Mapping, place: &Place) {
    mapping.has_functions = true;
    mapping.has_filenames |= place.frames.iter().any(|frame| !frame.file.is_empty());
    mapping.has_line_numbers |= place.frames.iter().any(|frame| frame.line > 0);
    mapping.has_inline_frames |= place.frames.len() > 1;
}

fn signed(value: u64) -> i64 {
    value.min(i64::MAX as u64) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::data::Figures;
    use crate::profile::symbols::mappings::Mapping;
    use flate2::read::GzDecoder;
    use std::io::Read;

    #[test]
    fn what_is_written_is_read_again() {
        let mapping = Mapping { start: 0x1000, end: 0x2000, path: "/bin/p".into(), ..Mapping::default() };
        let figures = Figures { allocated_objects: 4, allocated_bytes: 400, live_objects: 1, live_bytes: u64::MAX };
        let stack = |frames: &[u64]| Stack { frames: frames.to_vec(), figures, grown_bytes: 0 };
        let profile = Profile {
            subject: "process 1".into(),
            stacks: vec![stack(&[0x1011, 0x1101]), stack(&[0x1101, 0x9000])],
            mappings: vec![mapping],
            mean_bytes: 1 << 19,
            ..Profile::default()
        };
        let symbols = Symbols::for_tests(&[
            (0x1011, &[("inner", "a.c", 3), ("outer", "a.c", 9)]),
            (0x1101, &[("main", "a.c", 20)]),
        ]);
        let mut bytes = Vec::new();
        GzDecoder::new(file(&profile, &symbols, Measure::Live).unwrap().as_slice()).read_to_end(&mut bytes).unwrap();
        let read = out::Profile::decode(bytes.as_slice()).unwrap();
        let text = |number: i64| read.string_table[number as usize].as_str();
        assert_eq!(read.string_table[0], "");
        assert_eq!(read.sample_type.iter().map(|it| text(it.r#type)).collect::<Vec<_>>(), SAMPLE_TYPES.map(|it| it.0));
        assert_eq!((text(read.default_sample_type), read.period), ("inuse_space", 1 << 19));
        assert_eq!(read.sample[0].value, [4, 400, 1, i64::MAX]);
        assert_eq!(read.sample.iter().map(|it| it.location_id.as_slice()).collect::<Vec<_>>(), [[1, 2], [2, 3]]);
        let location = &read.location[0];
        assert_eq!((location.address, location.mapping_id, location.line.len()), (0x1010, 1, 2));
        let function = |line: &out::Line| text(read.function[line.function_id as usize - 1].name).to_owned();
        assert_eq!(location.line.iter().map(function).collect::<Vec<_>>(), ["inner", "outer"]);
        assert_eq!((read.location[2].mapping_id, read.location[2].line.len()), (0, 0));
        let mapping = &read.mapping[0];
        assert_eq!((text(mapping.filename), text(mapping.build_id)), ("/bin/p", "ab01"));
        assert!(mapping.has_functions && mapping.has_line_numbers && mapping.has_inline_frames);
    }
}
