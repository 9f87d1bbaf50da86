//! Python's own allocator, pymalloc. It takes objects of up to 512 bytes from arenas that it maps by itself. So most of a
//! Python program's memory never comes to malloc.

use crate::inspect::memory_reader;
use procfs::process::{MMapPath, MemoryMaps};
use std::path::Path;

/// How it is called.
pub const NAME: &str = "pymalloc, Python's own allocator,";
/// The advice that has Python use malloc in its place.
pub const CURE: &str =
    "start it with `PYTHONMALLOC=malloc` in its environment: all of Python's objects come from malloc then";

/// Whether a process is Python with its own allocator.
pub fn serves(pid: i32, maps: &MemoryMaps, program: Option<&Path>) -> bool {
    is_python(maps, program) && memory_reader::variable(pid, "PYTHONMALLOC").is_none_or(|value| keeps(&value))
}

/// The interpreter's program, or its library in another program. Without the global lock (`python3.13t`) it has another
/// allocator.
fn is_python(maps: &MemoryMaps, program: Option<&Path>) -> bool {
    let is_it = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let version = name.strip_prefix("python").or_else(|| name.strip_prefix("libpython")?.split(".so").next());
        version.is_some_and(|it| it.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
    };
    let is_mapped = |path: &MMapPath| matches!(path, MMapPath::Path(path) if is_it(path));
    program.is_some_and(is_it) || maps.iter().any(|map| is_mapped(&map.pathname))
}

/// Whether Python keeps its own allocator with this value of the variable.
fn keeps(value: &std::ffi::OsStr) -> bool {
    !matches!(value.to_str(), Some("malloc" | "malloc_debug"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_is_known_by_its_name() {
        let none = crate::processes::maps::parse(b"").unwrap();
        for (name, wanted) in [
            ("/usr/bin/python3.11", true),
            ("/usr/bin/python3", true),
            ("/usr/lib/libpython3.12.so.1.0", true),
            ("/usr/bin/python3.13t", false),
            ("/usr/bin/python3-config", false),
            ("/usr/bin/bash", false),
        ] {
            assert_eq!(is_python(&none, Some(Path::new(name))), wanted, "{name}");
        }
        assert!(keeps("pymalloc".as_ref()) && keeps("".as_ref()) && !keeps("malloc".as_ref()));
    }
}
