//! All processes that have Weir.

use super::page::{Inspected, Missing, Page};
use memchr::memmem;

/// The processes found.
#[derive(Default)]
pub struct Found {
    /// Those whose page could be read.
    pub readable: Vec<(Inspected, Page)>,
    /// Those with Weir whose page could not be read, and why.
    pub others: Vec<(i32, Missing)>,
    /// Processes that this user may not look into.
    pub not_allowed: usize,
}

/// Looks at all processes. (A program that has Weir built in, and so small a heap that there is no background thread yet, is
/// found by its number only.)
pub fn all() -> Found {
    let mut found = Found::default();
    let numbers = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<i32> = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        match std::fs::read(format!("/proc/{pid}/maps")) {
            // Most processes have no mapping with the name: their maps are not taken apart.
            Ok(text) if names_weir(&text) => {
                match Inspected::new(pid).and_then(|it| it.page().map(|page| (it, page))) {
                    Ok(pair) => found.readable.push(pair),
                    Err(Missing::NoProcess | Missing::NotLoaded) => {}
                    Err(why) => found.others.push((pid, why)),
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => found.not_allowed += 1,
            _ => {}
        }
    }
    found
}

/// Whether the text of a maps file has a name of Weir's in it.
fn names_weir(maps: &[u8]) -> bool {
    [&b"/libweir"[..], b"/memfd:weir-"].iter().any(|name| memmem::find(maps, name).is_some())
}
