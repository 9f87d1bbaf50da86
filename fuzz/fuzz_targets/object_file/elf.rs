//! ELF files made of an input: sections with names that the reader looks for, of which parts may be repeated many times.

use arbitrary::{Result, Unstructured};
use std::io::Write;

const NAMES: [&str; 15] = [
    ".debug_info",
    ".debug_abbrev",
    ".debug_line",
    ".debug_str",
    ".debug_line_str",
    ".debug_ranges",
    ".debug_rnglists",
    ".debug_aranges",
    ".debug_addr",
    ".debug_str_offsets",
    ".debug_loclists",
    ".symtab",
    ".strtab",
    ".note.gnu.build-id",
    ".gnu_debugaltlink",
];
/// Bytes of a section that is made by repetition.
const MOST_REPEATED: usize = 1 << 20;
/// Bytes of a section of zstd's frames.
const MOST_FRAMES: usize = 64 << 10;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const COMPRESSED: u64 = 0x800;

struct Section {
    name: usize,
    bytes: Vec<u8>,
    flags: u64,
    kind: u32,
    link: u32,
    entry: u64,
}

/// A file: each section is a head, a body that may be repeated, and a tail, and is stored as it is or compressed.
pub fn file(u: &mut Unstructured) -> Result<Vec<u8>> {
    let count = u.int_in_range(0..=8usize)?;
    let mut sections = Vec::new();
    for _ in 0..count {
        let name = u.choose_index(NAMES.len())?;
        let head = part(u, 64)?;
        let (body, tail) = (part(u, 255)?, part(u, 32)?);
        let times = 1usize << u.int_in_range(0..=20u8)?;
        let times = if u.arbitrary()? { times.min(MOST_REPEATED / body.len().max(1)) } else { 1 };
        let mut bytes = head;
        (0..times).for_each(|_| bytes.extend(&body));
        bytes.extend(tail);
        let packing = u.int_in_range(0..=7u8)?;
        let claimed = if u.ratio(1, 16)? { u.arbitrary()? } else { bytes.len() as u64 };
        let flags = match packing {
            // What is there are frames already.
            0 if bytes.len() <= MOST_FRAMES => {
                bytes = [packed(2, u.int_in_range(0..=1 << 20)?), bytes].concat();
                COMPRESSED
            }
            1 | 2 => {
                bytes = compressed(&bytes, claimed);
                COMPRESSED
            }
            _ if times > 16 => {
                bytes = compressed(&bytes, claimed);
                COMPRESSED
            }
            _ => 0,
        };
        let kind = match NAMES[name] {
            ".symtab" => SYMTAB,
            ".strtab" => STRTAB,
            ".note.gnu.build-id" => 7,
            _ => 1,
        };
        sections.push(Section { name, bytes, flags, kind, link: 0, entry: if kind == SYMTAB { 24 } else { 0 } });
    }
    let strings = sections.iter().position(|section| section.kind == STRTAB).map_or(0, |at| at as u32 + 1);
    sections.iter_mut().filter(|section| section.kind == SYMTAB).for_each(|section| section.link = strings);
    let mut file = laid_out(&sections, u.ratio(1, 8)?);
    // And a few bytes of it as they like.
    for _ in 0..u.int_in_range(0..=3u8)? {
        let at = u.choose_index(file.len())?;
        file[at] = u.arbitrary()?;
    }
    Ok(file)
}

fn part(u: &mut Unstructured, most: usize) -> Result<Vec<u8>> {
    let length = u.int_in_range(0..=most)?;
    Ok(u.bytes(length.min(u.len()))?.into())
}

/// As zlib has it, behind the header that says so.
fn compressed(bytes: &[u8], claimed: u64) -> Vec<u8> {
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(bytes).expect("memory");
    [packed(1, claimed), zlib.finish().expect("memory")].concat()
}

/// The header of a compressed section: how, and how many bytes it is said to be.
fn packed(how: u64, claimed: u64) -> Vec<u8> {
    [how, claimed, 1].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// The file's header, the one segment's, sections and their headers. `is_overlaid`: all sections lie at the first one.
fn laid_out(sections: &[Section], is_overlaid: bool) -> Vec<u8> {
    const HEADER: usize = 64 + 56;
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let (mut text, mut names) = (vec![0], Vec::new());
    for name in sections.iter().map(|section| NAMES[section.name]).chain([".shstrtab"]) {
        names.push(text.len() as u64);
        text.extend(name.bytes().chain([0]));
    }
    let (mut contents, mut offsets) = (Vec::<u8>::new(), Vec::new());
    for section in sections {
        offsets.push(if is_overlaid { HEADER } else { HEADER + contents.len() } as u64);
        contents.extend(&section.bytes);
    }
    let of_names = (HEADER + contents.len()) as u64;
    contents.extend(&text);
    let of_headers = (HEADER + contents.len()).next_multiple_of(8);
    let count = sections.len() as u64 + 2;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(words(&[3 | 62 << 16 | 1 << 32, 0, 64, of_headers as u64]));
    file.extend(words(&[64 << 32 | 56 << 48, 1 | 64 << 16 | count << 32 | (count - 1) << 48]));
    // It is mapped as a whole.
    file.extend(words(&[1 | 5 << 32, 0, 0, 0, 1 << 20, 1 << 20, 4096]));
    file.extend(contents);
    file.resize(of_headers, 0);
    file.extend(words(&[0; 8]));
    for (section, (name, offset)) in sections.iter().zip(names.iter().zip(&offsets)) {
        let Section { bytes, flags, kind, link, entry, .. } = section;
        let kind = u64::from(*kind) << 32;
        file.extend(words(&[name | kind, *flags, 0, *offset, bytes.len() as u64, u64::from(*link), 1, *entry]));
    }
    let name = names.last().expect("its own");
    file.extend(words(&[name | u64::from(STRTAB) << 32, 0, 0, of_names, text.len() as u64, 0, 1, 0]));
    file
}
