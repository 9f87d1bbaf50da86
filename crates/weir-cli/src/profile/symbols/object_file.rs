//! A program or library: where its addresses lie in the file, and the functions and lines that they belong to.
//!
//! A file of another user's may claim anything of itself. It may have sections that become a thousand times as large, functions
//! that are inlined without end, or tables that all units share. What a byte of it takes to read cannot be known before. So a
//! [`child`] reads it, to which the kernel gives so much memory and time and no more.

use super::files::{self, Files};
use super::mappings::Mapping;
use super::names::{cut, readable};
use crate::processes::child;
use crate::processes::regular::Regular;
use addr2line::Context;
use gimli::{AbbreviationsCacheStrategy, Dwarf, EndianSlice, LittleEndian, SectionId};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SymbolKind};
use procfs::Current;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use weir_linux::pressure::group::cgroup::{GroupDir, Membership};
use weir_linux::pressure::group::memcg;

/// For how long a file is read and looked up in. The largest programs take some seconds.
const TIME: Duration = Duration::from_secs(60);
/// Bytes of memory for each byte of the file: debug information that is compressed is a third to a tenth of what it was.
const EXPANSION: u64 = 16;
/// Small files may take as much, bytes: their debug information may be in another, larger one.
const LEAST: u64 = 256 << 20;
/// None takes more, bytes: the largest programs' debug information is below it.
const MOST: u64 = 4 << 30;
/// Nor more than this part of the memory that is available, on the machine and to this command's cgroup: 1 / SHARE. Beyond the
/// limit of a cgroup the kernel kills, and may choose the process that is profiled.
const SHARE: u64 = 4;
/// For how long all files of a profile are read.
const TIME_OF_ALL: Duration = Duration::from_secs(180);
/// Bytes that are told of all files of a profile at most, and this part of the memory that is available. As functions in memory they
/// are two to three times as large.
const TOLD: u64 = 256 << 20;
const TOLD_SHARE: u64 = 16;
/// Functions of an address at most.
const FUNCTIONS: usize = 256;

type Bytes = EndianSlice<'static, LittleEndian>;
type Parsed = object::File<'static, &'static ReadCache<Regular>>;

/// A function, or a place in one. Where functions are inlined an address is in several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

    fn of_symbol(symbol: &str) -> Self {
        Self { function: readable(symbol), symbol: cut(symbol).to_owned(), ..Self::default() }
    }
}

/// A place in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// The place's address, as the file has it.
    pub address: u64,
    /// The functions that it is in, the innermost first; none: not known.
    pub frames: Vec<Frame>,
}

/// The answer about a file.
#[derive(Debug, Default)]
pub struct Found {
    pub build_id: Vec<u8>,
    /// The place of each offset that was asked for, in their order; none: it lies nowhere in memory, or was not come to.
    pub places: Vec<Option<Located>>,
    /// Whether all was read: it is an object file, and took no more than it may.
    pub is_whole: bool,
    /// Whether it is another file than the one that was mapped.
    pub is_other: bool,
    /// Whether it, or what it refers to, did not answer in time, or too many others had not.
    pub is_silent: bool,
}

/// A line that the child tells.
#[derive(Serialize, Deserialize)]
enum Line {
    BuildId(Vec<u8>),
    /// The number of an offset, and what is there; told again once more is known.
    Place(usize, Located),
    /// There is debug information that cannot be read.
    Damaged,
    /// See [`Found::is_other`].
    Other,
}

/// What the files of a profile may still take together: there may be thousands, each of which takes as much as one may.
pub struct Budget {
    /// Bytes that are told.
    told: u64,
    /// No file is read after that.
    until: Instant,
    /// How many files may not answer.
    silent: usize,
    /// Bytes of memory that a small file may take.
    least: u64,
}

impl Budget {
    /// Of a profile that is looked up now.
    pub fn new() -> Self {
        let told = available().map_or(TOLD, |available| TOLD.min(available / TOLD_SHARE));
        Self { told, until: Instant::now() + TIME_OF_ALL, silent: child::MOST_SILENT, least: LEAST }
    }
}

