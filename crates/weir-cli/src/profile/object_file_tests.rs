//! Object files that were made to take memory, stack or time.

use super::*;
use crate::base::counted::held;

/// The budget of files as small as these, bytes.
const BUDGET: isize = 16 << 20;

/// An ELF file with these sections, mapped at address 0 as a whole.
fn elf(sections: &[(&str, Vec<u8>)]) -> File {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let (mut names, mut contents, mut headers) = (vec![0], Vec::new(), words(&[0; 8]));
    let mut add = |name: &str, kind: u64, bytes: &[u8]| {
        let at = names.len() as u64;
        names.extend(name.bytes().chain([0]));
        // How it is compressed comes first.
        let flags = if bytes.starts_with(&2u64.to_le_bytes()) { 0x800 } else { 0 };
        headers.extend(words(&[at | kind << 32, flags, 0, 120 + contents.len() as u64, bytes.len() as u64, 0, 1, 0]));
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

/// From address 0 on, a MiB.
fn range() -> Vec<u8> {
    [0u64, 1 << 20].iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn read(sections: &[(&str, Vec<u8>)]) -> (ObjectFile, isize) {
    let (file, before) = (elf(sections), held());
    (ObjectFile::read(file, Files::Own).unwrap(), before)
}

#[test]
fn tables_of_many_small_units_are_within_the_budget() {
    let of = |count| {
        let info = unit(&[1]).repeat(count);
        read(&[(".debug_info", info), (".debug_abbrev", abbreviations(&[(1, UNIT, false, &[])]))])
    };
    let (few, _) = of(1000);
    assert!(few.context.is_some() && !few.is_partial());
    let (many, before) = of(80_000);
    assert!(held() - before < BUDGET, "{} bytes", held() - before);
    assert!(many.context.is_none() && many.is_partial());
}

/// Each level is a byte of the file, and a call of the reader's.
#[test]
fn functions_that_are_inlined_without_end_do_not_end_the_stack() {
    let abbreviations = abbreviations(&[(1, UNIT, true, &RANGE), (2, FUNCTION, true, &RANGE), (3, INLINED, true, &[])]);
    let of = |depth| {
        let info = unit(&[&[1], &range()[..], &[2], &range(), &vec![3; depth]].concat());
        read(&[(".debug_info", info), (".debug_abbrev", abbreviations.clone())]).0
    };
    let few = of(50);
    assert!(few.frames(16).is_empty() && !few.is_partial());
    let many = of(400_000);
    assert!(many.frames(16).is_empty() && many.is_partial());
}

/// A unit's folder is put before the name of each of its files.
#[test]
fn a_long_folder_of_many_files_is_within_the_budget() {
    let of = |files: usize| {
        // `DW_AT_comp_dir` at an offset in `.debug_str`, `DW_AT_stmt_list`.
        let attributes = [RANGE[0], RANGE[1], [0x1b, 0x0e], [0x10, 0x17]];
        let info = unit(&[&[1], &range()[..], &[0; 8]].concat());
        let header = [&[1, 1, 1, 1, 1, 1, 0][..], &b"x\0\0\0\0".repeat(files), &[0]].concat();
        // To address 0, one row of line 1, and the end behind a MiB.
        let program = [&[0, 9, 2][..], &[0; 8], &[1, 2, 0x80, 0x80, 0x40, 0, 1, 1]].concat();
        let line = [&4u16.to_le_bytes()[..], &(header.len() as u32).to_le_bytes(), &header, &program].concat();
        let line = [&(line.len() as u32).to_le_bytes()[..], &line].concat();
        let folder = [&vec![b'a'; 60_000][..], &[0]].concat();
        let abbreviations = abbreviations(&[(1, UNIT, false, &attributes)]);
        let sections =
            [(".debug_info", info), (".debug_abbrev", abbreviations), (".debug_line", line), (".debug_str", folder)];
        read(&sections)
    };
    let lines = |object: &ObjectFile| {
        let context = object.context.as_ref().unwrap();
        context.find_location(16).map(|found| found.unwrap().file.unwrap().len())
    };
    let (few, _) = of(10);
    assert_eq!(lines(&few), Ok(60_002));
    let (many, before) = of(10_000);
    assert!(many.frames(16).is_empty() && many.is_partial());
    assert!(held() - before < BUDGET, "{} bytes", held() - before);
}

/// One frame of 1000 bytes, which says that it needs a window of any size.
#[test]
fn a_window_of_zstd_is_within_the_budget() {
    for (exponent, is_read) in [(10, true), (16, false)] {
        // The last block, one byte so many times.
        let [low, high, ..] = (1000u32 << 3 | 1 << 1 | 1).to_le_bytes();
        let block = [low, high, 0, 7];
        let frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0, exponent << 3][..], &block].concat();
        let header: Vec<u8> = [2u64, 1000, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
        let opened = Opened::new(elf(&[(".debug_str", [header, frame].concat())])).unwrap();
        let parsed = opened.parsed().unwrap();
        let found = parsed.section_by_name(".debug_str").unwrap();
        let bytes = section::read(&found, &opened.file, &opened.budget);
        assert_eq!(
            bytes.is_some_and(|bytes| bytes[..] == [7; 1000]),
            is_read,
            "a window of {} bytes",
            1024 << exponent
        );
    }
}

#[test]
fn no_address_is_one_too_far() {
    let info = unit(&[&[1], &range()[..]].concat());
    let (object, _) = read(&[(".debug_info", info), (".debug_abbrev", abbreviations(&[(1, UNIT, false, &RANGE)]))]);
    assert!(object.context.is_some() && object.frames(u64::MAX).is_empty());
}
