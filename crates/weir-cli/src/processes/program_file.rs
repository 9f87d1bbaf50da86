//! A program's file: where it is, and whether the loader can preload a library into it.

use super::child;
use super::regular::{self, Regular};
use object::elf::{DT_SONAME, EM_AARCH64, EM_X86_64, FileHeader64, Machine, PT_INTERP, ProgramHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use procfs::process::Process;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How many `#!` lines the kernel follows (`exec_binprm` in Linux's fs/exec.c).
const MAX_INTERPRETERS: usize = 4;
/// How much of a file the kernel reads for its `#!` line (`BINPRM_BUF_SIZE`), bytes.
const SCRIPT_HEAD: u64 = 256;

/// The machine that this is, in a program's header, and what is said of programs for others.
const MACHINE: (Machine, &str) = if cfg!(target_arch = "aarch64") {
    (EM_AARCH64, "is not an arm64 program")
} else {
    (EM_X86_64, "is not an x86-64 program")
};

/// Finds a program as `execvp` does: in `PATH`, unless its name has a slash.
pub fn resolve(program: &Path) -> Option<PathBuf> {
    if program.as_os_str().as_bytes().contains(&b'/') {
        return program.exists().then(|| program.to_path_buf());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let executable = |p: &PathBuf| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(executable)
}

/// Why preloading has no effect on the program at `path`, following scripts to their interpreters. `None` if no reason
/// is found.
pub fn preload_obstacle(path: &Path) -> Option<String> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_INTERPRETERS {
        if let Some(why) = unfitness(&path) {
            return Some(format!("{} {why}", path.display()));
        }
        match kind(&path)? {
            ProgramKind::Script(interpreter) => path = resolve(&interpreter)?,
            ProgramKind::Dynamic | ProgramKind::Unfit(_) => return None,
        }
    }
    None
}

/// Why the loader cannot preload into the file at `path` itself; `None` if it can, or if the file is a script.
fn unfitness(path: &Path) -> Option<&'static str> {
    privileged(path).or_else(|| unfit_kind(path))
}

/// Why the loader could not preload into a running process.
pub fn unfitness_of(process: &Process) -> Option<&'static str> {
    let program = PathBuf::from(format!("/proc/{}/exe", process.pid()));
    unfit_kind(&program).or_else(|| match process.auxv().ok()?.get(&libc::AT_SECURE) {
        Some(0) | None => None,
        Some(_) => {
            Some("runs with more rights than its caller (setuid, setgid, file capabilities or a security module)")
        }
    })
}

/// What a process's program tells by a child: its file may be on a server that never answers.
pub fn asked(pid: i32, work: impl Fn(&Process) -> Option<&'static str>) -> Option<String> {
    let name = |_: &i32| Process::new(pid).and_then(|process| process.exe()).unwrap_or_default().display().to_string();
    // The child has its directory in `/proc` no more.
    child::each(&[pid], name, |&pid| work(&Process::new(pid).ok()?).map(str::to_owned)).pop().flatten()
}

fn unfit_kind(path: &Path) -> Option<&'static str> {
    match kind(path)? {
        ProgramKind::Unfit(why) => Some(why),
        ProgramKind::Dynamic | ProgramKind::Script(_) => None,
    }
}

/// The loader ignores preloads if the program runs with rights that its caller does not have.
fn privileged(path: &Path) -> Option<&'static str> {
    // A file system may be mounted without such rights.
    if statvfs(path).is_ok_and(|system| system.f_flag.contains(StatVfsMountFlags::NOSUID)) {
        return None;
    }
    let meta = path.metadata().ok()?;
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let is_bound = rustix::thread::no_new_privs().unwrap_or(false);
    // The kernel ignores the bits also if this user namespace has not the owner or the group.
    let counts = !is_bound && is_mapped("uid_map", meta.uid()) && is_mapped("gid_map", meta.gid());
    let has = |bits| counts && meta.mode() & bits == bits;
    if has(libc::S_ISUID) && meta.uid() != uid.as_raw() {
        return Some("is setuid");
    }
    if has(libc::S_ISGID | libc::S_IXGRP) && meta.gid() != gid.as_raw() {
        return Some("is setgid");
    }
    (!uid.is_root() && has_file_capabilities(path, is_bound)).then_some("has file capabilities")
}

/// Whether this user namespace has a file's owner or group, by its map of that name.
fn is_mapped(map: &str, id: u32) -> bool {
    std::fs::read_to_string(format!("/proc/self/{map}")).map_or(true, |text| has_id(&text, id))
}

/// The number that the kernel tells for all that a user namespace has not.
const UNMAPPED: u32 = 65534;