/// Looks up places of a mapping's file by their offsets in it, as far as the budget goes, which is less by what that took.
pub fn look_up(mapping: &Mapping, files: Files, offsets: &[u64], budget: &mut Budget) -> Found {
    let available = available();
    let mut found = Found { places: vec![None; offsets.len()], is_silent: budget.silent == 0, ..Found::default() };
    let time = budget.until.saturating_duration_since(Instant::now()).min(TIME);
    if budget.told == 0 || budget.silent == 0 || time.is_zero() {
        return found;
    }
    let (mut is_object, mut is_damaged) = (false, false);
    let work = |tell: &mut dyn FnMut(&Line)| {
        let Some(file) = files.mapped(mapping) else { return };
        // Asked once the file is found: before that the process may end.
        if !files.are_its() && !files::is(&file, mapping.inode) {
            tell(&Line::Other);
        }
        if child::bound_memory(granted(file.length(), budget.least, available)) {
            read(file, files, offsets, tell);
        }
    };
    let hear = |line| match line {
        Line::BuildId(id) => (found.build_id, is_object) = (id, true),
        Line::Damaged => is_damaged = true,
        Line::Other => found.is_other = true,
        Line::Place(at, located) => found.places[at] = Some(located),
    };
    let Ok(told) = child::tell(time, budget.told, work, hear) else { return found };
    budget.told = budget.told.saturating_sub(told.bytes);
    budget.silent -= usize::from(told.is_silent);
    found.is_silent = told.is_silent;
    found.is_whole = told.is_whole && is_object && !is_damaged;
    found
}

/// Bytes of memory for a file of this length, where a small one may take `least`.
fn granted(length: u64, least: u64, available: Option<u64>) -> u64 {
    let most = available.map_or(MOST, |available| MOST.min(available / SHARE));
    length.saturating_mul(EXPANSION).max(least).min(most)
}

/// Bytes that this command may take without harm to others; none: not known.
fn available() -> Option<u64> {
    let machine = procfs::Meminfo::current().ok().and_then(|it| it.mem_available);
    let group = Membership::find().memory.and_then(|group| GroupDir::open(&group).ok());
    machine.into_iter().chain(group.and_then(left)).min()
}

/// Bytes that are left below the limits of a group and of those above it; none: there is no limit.
fn left(group: GroupDir) -> Option<u64> {
    // File pages that the kernel would drop do not count, however far the limit is.
    let left = memcg::rooms(&group, 100).map(|room| room.left()).min();
    group.close();
    left
}

/// The child's work. All that is taken for it is freed with the child's end.
fn read(file: Regular, files: Files, offsets: &[u64], tell: &mut dyn FnMut(&Line)) {
    let Some(parsed) = parse(file) else { return };
    let build_id = parsed.build_id().ok().flatten().unwrap_or_default().to_vec();
    tell(&Line::BuildId(build_id.clone()));
    let has_all = parsed.section_by_name(".debug_info").is_some() && parsed.symbols().next().is_some();
    // The name of the separate file promises that it is this one's.
    let is_its = |it: &Parsed| it.build_id().ok().flatten() == Some(build_id.as_slice());
    let separate = (!has_all).then(|| files.debug(&build_id).and_then(parse).filter(is_its)).flatten();
    let mut symbols = symbols(&parsed);
    symbols.extend(separate.iter().flat_map(self::symbols));
    symbols.sort_by_key(|symbol| symbol.address);
    let addresses: Vec<(usize, u64)> =
        offsets.iter().enumerate().filter_map(|(at, &offset)| Some((at, address_of(&parsed, offset)?))).collect();
    for &(at, address) in &addresses {
        let frames = symbol_at(&symbols, address).map(|it| Frame::of_symbol(it.name)).into_iter().collect();
        tell(&Line::Place(at, Located { address, frames }));
    }
    // Beyond what symbols say, which may be all that there is.
    let has_lines = |parsed: &&Parsed| parsed.section_by_name(".debug_info").is_some();
    let Some(with_lines) = [Some(&parsed), separate.as_ref()].into_iter().flatten().find(has_lines) else { return };
    let Some(context) = context(with_lines, files) else { return tell(&Line::Damaged) };
    for (at, address) in addresses {
        let symbol = symbol_at(&symbols, address).map(|it| it.name);
        let frames = frames(&context, address, symbol);
        if !frames.is_empty() {
            tell(&Line::Place(at, Located { address, frames }));
        }
    }
}

fn parse(file: Regular) -> Option<Parsed> {
    Parsed::parse(Box::leak(Box::new(ReadCache::new(file)))).ok()
}

/// The address, as the file has it, of an offset in the file.
fn address_of(parsed: &Parsed, offset: u64) -> Option<u64> {
    parsed.segments().find_map(|segment| {
        let (begin, len) = segment.file_range();
        let inside = offset.wrapping_sub(begin);
        (inside < len).then(|| segment.address().wrapping_add(inside))
    })
}

struct Symbol {
    address: u64,
    /// 0: up to the next.
    len: u64,
    name: &'static str,
}

