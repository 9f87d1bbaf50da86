//! A program or library: where its addresses lie in the file, and the functions and lines that they belong to.

use super::files::Files;
use addr2line::Context;
use gimli::{DwLang, Dwarf, EndianArcSlice, LittleEndian, SectionId};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a section that are read at most: those of the largest programs' debug information are below it. What a file
/// claims of itself is not to fill the memory of who looks at it.
const MOST_SECTION: u64 = 4 << 30;

type Data = EndianArcSlice<LittleEndian>;
type Parsed<'a> = object::File<'a, &'a ReadCache<File>>;

/// A function, or a place in one. Where functions are inlined an address is in several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    pub function: String,
    /// As the linker has it.
    pub symbol: String,
    /// Empty: not known.
    pub file: String,
    /// 0: not known.
    pub line: u32,
    /// The name of the program or library; empty: of none.
    pub module: String,
}

impl Frame {
    /// Where it is: `file:line`, or the program or library.
    pub fn place(&self) -> String {
        match (self.file.as_str(), self.line) {
            ("", _) => self.module.clone(),
            (file, 0) => file.to_owned(),
            (file, line) => format!("{file}:{line}"),
        }
    }
}

/// See the module.
pub struct ObjectFile {
    segments: Vec<Segment>,
    /// Sorted by address.
    symbols: Vec<Symbol>,
    context: Option<Context<Data>>,
    pub build_id: Vec<u8>,
}

/// A part of the file that is mapped.
struct Segment {
    address: u64,
    offset: u64,
    len: u64,
}

struct Symbol {
    address: u64,
    /// 0: up to the next.
    len: u64,
    name: String,
}

impl ObjectFile {
    /// Reads a file; `None`: it is no ELF file.
    pub fn read(file: File, files: Files) -> Option<Self> {
        let cache = ReadCache::new(file);
        let parsed = Parsed::parse(&cache).ok()?;
        let build_id = parsed.build_id().ok().flatten().unwrap_or_default().to_vec();
        let mut found =
            Self { segments: segments(&parsed), symbols: symbols(&parsed), context: context(&parsed, files), build_id };
        if found.context.is_none() || parsed.symbols().next().is_none() {
            found.add_separate(files);
        }
        found.symbols.sort_by_key(|symbol| symbol.address);
        Some(found)
    }

    /// Takes from a separate file what this one has not.
    fn add_separate(&mut self, files: Files) {
        let Some(cache) = files.debug(&self.build_id).map(ReadCache::new) else { return };
        let Ok(parsed) = Parsed::parse(&cache) else { return };
        // The name of the file promises it.
        if parsed.build_id().ok().flatten() != Some(self.build_id.as_slice()) {
            return;
        }
        self.context = self.context.take().or_else(|| context(&parsed, files));
        self.symbols.extend(symbols(&parsed));
    }

    /// The address, as the file has it, of an offset in the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let is_in = |segment: &&Segment| offset.wrapping_sub(segment.offset) < segment.len;
        let segment = self.segments.iter().find(is_in)?;
        Some(segment.address.wrapping_add(offset.wrapping_sub(segment.offset)))
    }

    /// The functions that an address is in, the innermost first; none: not known.
    pub fn frames(&self, address: u64) -> Vec<Frame> {
        let symbol = self.symbol(address).map(|symbol| symbol.name.as_str());
        let mut frames = self.by_debug_information(address).unwrap_or_default();
        if frames.is_empty() {
            frames.extend(symbol.map(|name| frame(name, None)));
        }
        // Lines without a function: of assembly, or where the information is of lines alone.
        if let (Some(outermost), Some(name)) = (frames.last_mut(), symbol)
            && outermost.function.is_empty()
        {
            let of_symbol = frame(name, None);
            (outermost.function, outermost.symbol) = (of_symbol.function, of_symbol.symbol);
        }
        frames.retain(|frame| !frame.function.is_empty());
        frames
    }

    fn by_debug_information(&self, address: u64) -> Option<Vec<Frame>> {
        let mut found = self.context.as_ref()?.find_frames(address).skip_all_loads().ok()?;
        let mut frames = Vec::new();
        while let Ok(Some(next)) = found.next() {
            let name = next.function.as_ref().and_then(|function| Some((function.raw_name().ok()?, function.language)));
            let mut read = name.map_or_else(Frame::default, |(name, language)| frame(&name, language));
            if let Some(location) = next.location {
                read.file = location.file.unwrap_or_default().to_owned();
                read.line = location.line.unwrap_or(0);
            }
            frames.push(read);
        }
        Some(frames)
    }

    fn symbol(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = &self.symbols[after.checked_sub(1)?];
        (symbol.len == 0 || address - symbol.address < symbol.len).then_some(symbol)
    }
}