/// Whether a map has a number that was told of a file. Of a part of all numbers it is unknown which one [`UNMAPPED`] stands for:
/// it is hardly itself.
fn has_id(map: &str, id: u32) -> bool {
    let ranges = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let (first, _, count) = (numbers.next()?.ok()?, numbers.next(), numbers.next()?.ok()?);
        Some(first..first + count)
    });
    let ranges: Vec<_> = ranges.collect();
    let has = |id: u32| ranges.iter().any(|range| range.contains(&id.into()));
    has(id) && (id != UNMAPPED || has(u32::MAX - 1))
}

/// Where the file system keeps a file's capabilities.
const CAPABILITIES: &str = "security.capability";
/// The longest that Linux has, and the bit in the first word that makes them effective (`linux/capability.h`).
const CAPABILITIES_BYTES: usize = 24;
const EFFECTIVE: u8 = 1;

/// Whether a file has capabilities; `effective`: those alone that its process has at once. Where new rights are forbidden the
/// kernel grants none, but it takes such a program for a privileged one.
fn has_file_capabilities(path: &Path, effective: bool) -> bool {
    let mut value = [0u8; CAPABILITIES_BYTES];
    let read = rustix::fs::getxattr(path, CAPABILITIES, &mut value);
    read.is_ok_and(|_| !effective || value[0] & EFFECTIVE != 0)
}

