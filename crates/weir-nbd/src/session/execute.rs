//! One request: what it does, and the reply.

use super::handshake::ALLOCATION_ID;
use super::output::Part;
use crate::buffers::Buffer;
use crate::export::Export;
use crate::protocol::constants::allocation;
use crate::protocol::{Address, Command, Extent, Fault, Style};
use std::ops::Range;

/// Most extents in a reply. A client sends another request from where they end.
pub const MAX_EXTENTS: usize = 2048;
/// Reads from this length on skip holes, bytes: looking for them costs as much as reading a few pages.
const WORTH_A_LOOK: u64 = 64 << 10;
/// Most chunks of data and holes in one read's reply; what is behind the last counts as data.
const MAX_CHUNKS: usize = 16;

/// A fault, and its offset in the export where that is known.
type Failed = (Fault, Option<u64>);

/// Performs `command` with the payload `data`. A client that has gone needs no hints: `is_there` says so.
pub async fn execute(
    export: &Export,
    address: Address,
    command: Command,
    data: Option<Buffer>,
    is_there: impl Fn() -> bool,
) -> Result<Vec<Part>, Failed> {
    let volume = &export.volume;
    let failed = |fault: Fault| (fault, None);
    let below = |why: std::io::Error| failed(why.into());
    let durable = match command {
        Command::Read { offset, length, unfragmented } => {
            return read(export, address, offset..offset + u64::from(length), unfragmented).await;
        }
        Command::BlockStatus { offset, length, one } => {
            let most = if one { 1 } else { MAX_EXTENTS };
            let extents = volume.extents(offset..offset + length, most).await;
            return Ok(vec![Part::Bytes(address.block_status(ALLOCATION_ID, &extents, allocation_flags))]);
        }
        Command::Write { offset, durable, .. } => {
            if let Some(data) = data {
                volume.write(offset, data).await.map_err(below)?;
            }
            durable
        }
        Command::Trim { offset, length, durable } => {
            volume.trim(offset..offset + length).await.map_err(below)?;
            durable
        }
        Command::WriteZeroes { offset, length, durable, no_hole, fast } => {
            volume.write_zeroes(offset..offset + length, no_hole, fast).await.map_err(failed)?;
            durable
        }
        Command::Cache { offset, length } => {
            volume.read_ahead(offset..offset + length, is_there).await.map_err(below)?;
            false
        }
        Command::Flush => true,
        Command::Disconnect => false,
    };
    if durable {
        volume.flush().await.map_err(below)?;
    }
    Ok(vec![Part::Bytes(address.success())])
}

fn allocation_flags(extent: &Extent) -> u32 {
    if extent.is_hole { allocation::HOLE | allocation::ZERO } else { 0 }
}

async fn read(export: &Export, address: Address, range: Range<u64>, unfragmented: bool) -> Result<Vec<Part>, Failed> {
    let volume = &export.volume;
    if range.is_empty() {
        return Ok(vec![Part::Bytes(address.success())]);
    }
    let length = range.end - range.start;
    let may_split = address.style != Style::Simple && !unfragmented;
    let mut extents = Vec::new();
    if may_split && length >= WORTH_A_LOOK && !volume.is_data(&range) && !volume.is_dirty(&range) {
        extents = volume.extents(range.clone(), MAX_CHUNKS).await;
    }
    let covered: u64 = extents.iter().map(|extent| extent.length).sum();
    if covered < length {
        extents.push(Extent { length: length - covered, is_hole: false });
    }
    let (mut at, mut parts) = (range.start, Vec::with_capacity(2 * extents.len()));
    for Extent { length, is_hole } in extents {
        let end = at + length;
        let is_last = end == range.end;
        if is_hole {
            // A read's length has 32 bits.
            parts.push(Part::Bytes(address.hole(at, length as u32, is_last)));
        } else {
            let data = volume.read(at..end).await.map_err(|(why, at)| (why.into(), Some(at)))?;
            parts.push(Part::Bytes(address.data(at, data.filled().len(), is_last)));
            parts.push(Part::Data(data));
        }
        at = end;
    }
    Ok(parts)
}
