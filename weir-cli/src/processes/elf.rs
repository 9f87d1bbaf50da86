//! Whether a program can be given another malloc by preloading, judged before it runs.

use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The kernel follows so many `#!` lines.
const MAX_INTERPRETERS: usize = 4;

/// Finds a program as `execvp` does: in `PATH`, unless its name has a slash.
pub fn resolve(program: &Path) -> Option<PathBuf> {
    if program.as_os_str().as_bytes().contains(&b'/') {
        return program.exists().then(|| program.to_path_buf());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let executable = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(executable)
}

/// Why preloading has no effect on the program at `path`, or `None` where it has, as far as one can tell.
pub fn preload_obstacle(path: &Path) -> Option<String> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_INTERPRETERS {
        if let Some(why) = unfitness(&path) {
            return Some(format!("{} {why}", path.display()));
        }
        match kind(&path)? {
            Kind::Script(interpreter) => path = resolve(&interpreter)?,
            Kind::Dynamic | Kind::Unfit(_) => return None,
        }
    }
    None
}

/// What about the file at `path` itself keeps the loader from preloading.
pub fn unfitness(path: &Path) -> Option<&'static str> {
    privileged(path).or_else(|| match kind(path)? {
        Kind::Unfit(why) => Some(why),
        Kind::Dynamic | Kind::Script(_) => None,
    })
}

/// The loader ignores preloads where a program gets rights that its caller has not.
fn privileged(path: &Path) -> Option<&'static str> {
    let meta = path.metadata().ok()?;
    // SAFETY: both calls have no arguments and cannot fail.
    let (uid, gid) = unsafe { (libc::getuid(), libc::getgid()) };
    if meta.mode() & libc::S_ISUID != 0 && meta.uid() != uid {
        return Some("is setuid");
    }
    if meta.mode() & libc::S_ISGID != 0 && meta.gid() != gid {
        return Some("is setgid");
    }
    (uid != 0 && has_file_capabilities(path)).then_some("has file capabilities")
}

fn has_file_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end in a zero byte; a null buffer of length 0 only asks for the size.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[derive(Debug, PartialEq)]
enum Kind {
    Dynamic,
    Unfit(&'static str),
    Script(PathBuf),
}

fn kind(path: &Path) -> Option<Kind> {
    let file = File::open(path).ok()?;
    let mut head = Vec::new();
    (&file).take(256).read_to_end(&mut head).ok()?;
    if head.starts_with(b"#!") {
        return interpreter(&head).map(Kind::Script);
    }
    if !head.starts_with(b"\x7fELF") {
        // `execvp` hands anything else that is executable to the shell.
        return Some(Kind::Script("/bin/sh".into()));
    }
    Some(elf_kind(&file, &head))
}

fn elf_kind(file: &File, head: &[u8]) -> Kind {
    const CLASS_64: u8 = 2;
    const MACHINE_X86_64: u16 = 62;
    const PT_INTERP: u32 = 3;
    if head.get(4) != Some(&CLASS_64) || half(head, 18) != Some(MACHINE_X86_64) {
        return Kind::Unfit("is not an x86-64 program");
    }
    let (Some(offset), Some(size), Some(count)) = (word(head, 32), half(head, 54), half(head, 56)) else {
        return Kind::Unfit("is not a complete ELF file");
    };
    let has_loader = (0..u64::from(count)).any(|i| {
        let mut kind = [0u8; 4];
        let at = i.checked_mul(size.into()).and_then(|o| o.checked_add(offset));
        at.is_some_and(|at| file.read_exact_at(&mut kind, at).is_ok() && u32::from_le_bytes(kind) == PT_INTERP)
    });
    if has_loader { Kind::Dynamic } else { Kind::Unfit("is statically linked") }
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

/// The program that a `#!` line runs; through `env`, the one that `env` runs.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head[2..].split(|&b| b == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsString::from_vec(bytes.to_vec()));
    let first = path(words.next()?);
    let is_env = first.file_name().is_some_and(|name| name == "env");
    let run_by_env = words.find(|w| !w.starts_with(b"-") && !w.contains(&b'='));
    Some(if is_env { run_by_env.map_or(first, path) } else { first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters() {
        let of = |line: &str| interpreter(line.as_bytes()).unwrap();
        assert_eq!(of("#!/bin/sh\nx"), Path::new("/bin/sh"));
        assert_eq!(of("#! /bin/bash -e"), Path::new("/bin/bash"));
        assert_eq!(of("#!/usr/bin/env -S A=1 python3 -u\n"), Path::new("python3"));
        assert_eq!(interpreter(b"#!\n"), None);
    }

    #[test]
    fn this_test_is_dynamic_and_scripts_are_followed() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(kind(&own), Some(Kind::Dynamic));
        assert_eq!(preload_obstacle(&own), None);
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, format!("#!{}\n", own.display())).unwrap();
        assert_eq!(kind(&script), Some(Kind::Script(own)));
        assert_eq!(preload_obstacle(&script), None);
    }

    #[test]
    fn foreign_and_cut_files_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("elf");
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(64, 0);
        head[18] = 183;
        std::fs::write(&file, &head).unwrap();
        assert_eq!(kind(&file), Some(Kind::Unfit("is not an x86-64 program")));
        head[18] = 62;
        head[32..40].fill(0xff);
        head[54..58].fill(0xff);
        std::fs::write(&file, &head).unwrap();
        assert_eq!(kind(&file), Some(Kind::Unfit("is statically linked")));
        std::fs::write(&file, &head[..30]).unwrap();
        assert_eq!(kind(&file), Some(Kind::Unfit("is not a complete ELF file")));
    }

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(resolve(Path::new("sh")).unwrap().is_absolute());
        assert_eq!(resolve(Path::new("no-such-program-anywhere")), None);
        assert_eq!(resolve(Path::new("/no/such")), None);
    }
}
