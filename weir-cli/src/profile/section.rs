//! The contents of a section, read or decompressed to where they stay: no copy of them is made.

use super::budget::{Bounded, Budget};
use object::{CompressionFormat, ObjectSection, Section};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

/// The section's bytes; `None`: its file's budget is at its end, or it is damaged.
pub fn read<'a>(section: &Section<'a, '_, Bounded<'a>>, mut file: &File, budget: &Budget) -> Option<Arc<[u8]>> {
    let range = section.compressed_file_range().ok()?;
    budget.take(range.uncompressed_size)?;
    if range.format == CompressionFormat::Zstandard {
        // As it is stored, and once more to be shared.
        budget.take(range.compressed_size)?;
        budget.take(range.uncompressed_size)?;
        return Some(section.uncompressed_data().ok()?.into());
    }
    let length = usize::try_from(range.uncompressed_size).ok()?;
    // No more than there is: a file shorter than its section is refused before room is made for it.
    let end = range.offset.checked_add(range.compressed_size)?;
    if end > file.metadata().ok()?.len() {
        return None;
    }
    let mut bytes: Arc<[u8]> = std::iter::repeat_n(0, length).collect();
    let to = Arc::get_mut(&mut bytes)?;
    file.seek(SeekFrom::Start(range.offset)).ok()?;
    let mut stored = file.take(range.compressed_size);
    match range.format {
        CompressionFormat::None => stored.read_exact(to).ok()?,
        CompressionFormat::Zlib => {
            flate2::bufread::ZlibDecoder::new(std::io::BufReader::new(stored)).read_exact(to).ok()?
        }
        _ => return None,
    }
    Some(bytes)
}