/// Functions of the symbol table, or of the table for the loader, if there is no other.
fn symbols(parsed: &Parsed) -> Vec<Symbol> {
    let of = |symbol: object::Symbol<'static, '_, &'static ReadCache<Regular>>| {
        let is_function = symbol.is_definition() && symbol.kind() == SymbolKind::Text;
        let name = symbol.name().ok().filter(|name| is_function && !name.is_empty())?;
        Some(Symbol { address: symbol.address(), len: symbol.size(), name })
    };
    let all: Vec<Symbol> = parsed.symbols().filter_map(of).collect();
    if all.is_empty() { parsed.dynamic_symbols().filter_map(of).collect() } else { all }
}

fn symbol_at(symbols: &[Symbol], address: u64) -> Option<&Symbol> {
    let after = symbols.partition_point(|symbol| symbol.address <= address);
    let symbol = &symbols[after.checked_sub(1)?];
    (symbol.len == 0 || address - symbol.address < symbol.len).then_some(symbol)
}

/// The debug information; none: it is damaged, or takes too much.
fn context(parsed: &Parsed, files: Files) -> Option<Context<Bytes>> {
    let mut dwarf = dwarf(parsed)?;
    // What several files' debug information has in common.
    if let Ok(Some((path, build_id))) = parsed.gnu_debugaltlink() {
        let path = Path::new(OsStr::from_bytes(path));
        let common = files.debug(build_id).or_else(|| files.common_debug(path)).and_then(parse);
        if let Some(common) = common.and_then(|common| self::dwarf(&common)) {
            dwarf.set_sup(common);
        }
    }
    // Where units share a table it is read once.
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    Context::from_dwarf(dwarf).ok()
}

fn dwarf(parsed: &Parsed) -> Option<Dwarf<Bytes>> {
    let section = |id: SectionId| {
        let bytes = parsed.section_by_name(id.name()).map(|section| section.uncompressed_data()).transpose()?;
        let bytes: &'static [u8] = match bytes.unwrap_or_default() {
            Cow::Borrowed(bytes) => bytes,
            Cow::Owned(bytes) => bytes.leak(),
        };
        Ok::<_, object::Error>(EndianSlice::new(bytes, LittleEndian))
    };
    Dwarf::load(section).ok()
}