#[derive(Debug, PartialEq)]
enum ProgramKind {
    /// Started by the dynamic loader, which preloads.
    Dynamic,
    /// The loader does not preload into it, for this reason.
    Unfit(&'static str),
    /// Run by this interpreter.
    Script(PathBuf),
}

/// `None` also of what is no regular file, which cannot be executed.
fn kind(path: &Path) -> Option<ProgramKind> {
    let mut file = regular::open(&regular::find(path)?)?;
    let mut head = Vec::new();
    (&mut file).take(SCRIPT_HEAD).read_to_end(&mut head).ok()?;
    if head.starts_with(b"#!") {
        return interpreter(&head).map(ProgramKind::Script);
    }
    if !head.starts_with(&object::elf::ELFMAG) {
        // `execvp` runs any other executable file with the shell.
        return Some(ProgramKind::Script("/bin/sh".into()));
    }
    Some(elf_kind(file))
}

/// Reads the file's header and program headers only; the sections may be missing.
fn elf_kind(file: Regular) -> ProgramKind {
    let data = ReadCache::new(file);
    if matches!(FileKind::parse(&data), Ok(FileKind::Elf32)) {
        return ProgramKind::Unfit(MACHINE.1);
    }
    let incomplete = ProgramKind::Unfit("is not a complete ELF file");
    let Ok(header) = FileHeader64::<Endianness>::parse(&data) else { return incomplete };
    let Ok(endian) = header.endian() else { return incomplete };
    if header.e_machine(endian) != MACHINE.0 {
        return ProgramKind::Unfit(MACHINE.1);
    }
    match header.program_headers(endian, &data) {
        Ok(headers) if headers.iter().any(|header| header.p_type(endian) == PT_INTERP) => ProgramKind::Dynamic,
        // A loader, which preloads into the program that it is given: a static program has no name for others to need it by.
        Ok(headers) if headers.iter().any(|header| has_name(header, endian, &data)) => ProgramKind::Dynamic,
        Ok(_) => ProgramKind::Unfit("is statically linked"),
        Err(_) => incomplete,
    }
}

/// Whether it is the part of a file that gives it a name as a library.
fn has_name<'data>(header: &ProgramHeader64<Endianness>, endian: Endianness, data: impl ReadRef<'data>) -> bool {
    let entries = header.dynamic(endian, data).ok().flatten().unwrap_or_default();
    entries.iter().any(|entry| entry.d_tag(endian) == DT_SONAME)
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
        assert_eq!(kind(&own), Some(ProgramKind::Dynamic));
        assert_eq!(preload_obstacle(&own), None);
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        std::fs::write(&script, format!("#!{}\n", own.display())).unwrap();
        assert_eq!(kind(&script), Some(ProgramKind::Script(own)));
        assert_eq!(preload_obstacle(&script), None);
    }

    /// A bundle starts its program by a loader of its own.
    #[test]
    fn a_loader_preloads_into_the_program_that_it_is_given() {
        let data = ReadCache::new(std::fs::File::open("/proc/self/exe").unwrap());
        let header = FileHeader64::<Endianness>::parse(&data).unwrap();
        let endian = header.endian().unwrap();
        let headers = header.program_headers(endian, &data).unwrap();
        let loader = headers.iter().find_map(|header| header.interpreter(endian, &data).unwrap()).unwrap();
        let loader = PathBuf::from(std::ffi::OsString::from_vec(loader.to_vec()));
        assert_eq!(preload_obstacle(&loader), None, "{}", loader.display());
    }

    #[test]
    fn capabilities_of_a_file_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        std::fs::write(&file, "").unwrap();
        let has = || [false, true].map(|effective| has_file_capabilities(&file, effective));
        assert_eq!(has(), [false, false]);
        // Version 2 (struct vfs_cap_data of Linux's capability.h): CAP_NET_RAW permitted, nothing inheritable.
        for (first, expected) in [(0x0200_0000u32, [true, false]), (0x0200_0001, [true, true])] {
            let words = [first, 1 << 13, 0, 0, 0].map(u32::to_le_bytes).concat();
            match rustix::fs::setxattr(&file, CAPABILITIES, &words, rustix::fs::XattrFlags::empty()) {
                Ok(()) => assert_eq!(has(), expected),
                Err(why) => return weir_testing::skip!("only root gives capabilities to a file: {why}"),
            }
        }
    }

    #[test]
    fn a_setuid_file_counts_only_where_new_rights_are_allowed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("program");
        std::fs::write(&file, "").unwrap();
        if std::os::unix::fs::chown(&file, Some(1), Some(1)).is_err() {
            return weir_testing::skip!("only root makes another's file");
        }
        let of = |mode| {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            privileged(&file)
        };
        if of(0o4755).is_none() {
            return weir_testing::skip!("setuid files do not count here");
        }
        // Without the right to execute for the group, the bit of the group does not count.
        assert_eq!([0o4755, 0o2755, 0o2745, 0o755].map(of), [Some("is setuid"), Some("is setgid"), None, None]);
        let bound = || {
            // It is of the thread alone.
            rustix::thread::set_no_new_privs(true).unwrap();
            [0o4755, 0o2755].map(of)
        };
        assert_eq!(std::thread::scope(|scope| scope.spawn(bound).join().unwrap()), [None, None]);
    }

    #[test]
    fn a_user_namespace_has_some_owners() {
        let all = "         0          0 4294967295\n";
        assert!([0, 1000, UNMAPPED].iter().all(|&id| has_id(all, id)));
        let some = "         0     100000      65536\n     70000       1000          1\n";
        assert_eq!([0, 1000, UNMAPPED, 65536, 70000].map(|id| has_id(some, id)), [true, true, false, false, true]);
        assert!(!has_id("0 1000 1\n", UNMAPPED));
    }

    /// A little-endian header for a 64-bit program of this machine with `count` program headers of 56 bytes behind it.
    fn header(count: u16) -> Vec<u8> {
        let mut head = b"\x7fELF\x02\x01\x01".to_vec();
        head.resize(64, 0);
        head[18..20].copy_from_slice(&MACHINE.0.0.to_le_bytes());
        head[20] = 1;
        head[32] = 64;
        head[54] = 56;
        head[56..58].copy_from_slice(&count.to_le_bytes());
        head
    }

    #[test]
    fn each_kind_of_elf_file_has_its_answer() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("elf");
        let of = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            match kind(&file).unwrap() {
                ProgramKind::Dynamic => "dynamic",
                ProgramKind::Unfit(why) => why,
                ProgramKind::Script(_) => "script",
            }
        };
        let mut with_loader = header(1);
        with_loader.resize(64 + 56, 0);
        assert_eq!(of(&with_loader), "is statically linked");
        with_loader[64] = PT_INTERP.0 as u8;
        assert_eq!(of(&with_loader), "dynamic");
        let mut foreign = header(0);
        foreign[18] = 8;
        assert_eq!(of(&foreign), MACHINE.1);
        let mut of_32_bits = header(0);
        (of_32_bits[4], of_32_bits[18]) = (1, 3);
        assert_eq!(of(&of_32_bits), MACHINE.1);
        assert_eq!(of(&header(0)), "is statically linked");
    }

    #[test]
    fn damaged_files_are_told_and_never_panic() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("elf");
        let mut headers_beyond_the_end = header(3);
        headers_beyond_the_end[32..40].fill(0xff);
        let mut headers_of_no_size = header(3);
        headers_of_no_size[54] = 0;
        for bytes in [&header(1), &headers_beyond_the_end, &headers_of_no_size, &header(0)[..30], &header(0)[..5]] {
            std::fs::write(&file, bytes).unwrap();
            assert_eq!(kind(&file), Some(ProgramKind::Unfit("is not a complete ELF file")), "{bytes:?}");
        }
    }

    #[test]
    fn what_is_no_ordinary_file_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let [fifo, script] = ["fifo", "script"].map(|name| dir.path().join(name));
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o777.into(), 0).unwrap();
        std::fs::write(&script, format!("#!{}\n", fifo.display())).unwrap();
        // An open would wait for a writer.
        let (say, heard) = std::sync::mpsc::channel();
        std::thread::spawn(move || say.send([&fifo, &script, Path::new("/dev/tty")].map(preload_obstacle)));
        assert_eq!(heard.recv_timeout(weir_testing::PATIENCE), Ok([None, None, None]));
    }

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(resolve(Path::new("sh")).unwrap().is_absolute());
        assert_eq!(resolve(Path::new("no-such-program-anywhere")), None);
        assert_eq!(resolve(Path::new("/no/such")), None);
    }
}