fn frame(symbol: &str, language: Option<DwLang>) -> Frame {
    let function = match addr2line::demangle_auto(Cow::Borrowed(symbol), language) {
        // C++'s functions with C's names are in units of C++.
        Cow::Borrowed(name) if language.is_some() => addr2line::demangle_auto(Cow::Borrowed(name), None),
        other => other,
    };
    Frame { function: function.into_owned(), symbol: symbol.to_owned(), ..Frame::default() }
}

fn segments(parsed: &Parsed) -> Vec<Segment> {
    let of = |segment: object::Segment<'_, '_, &ReadCache<File>>| {
        let (offset, len) = segment.file_range();
        Segment { address: segment.address(), offset, len }
    };
    parsed.segments().map(of).collect()
}

/// Functions of the symbol table; of that for the loader, if there is no other.
fn symbols(parsed: &Parsed) -> Vec<Symbol> {
    let of = |symbol: object::Symbol<'_, '_, &ReadCache<File>>| {
        let is_function = symbol.is_definition() && symbol.kind() == SymbolKind::Text;
        let name = symbol.name().ok().filter(|name| is_function && !name.is_empty())?;
        Some(Symbol { address: symbol.address(), len: symbol.size(), name: name.to_owned() })
    };
    let all: Vec<Symbol> = parsed.symbols().filter_map(of).collect();
    if all.is_empty() { parsed.dynamic_symbols().filter_map(of).collect() } else { all }
}

/// The debug information, if it has any.
fn context(parsed: &Parsed, files: Files) -> Option<Context<Data>> {
    parsed.section_by_name(".debug_info")?;
    let mut dwarf = dwarf(parsed)?;
    if let Ok(Some((path, build_id))) = parsed.gnu_debugaltlink() {
        add_common(&mut dwarf, Path::new(OsStr::from_bytes(path)), build_id, files);
    }
    Context::from_dwarf(dwarf).ok()
}

fn add_common(dwarf: &mut Dwarf<Data>, path: &Path, build_id: &[u8], files: Files) {
    let Some(cache) = files.debug(build_id).or_else(|| files.common_debug(path)).map(ReadCache::new) else { return };
    if let Some(common) = Parsed::parse(&cache).ok().and_then(|parsed| self::dwarf(&parsed)) {
        dwarf.set_sup(common);
    }
}

fn dwarf(parsed: &Parsed) -> Option<Dwarf<Data>> {
    let section = |id: SectionId| {
        let bytes = parsed.section_by_name(id.name()).and_then(|section| {
            let range = section.compressed_file_range().ok()?;
            (range.uncompressed_size <= MOST_SECTION).then(|| section.uncompressed_data().ok())?
        });
        Ok::<_, ()>(Data::new(Arc::from(bytes.unwrap_or_default().as_ref()), LittleEndian))
    };
    Dwarf::load(section).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::mappings;
    use procfs::process::Process;

    #[inline(never)]
    fn here() -> usize {
        here as fn() -> usize as usize
    }

    #[test]
    fn a_function_of_this_program_is_found_with_its_line() {
        let mappings = mappings::executable(&Process::myself().unwrap().maps().unwrap());
        let address = here() as u64;
        let mapping = &mappings[mappings::find(&mappings, address).unwrap()];
        let object = ObjectFile::read(Files::Own.mapped(mapping).unwrap(), Files::Own).unwrap();
        let at = object.address_of(mapping.file_offset(address)).unwrap();
        let frames = object.frames(at);
        let outermost = frames.last().unwrap();
        assert!(outermost.function.ends_with("object_file::tests::here"), "{frames:?}");
        // Built without debug information there are no lines.
        if outermost.line > 0 {
            assert!(outermost.file.ends_with("object_file.rs"), "{frames:?}");
        }
        assert!(object.symbol(u64::MAX).is_none_or(|last| last.len == 0));
        assert_eq!(object.address_of(u64::MAX), None);
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        assert_eq!(frame("_ZN3foo3barEi", None).function, "foo::bar(int)");
        assert_eq!(frame("main", None).function, "main");
        assert!(ObjectFile::read(tempfile::tempfile().unwrap(), Files::Own).is_none());
    }
}
