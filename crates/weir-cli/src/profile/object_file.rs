//! A program or library: where its addresses lie in the file, and the functions and lines that they belong to.

use super::budget::{Bounded, Budget, Charged};
use super::files::Files;
use super::function_name::{cut, readable};
use super::meter::{Meter, Metered};
use super::section;
use addr2line::Context;
use gimli::{AbbreviationsCacheStrategy, Dwarf, SectionId};
use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

type Parsed<'a> = object::File<'a, Bounded<'a>>;

/// Bytes of an address's frames that nobody counts.
const FREE: usize = 1024;

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
    context: Option<Context<Metered>>,
    /// Of the file with the context.
    meter: Rc<Meter>,
    pub build_id: Vec<u8>,
    /// Of the file, and of the separate one if there is one.
    budgets: Vec<Budget>,
}

/// A file that is read, within its budget.
struct Opened {
    /// For what is not to go through the cache.
    file: File,
    cache: ReadCache<Charged>,
    budget: Budget,
}

impl Opened {
    fn new(file: File) -> Option<Self> {
        let budget = Budget::for_length(file.metadata().ok()?.len());
        let cache = ReadCache::new(Charged::new(file.try_clone().ok()?, budget.clone()));
        Some(Self { file, cache, budget })
    }

    fn parsed(&self) -> Option<Parsed<'_>> {
        Parsed::parse(Bounded { cache: &self.cache, budget: &self.budget }).ok()
    }
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
        let opened = Opened::new(file)?;
        let parsed = opened.parsed()?;
        let build_id = parsed.build_id().ok().flatten().unwrap_or_default().to_vec();
        let meter = Meter::new();
        let mut found = Self {
            segments: segments(&parsed),
            symbols: symbols(&parsed, &opened.budget),
            context: context(&opened, &parsed, files, &meter),
            meter,
            build_id,
            budgets: vec![opened.budget.clone()],
        };
        if found.context.is_none() || parsed.symbols().next().is_none() {
            found.add_separate(files);
        }
        found.symbols.sort_by_key(|symbol| symbol.address);
        Some(found)
    }

    /// Takes from a separate file what this one has not.
    fn add_separate(&mut self, files: Files) {
        let Some(opened) = files.debug(&self.build_id).and_then(Opened::new) else { return };
        let Some(parsed) = opened.parsed() else { return };
        // The name of the file promises it.
        if parsed.build_id().ok().flatten() != Some(self.build_id.as_slice()) {
            return;
        }
        self.symbols.extend(symbols(&parsed, &opened.budget));
        if self.context.is_none() {
            self.context = context(&opened, &parsed, files, &self.meter);
        }
        self.budgets.push(opened.budget.clone());
    }

    /// Whether more was wanted of it than its budget is.
    pub fn is_partial(&self) -> bool {
        self.meter.is_over() || self.budgets.iter().any(Budget::is_exceeded)
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
            frames.extend(symbol.map(frame));
        }
        // Lines without a function: of assembly, or where the information is of lines alone.
        if let (Some(outermost), Some(name)) = (frames.last_mut(), symbol)
            && outermost.function.is_empty()
        {
            let of_symbol = frame(name);
            (outermost.function, outermost.symbol) = (of_symbol.function, of_symbol.symbol);
        }
        frames.retain(|frame| !frame.function.is_empty());
        frames
    }

    fn by_debug_information(&self, address: u64) -> Option<Vec<Frame>> {
        self.meter.begin();
        let frames = self.metered_frames(address);
        self.meter.end();
        frames
    }

    fn metered_frames(&self, address: u64) -> Option<Vec<Frame>> {
        // The reader looks at the byte behind the address as well.
        let context = self.context.as_ref().filter(|_| !self.meter.is_over() && address < u64::MAX)?;
        let mut found = context.find_frames(address).skip_all_loads().ok()?;
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while let Ok(Some(next)) = found.next() {
            let name = next.function.as_ref().and_then(|function| function.raw_name().ok());
            let mut read = name.map_or_else(Frame::default, |name| frame(&name));
            if let Some(location) = next.location {
                read.file = cut(location.file.unwrap_or_default()).to_owned();
                read.line = location.line.unwrap_or(0);
            }
            bytes += size_of::<Frame>() + read.function.len() + read.symbol.len() + read.file.len();
            frames.push(read);
        }
        // A few long names may be those of all addresses.
        self.budgets.last()?.take(bytes.saturating_sub(FREE) as u64)?;
        Some(frames)
    }

    fn symbol(&self, address: u64) -> Option<&Symbol> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = &self.symbols[after.checked_sub(1)?];
        (symbol.len == 0 || address - symbol.address < symbol.len).then_some(symbol)
    }
}

fn frame(symbol: &str) -> Frame {
    Frame { function: readable(symbol), symbol: cut(symbol).to_owned(), ..Frame::default() }
}

fn segments(parsed: &Parsed) -> Vec<Segment> {
    let of = |segment: object::Segment<'_, '_, Bounded<'_>>| {
        let (offset, len) = segment.file_range();
        Segment { address: segment.address(), offset, len }
    };
    parsed.segments().map(of).collect()
}

