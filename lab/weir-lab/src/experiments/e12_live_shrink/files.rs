//! The programs of E12, and what a guest needs to run each.

use crate::guest::Initramfs;
use crate::harness::child::beside;
use crate::peers::{Allocator, WEIR};
use std::path::{Path, PathBuf};
use std::process::Command;

/// One program.
pub struct Program {
    /// As in `--only`.
    pub name: &'static str,
    /// Whether it is here, or how to get it.
    pub here: fn() -> Result<(), String>,
    /// Puts it into a guest, for an allocator.
    pub add: fn(&mut Initramfs, &Allocator) -> Result<(), String>,
    /// Whether the program for Weir has Weir in it, so that nothing is to be preloaded.
    pub has_weir: bool,
}

/// All of them.
pub const PROGRAMS: &[Program] = &[
    Program { name: "redis", here: || redis().map(drop), add: |image, _| add_redis(image), has_weir: false },
    Program { name: "python", here: || python().map(drop), add: |image, _| add_python(image), has_weir: false },
    Program { name: "cache", here: || beside("weir-lab-cache-weir").map(drop), add: add_cache, has_weir: true },
];

fn redis() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("redis-server")).find(|file| file.exists());
    found.ok_or_else(|| "redis-server is not here: apt-get install redis-server".into())
}

fn add_redis(image: &mut Initramfs) -> Result<(), String> {
    image.copy_with_libraries(&redis()?, Path::new("/redis-server"))
}

/// The interpreter's own file, and the files of its library that the guest's script has it load.
fn python() -> Result<Vec<PathBuf>, String> {
    const LIST: &str = "import sys, gc, os
print(sys.executable)
for module in list(sys.modules.values()):
    print(getattr(module, '__file__', None) or '')";
    let asked = Command::new("python3").args(["-S", "-s", "-B", "-c", LIST]).output();
    let asked = asked.ok().filter(|done| done.status.success());
    let text = asked.ok_or("python3 is not here: apt-get install python3")?.stdout;
    let lines = String::from_utf8_lossy(&text).lines().map(PathBuf::from).filter(|path| path.is_file()).collect();
    Ok(lines)
}

fn add_python(image: &mut Initramfs) -> Result<(), String> {
    let files = python()?;
    let (interpreter, library) = files.split_first().ok_or("python3 does not say where it is")?;
    image.copy_with_libraries(interpreter, interpreter)?;
    for file in library {
        // Of a module in machine code too, and what it needs.
        match file.extension().is_some_and(|extension| extension == "so") {
            true => image.copy_with_libraries(file, file)?,
            false => image.copy(file, file)?,
        }
    }
    image.file(Path::new("/python"), interpreter.as_os_str().as_encoded_bytes());
    Ok(())
}

/// With Weir an evictable cache, which has no size; with others quick_cache, with a size that has room for the
/// peak.
fn add_cache(image: &mut Initramfs, allocator: &Allocator) -> Result<(), String> {
    let (program, kind) =
        if allocator.name == WEIR { ("weir-lab-cache-weir", "weir") } else { ("weir-lab-cache", "quick_cache") };
    image.copy_with_libraries(&beside(program)?, Path::new("/cache-server"))?;
    image.file(Path::new("/cache"), kind.as_bytes());
    Ok(())
}
