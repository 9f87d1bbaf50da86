//! Other allocators inside a process: one that is linked into the program serves it, whatever is preloaded.

use crate::processes::{program_file, regular};
use memchr::memmem;
use procfs::process::{MMapPath, MemoryMaps};
use std::io::Read;
use std::path::Path;

/// Allocators' libraries, by the beginning of their file's name.
const LIBRARIES: [(&str, &str); 5] = [
    ("libjemalloc", "jemalloc"),
    ("libtcmalloc", "tcmalloc"),
    ("libmimalloc", "mimalloc"),
    ("libsnmalloc", "snmalloc"),
    ("libhoard", "Hoard"),
];

/// Text found in the file of a program that has an allocator linked into it. It is the beginning of that allocator's
/// messages, which are there even if its symbols are not.
const MESSAGES: [(&[u8], &str); 3] =
    [(b"<jemalloc>: ", "jemalloc"), (b"tcmalloc: large alloc", "tcmalloc"), (b"mimalloc: ", "mimalloc")];

/// Bytes of a program that are searched.
const SEARCHED: u64 = 512 << 20;
const CHUNK: usize = 1 << 20;

/// The name of an allocator whose library the process has loaded.
pub fn loaded(maps: &MemoryMaps) -> Option<&'static str> {
    let name_of = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    maps.iter().find_map(|map| match &map.pathname {
        MMapPath::Path(path) => {
            let name = name_of(path)?;
            LIBRARIES.iter().find(|(start, _)| name.starts_with(start)).map(|&(_, name)| name)
        }
        _ => None,
    })
}

/// The name of an allocator that is linked into the program of a process.
pub fn linked_into(pid: i32) -> Option<String> {
    program_file::asked(pid, |process| linked_in(Path::new(&format!("/proc/{}/exe", process.pid()))))
}

/// The name of an allocator that is linked into the program at `path`.
fn linked_in(path: &Path) -> Option<&'static str> {
    let overlap = MESSAGES.iter().map(|(message, _)| message.len()).max().unwrap_or(0);
    let mut program = regular::open(&regular::find(path)?)?.take(SEARCHED);
    let (mut buffer, mut kept) = (vec![0; CHUNK + overlap], 0);
    loop {
        let read = program.read(&mut buffer[kept..]).ok().filter(|&read| read > 0)?;
        let end = kept + read;
        let found = MESSAGES.iter().find(|(message, _)| memmem::find(&buffer[..end], message).is_some());
        if let Some(&(_, name)) = found {
            return Some(name);
        }
        // A message may lie across the end of what was read.
        kept = end.min(overlap);
        buffer.copy_within(end - kept..end, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocator_in_a_program_is_found_wherever_it_lies() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        for before in [0, 100, CHUNK - 5, CHUNK + 20, 2 * CHUNK - 3] {
            let mut bytes = vec![b'<'; before];
            bytes.extend(b"<jemalloc>: Error allocating");
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(linked_in(&file), Some("jemalloc"), "{before}");
        }
        std::fs::write(&file, b"<jemalloc>, which is not it").unwrap();
        assert_eq!((linked_in(&file), linked_in(Path::new("/no/such"))), (None, None));
    }
}
