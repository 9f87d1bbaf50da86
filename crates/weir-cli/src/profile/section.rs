//! The contents of a section, read or decompressed to where they stay: no copy of them is made.

use super::budget::{Bounded, Budget};
use object::{CompressionFormat, ObjectSection, Section};
use ruzstd::decoding::FrameDecoder;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

/// A frame of zstd says itself how much is to be kept of what was decompressed, whatever comes of it: at most this part of what
/// is left of the budget, 1 / WINDOW_SHARE, as that memory doubles where it grows.
const WINDOW_SHARE: u64 = 8;

/// The section's bytes; `None`: its file's budget is at its end, or it is damaged.
pub fn read<'a>(section: &Section<'a, '_, Bounded<'a>>, mut file: &File, budget: &Budget) -> Option<Arc<[u8]>> {
    let range = section.compressed_file_range().ok()?;
    budget.take(range.uncompressed_size)?;
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
        CompressionFormat::Zstandard => {
            budget.take(range.compressed_size)?;
            let mut frames = Vec::new();
            stored.read_to_end(&mut frames).ok()?;
            let mut decoder = FrameDecoder::new();
            decoder.set_max_window_size(budget.left() / WINDOW_SHARE);
            if decoder.decode_all(&frames, to).ok()? != length {
                return None;
            }
        }
        _ => return None,
    }
    Some(bytes)
}
