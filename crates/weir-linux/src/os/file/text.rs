//! Reading the kernel's text files in fixed buffers: numbers, words, records.

use crate::os::fd;
use crate::os::syscall::Result;
use core::ffi::CStr;
use core::ops::{ControlFlow, RangeInclusive};

/// A decimal number with nothing but white space around it.
pub fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii();
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &b| {
        let digit = b.is_ascii_digit().then(|| u64::from(b - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// What follows `key` (which includes its separator) at the start of a line, up to the line's end.
pub fn after<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    text.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(key))
}

/// The number that follows `key` at the start of a line.
pub fn number_after(text: &[u8], key: &[u8]) -> Option<u64> {
    number(after(text, key)?)
}

/// The ranges of a kernel CPU or node list such as `0-3,8`, each with its last; `None` in place of what is none.
fn list(text: &[u8]) -> impl Iterator<Item = Option<RangeInclusive<u64>>> {
    text.trim_ascii().split(|&b| b == b',').map(|part| {
        let mut ends = part.splitn(2, |&b| b == b'-');
        let first = number(ends.next()?)?;
        let last = ends.next().map_or(Some(first), number)?;
        (first <= last).then_some(first..=last)
    })
}

/// The numbers of a kernel list: how many there are, and the highest.
pub fn list_count(text: &[u8]) -> Option<(u64, u64)> {
    let (mut count, mut highest) = (0u64, 0u64);
    for range in list(text) {
        let (first, last) = range?.into_inner();
        count = count.checked_add(last - first)?.checked_add(1)?;
        highest = highest.max(last);
    }
    Some((count, highest))
}

/// Sets the bits of a mask that a kernel list names, as far as the mask goes.
pub fn list_bits(text: &[u8], mask: &mut [u64]) -> Option<()> {
    for range in list(text) {
        let (first, last) = range?.into_inner();
        let end = (last as usize).min(mask.len() * 64 - 1);
        (first as usize..=end).for_each(|bit| mask[bit / 64] |= 1 << (bit % 64));
    }
    Some(())
}

/// The choice in brackets of a file such as `always [madvise] never`.
pub fn chosen(text: &[u8]) -> Option<&[u8]> {
    words(text).find_map(|word| word.strip_prefix(b"[")?.strip_suffix(b"]"))
}

/// Gives each record of a file, however long the file, to `each`. Records end at `separator`; one that is longer
/// than `buf` is left out. Stops early at `Break`.
pub fn for_each_record(
    path: &CStr,
    separator: u8,
    buf: &mut [u8],
    each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let file = fd::open(path, fd::O_RDONLY)?;
    let result = records(|to| fd::read(file, to), separator, buf, each);
    let _ = fd::close(file);
    result
}

/// The same of a file that stays open, from its beginning.
pub fn for_each_record_of(
    file: i32,
    separator: u8,
    buf: &mut [u8],
    each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let mut at = 0;
    let read = |to: &mut [u8]| {
        let got = fd::pread(file, to, at)?;
        at += got as u64;
        Ok(got)
    };
    records(read, separator, buf, each)
}

/// The same over any source of bytes.
fn records(
    mut read: impl FnMut(&mut [u8]) -> Result<usize>,
    separator: u8,
    buf: &mut [u8],
    mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<()> {
    let (mut len, mut too_long) = (0, false);
    loop {
        if len == buf.len() {
            // No separator in a full buffer: throw away until one comes.
            (len, too_long) = (0, true);
        }
        let got = read(&mut buf[len..])?;
        let end = len + got;
        let mut start = 0;
        while let Some(at) = buf[start..end].iter().position(|&b| b == separator) {
            if !core::mem::take(&mut too_long) && each(&buf[start..start + at]).is_break() {
                return Ok(());
            }
            start += at + 1;
        }
        if got == 0 {
            if start < end && !too_long {
                let _ = each(&buf[start..end]);
            }
            return Ok(());
        }
        buf.copy_within(start..end, 0);
        len = end - start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn split(text: &[u8], step: usize, room: usize) -> Vec<Vec<u8>> {
        let (mut rest, mut out) = (text, Vec::new());
        let read = |to: &mut [u8]| {
            let n = rest.len().min(to.len()).min(step);
            to[..n].copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            Ok(n)
        };
        let mut buf = std::vec![0; room];
        records(read, b'\n', &mut buf, |r| {
            out.push(r.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
        out
    }

    #[test]
    fn numbers_words_and_choices() {
        assert_eq!(number(b" 12\n"), Some(12));
        assert_eq!([number(b""), number(b"1 2"), number(b"max"), number(b"99999999999999999999")], [None; 4]);
        assert_eq!(number_after(b"low 1\nhigh 22\n", b"high "), Some(22));
        assert_eq!(chosen(b"always [madvise] never\n"), Some(&b"madvise"[..]));
        assert_eq!(list_count(b"0-3,8\n"), Some((5, 8)));
        assert_eq!(list_count(b"3-0"), None);
        let mut mask = [0; 2];
        assert_eq!(
            (list_bits(b"0-3,8,63-64,100-900\n", &mut mask), mask),
            (Some(()), [0x8000_0000_0000_010f, !0 << 36 | 1])
        );
        assert_eq!(list_bits(b"\n", &mut mask), None);
    }

    #[test]
    fn long_records_are_left_out_whole() {
        let all = split(b"one\na record that is too long\ntwo\nend", 3, 8);
        assert_eq!(all, [&b"one"[..], b"two", b"end"]);
    }

    proptest! {
        #[test]
        fn records_do_not_depend_on_how_reads_are_cut(text in "[ab\n]{0,60}", step in 1usize..9) {
            let whole = split(text.as_bytes(), 1000, 100);
            prop_assert_eq!(split(text.as_bytes(), step, 100), whole);
        }

        #[test]
        fn garbage_never_panics(text: Vec<u8>, step in 1usize..9, room in 1usize..20) {
            split(&text, step, room);
            let _ = (number(&text), list_count(&text), chosen(&text), number_after(&text, b"a"));
        }
    }
}