/// Functions of the symbol table; of that for the loader, if there is no other.
fn symbols(parsed: &Parsed, budget: &Budget) -> Vec<Symbol> {
    let of = |symbol: object::Symbol<'_, '_, Bounded<'_>>| {
        let is_function = symbol.is_definition() && symbol.kind() == SymbolKind::Text;
        let name = symbol.name().ok().filter(|name| is_function && !name.is_empty())?;
        // Any number of symbols may have one name.
        budget.take((size_of::<Symbol>() + name.len()) as u64)?;
        Some(Symbol { address: symbol.address(), len: symbol.size(), name: name.to_owned() })
    };
    let all: Vec<Symbol> = parsed.symbols().filter_map(of).collect();
    if all.is_empty() { parsed.dynamic_symbols().filter_map(of).collect() } else { all }
}

/// The debug information, if it has any.
fn context(opened: &Opened, parsed: &Parsed, files: Files, meter: &Rc<Meter>) -> Option<Context<Metered>> {
    parsed.section_by_name(".debug_info")?;
    let mut dwarf = dwarf(opened, parsed, meter)?;
    if let Ok(Some((path, build_id))) = parsed.gnu_debugaltlink() {
        add_common(&mut dwarf, Path::new(OsStr::from_bytes(path)), build_id, files, meter);
    }
    meter.bound_by(&opened.budget);
    meter.begin();
    // Where units share a table it is read once.
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    let context = Context::from_dwarf(dwarf).ok();
    meter.end();
    context
}

fn add_common(dwarf: &mut Dwarf<Metered>, path: &Path, build_id: &[u8], files: Files, meter: &Rc<Meter>) {
    let found = files.debug(build_id).or_else(|| files.common_debug(path)).and_then(Opened::new);
    let Some(opened) = found else { return };
    if let Some(common) = opened.parsed().and_then(|parsed| self::dwarf(&opened, &parsed, meter)) {
        dwarf.set_sup(common);
    }
}

fn dwarf(opened: &Opened, parsed: &Parsed, meter: &Rc<Meter>) -> Option<Dwarf<Metered>> {
    let section = |id: SectionId| {
        let bytes =
            parsed.section_by_name(id.name()).and_then(|section| section::read(&section, &opened.file, &opened.budget));
        Ok::<_, ()>(Metered::new(bytes.unwrap_or_default(), meter))
    };
    Dwarf::load(section).ok()
}

#[cfg(test)]
#[path = "object_file_tests.rs"]
mod hostile_tests;

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
    fn what_is_no_object_file_is_none() {
        assert!(ObjectFile::read(tempfile::tempfile().unwrap(), Files::Own).is_none());
    }

    /// An ELF file with a compressed section of `size` zeros, which a number of names share.
    fn bomb(size: u64, names: &[&str]) -> File {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), size), &mut zlib).unwrap();
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        // Format 1 is zlib.
        let stored = [words(&[1, size, 1]), zlib.finish().unwrap()].concat();
        let mut text = vec![0];
        let mut offsets = Vec::new();
        for name in names.iter().chain(&[".shstrtab"]) {
            offsets.push(text.len() as u64);
            text.extend(name.bytes().chain([0]));
        }
        let (of_names, of_headers) = (64 + stored.len(), (64 + stored.len() + text.len()).next_multiple_of(8));
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        file.extend(words(&[3 | 62 << 16 | 1 << 32, 0, 0, of_headers as u64]));
        // 64 bytes each of this header and of a section's.
        let count = names.len() as u64 + 2;
        file.extend(words(&[64 << 32, 64 << 16 | count << 32 | (count - 1) << 48]));
        assert_eq!(file.len(), 64);
        file.extend([stored.as_slice(), &text].concat());
        file.resize(of_headers, 0);
        file.extend(words(&[0; 8]));
        for &offset in &offsets[..names.len()] {
            file.extend(words(&[offset | 1 << 32, 0x800, 0, 64, stored.len() as u64, 0, 1, 0]));
        }
        file.extend(words(&[offsets[names.len()] | 3 << 32, 0, 0, of_names as u64, text.len() as u64, 0, 1, 0]));
        let mut made = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut made, &file).unwrap();
        made
    }

    #[test]
    fn a_small_file_cannot_take_much_memory() {
        let names = [".debug_info", ".debug_abbrev", ".debug_str", ".debug_line", ".debug_ranges", ".debug_loc"];
        // All of this is within the budget of a small file, and then the last one is not.
        for (size, is_partial) in [(1 << 20, false), (8 << 20, true)] {
            let object = ObjectFile::read(bomb(size, &names), Files::Own).unwrap();
            assert_eq!(object.is_partial(), is_partial, "{size} bytes");
        }
    }

    #[test]
    fn a_section_is_what_was_compressed() {
        let opened = Opened::new(bomb(1000, &[".debug_str"])).unwrap();
        let parsed = opened.parsed().unwrap();
        let found = parsed.section_by_name(".debug_str").unwrap();
        assert_eq!(section::read(&found, &opened.file, &opened.budget).unwrap()[..], [0; 1000]);
    }
}