/// The functions that an address is in, by lines; `symbol` is the one of the symbol table.
fn frames(context: &Context<Bytes>, address: u64, symbol: Option<&str>) -> Vec<Frame> {
    let mut frames = Vec::new();
    // The reader looks at the byte behind the address as well.
    let found = (address < u64::MAX).then(|| context.find_frames(address).skip_all_loads().ok()).flatten();
    let Some(mut found) = found else { return frames };
    while let Ok(Some(next)) = found.next() {
        let name = next.function.as_ref().and_then(|function| function.raw_name().ok());
        let mut frame = name.map_or_else(Frame::default, |name| Frame::of_symbol(&name));
        if let Some(location) = next.location {
            frame.file = cut(location.file.unwrap_or_default()).to_owned();
            frame.line = location.line.unwrap_or(0);
        }
        if frames.len() < FUNCTIONS {
            frames.push(frame);
        }
    }
    // Lines without a function. They are of assembly, or the information is of lines alone.
    if let (Some(outermost), Some(name)) = (frames.last_mut(), symbol)
        && outermost.function.is_empty()
    {
        let of_symbol = Frame::of_symbol(name);
        (outermost.function, outermost.symbol) = (of_symbol.function, of_symbol.symbol);
    }
    frames.retain(|frame| !frame.function.is_empty());
    frames
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::symbols::mappings;
    use procfs::process::Process;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use weir_linux::os::file::path::FixedPath;
    use weir_linux::pressure::group::cgroup::{Cgroup, Version};

    /// Looks up in a file without a name, which the child opens by this process's descriptor.
    fn look_up_in(file: &File, offsets: &[u64], budget: &mut Budget) -> Found {
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
        look_up(&Mapping { path, ..Mapping::default() }, Files::Own, offsets, budget)
    }

    #[inline(never)]
    fn here() -> usize {
        here as fn() -> usize as usize
    }

    #[test]
    fn a_function_of_this_program_is_found_with_its_line() {
        let mappings = mappings::executable(&Process::myself().unwrap().maps().unwrap());
        let address = here() as u64;
        let mapping = &mappings[mappings::find(&mappings, address).unwrap()];
        let found = look_up(mapping, Files::Own, &[mapping.file_offset(address), u64::MAX], &mut Budget::new());
        assert!(found.is_whole && found.places[1].is_none(), "{found:?}");
        let frames = &found.places[0].as_ref().unwrap().frames;
        let outermost = frames.last().unwrap();
        assert!(outermost.function.ends_with("object_file::tests::here"), "{frames:?}");
        // Built without debug information there are no lines.
        if outermost.line > 0 {
            assert!(outermost.file.ends_with("object_file.rs"), "{frames:?}");
        }
    }

    #[test]
    fn what_is_no_object_file_is_none() {
        assert!(!look_up_in(&tempfile::tempfile().unwrap(), &[0], &mut Budget::new()).is_whole);
    }

    #[test]
    fn a_file_is_granted_no_more_than_a_part_of_what_is_available() {
        assert_eq!([0, 1 << 26, 1 << 40].map(|length| granted(length, LEAST, None)), [LEAST, 1 << 30, MOST]);
        assert_eq!([0, 1 << 40].map(|length| granted(length, LEAST, Some(4 << 20))), [1 << 20; 2]);
    }

    #[test]
    fn what_is_left_below_the_limit_of_a_group_is_available() {
        let top = tempfile::tempdir().unwrap();
        let group = || {
            let dir = FixedPath::from_parts(&[top.path().as_os_str().as_bytes()]).unwrap();
            GroupDir::open(&Cgroup { version: Version::V2, dir, depth: 0 }).unwrap()
        };
        assert_eq!(left(group()), None);
        let write = |file, text| std::fs::write(top.path().join(file), text).unwrap();
        write("memory.max", "1000\n");
        write("memory.current", "900\n");
        write("memory.stat", "inactive_file 300\n");
        assert_eq!(left(group()), Some(400));
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// An ELF file with these sections, mapped at address 0 as a whole.
    fn elf(sections: &[(&str, Vec<u8>)]) -> File {
        let (mut names, mut contents, mut headers) = (vec![0], Vec::new(), words(&[0; 8]));
        let mut add = |name: &str, kind: u64, bytes: &[u8]| {
            let at = names.len() as u64;
            names.extend(name.bytes().chain([0]));
            // How it is compressed comes first: 1 is zlib.
            let flags = if bytes.starts_with(&1u64.to_le_bytes()) { 0x800 } else { 0 };
            let place = [at | kind << 32, flags, 0, 120 + contents.len() as u64, bytes.len() as u64, 0, 1, 0];
            headers.extend(words(&place));
            contents.extend(bytes);
            names.clone()
        };
        sections.iter().for_each(|(name, bytes)| drop(add(name, 1, bytes)));
        let of_names = add(".shstrtab", 3, b"");
        let of_headers = 120 + contents.len() + of_names.len();
        // The names come last, and their length was not known.
        let last = headers.len() - 32;
        headers[last..last + 8].copy_from_slice(&(of_names.len() as u64).to_le_bytes());
        let count = sections.len() as u64 + 2;
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend(words(&[3 | 62 << 16 | 1 << 32, 0, 64, of_headers as u64]));
        file.extend(words(&[64 << 32 | 56 << 48, 1 | 64 << 16 | count << 32 | (count - 1) << 48]));
        file.extend(words(&[1 | 5 << 32, 0, 0, 0, 1 << 30, 1 << 30, 4096]));
        file.extend([contents, of_names, headers].concat());
        let mut made = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut made, &file).unwrap();
        made
    }

    /// A unit of DWARF 4, with these entries.
    fn unit(entries: &[u8]) -> Vec<u8> {
        [&(entries.len() as u32 + 7).to_le_bytes()[..], &[4, 0, 0, 0, 0, 0, 8], entries].concat()
    }

    /// Abbreviations: number, tag, whether there are children, attributes and their forms.
    fn abbreviations(all: &[(u8, u8, bool, &[[u8; 2]])]) -> Vec<u8> {
        let one = |&(number, tag, has_children, attributes): &(u8, u8, bool, &[[u8; 2]])| {
            [&[number, tag, has_children.into()], attributes.concat().as_slice(), &[0, 0]].concat()
        };
        all.iter().flat_map(one).chain([0]).collect()
    }

    const UNIT: u8 = 0x11;
    const FUNCTION: u8 = 0x2e;
    const INLINED: u8 = 0x1d;
    /// `DW_AT_low_pc`, as an address, and `DW_AT_high_pc`, as 8 bytes.
    const RANGE: [[u8; 2]; 2] = [[0x11, 1], [0x12, 7]];

    /// Sections of zeros that were compressed a thousandfold.
    fn zeros(mib: usize) -> File {
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::copy(&mut std::io::Read::take(std::io::repeat(0), (mib << 20) as u64), &mut zlib).unwrap();
        let stored = [words(&[1, (mib << 20) as u64, 1]), zlib.finish().unwrap()].concat();
        let large = [".debug_str", ".debug_line", ".debug_ranges"].map(|name| (name, stored.clone()));
        elf(&[&large[..], &units_of(1)].concat())
    }

    /// Many small units, each of which becomes a kilobyte of tables.
    fn units(count: usize) -> File {
        elf(&units_of(count))
    }

    fn units_of(count: usize) -> [(&'static str, Vec<u8>); 2] {
        let info = unit(&[1]).repeat(count);
        [(".debug_info", info), (".debug_abbrev", abbreviations(&[(1, UNIT, false, &[])]))]
    }

    /// Functions that are inlined in each other: each level is a byte of the file, and a call of the reader's.
    fn inlined(depth: usize) -> File {
        let range = words(&[0, 1 << 20]);
        let info = unit(&[&[1], &range[..], &[2], &range, &vec![3; depth]].concat());
        let all = [(1, UNIT, true, &RANGE[..]), (2, FUNCTION, true, &RANGE), (3, INLINED, true, &[])];
        elf(&[(".debug_info", info), (".debug_abbrev", abbreviations(&all))])
    }

    /// A unit's folder is put before the name of each of its files.
    fn folders(files: usize) -> File {
        // `DW_AT_comp_dir` at an offset in `.debug_str`, `DW_AT_stmt_list`.
        let attributes = [RANGE[0], RANGE[1], [0x1b, 0x0e], [0x10, 0x17]];
        let info = unit(&[&[1], &words(&[0, 1 << 20])[..], &[0; 8]].concat());
        let header = [&[1, 1, 1, 1, 1, 1, 0][..], &b"x\0\0\0\0".repeat(files), &[0]].concat();
        // To address 0, one row of line 1, and the end behind a MiB.
        let program = [&[0, 9, 2][..], &[0; 8], &[1, 2, 0x80, 0x80, 0x40, 0, 1, 1]].concat();
        let line = [&4u16.to_le_bytes()[..], &(header.len() as u32).to_le_bytes(), &header, &program].concat();
        let line = [&(line.len() as u32).to_le_bytes()[..], &line].concat();
        let folder = [&vec![b'a'; 60_000][..], &[0]].concat();
        let abbreviations = abbreviations(&[(1, UNIT, false, &attributes)]);
        elf(&[(".debug_info", info), (".debug_abbrev", abbreviations), (".debug_line", line), (".debug_str", folder)])
    }

    #[test]
    fn all_files_together_tell_no_more_than_one_may() {
        let offsets: Vec<u64> = (0..1000).collect();
        let mut budget = Budget { told: 100_000, ..Budget::new() };
        let mut look_up = |_| look_up_in(&units(1), &offsets, &mut budget);
        let found: Vec<Found> = (0..6).map(&mut look_up).collect();
        let places = found.iter().map(|it| it.places.iter().flatten().count()).collect::<Vec<_>>();
        assert!(found[0].is_whole && places[0] == 1000, "{places:?}");
        assert!(!found[5].is_whole && places[5] == 0 && budget.told == 0, "{places:?}");
        // A place is told in more than 30 bytes.
        assert!(places.iter().sum::<usize>() < 100_000 / 30, "{places:?}");
        let mut late = Budget { until: Instant::now(), ..Budget::new() };
        assert!(!look_up_in(&units(1), &offsets, &mut late).is_whole);
    }

    #[test]
    fn a_hostile_file_takes_no_more_memory_and_stack_than_it_may() {
        type Made = fn(usize) -> File;
        let all: [(&str, Made, usize, usize); 4] = [
            ("zeros", zeros, 1, 40),
            ("units", units, 1000, 200_000),
            ("inlined", inlined, 50, 200_000),
            ("folders", folders, 10, 3000),
        ];
        for (what, file, few, many) in all {
            for (size, is_whole) in [(few, true), (many, false)] {
                // An eighth of what they may take: to fill more takes seconds.
                let mut budget = Budget { least: LEAST / 8, ..Budget::new() };
                let found = look_up_in(&file(size), &[16, u64::MAX], &mut budget);
                assert_eq!(found.is_whole, is_whole, "{what}: {size}");
                assert!(found.places.iter().flatten().all(|it| it.frames.is_empty()), "{what}: {found:?}");
            }
        }
    }
}
