//! The files that `WEIR_STATS` may name: the library writes to a statistics file of `weir run`'s and to nothing else.

use crate::common::{Kind, Mode, compile, describe, foreign, run};

use std::ffi::CString;
use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown, symlink};
use std::path::{Path, PathBuf};
use weir_core::telemetry::stats::{FILE_MAGIC, FILE_PAGES, PAGE_BYTES, VERSION};

const BYTES: u64 = (FILE_PAGES * PAGE_BYTES) as u64;
const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// Where the next free page is counted, in the first page.
const NEXT: u64 = 16;

/// The first words of a statistics file: magic, version, and the next free page.
fn header(magic: u64, version: u32) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&magic.to_ne_bytes());
    bytes[8..12].copy_from_slice(&version.to_ne_bytes());
    bytes[16..].copy_from_slice(&1u64.to_ne_bytes());
    bytes
}

fn memfd(length: u64, magic: u64, version: u32, seals: i32) -> File {
    // SAFETY: a new descriptor, which nothing else owns.
    let file = unsafe {
        let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(fd >= 0);
        File::from_raw_fd(fd)
    };
    file.set_permissions(Permissions::from_mode(0o600)).unwrap();
    file.write_all_at(&header(magic, version), 0).unwrap();
    file.set_len(length).unwrap();
    // SAFETY: acts on the file's seals only.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
    file
}

fn right_one() -> File {
    memfd(BYTES, FILE_MAGIC, VERSION, SEALS)
}

/// The descriptor as another process opens it.
fn link(file: &File) -> PathBuf {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into()
}

/// Runs a program with `WEIR_STATS` as given: it has to run, and to say nothing.
fn runs(name: &Path, what: &str) {
    let output = run(Path::new("sh"), &["-c", "exit 7"], Mode::Plain, &[("WEIR_STATS", name.into())]);
    assert!(output.status.code() == Some(7) && output.stderr.is_empty(), "{what}: {}", describe(&output));
}

fn word(file: &File, at: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at).unwrap();
    u64::from_ne_bytes(bytes)
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_root() -> bool {
    // SAFETY: the call has no arguments.
    unsafe { libc::geteuid() == 0 }
}

/// Each by its name, and as a descriptor of this process: the first is refused by its form, the second by what it is.
#[test]
fn files_of_others_are_left_alone() {
    let dir = Scratch::new("stats-files");
    let path = |name: &str| dir.0.join(name);
    let mut whole = vec![0; BYTES as usize];
    whole[..24].copy_from_slice(&header(FILE_MAGIC, VERSION));
    for (name, contents) in [("empty", &b""[..]), ("short", b"precious"), ("page", &[7; PAGE_BYTES]), ("whole", &whole)]
    {
        std::fs::write(path(name), contents).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(path(name)).unwrap();
        runs(&path(name), name);
        runs(&link(&file), name);
        assert!(std::fs::read(path(name)).unwrap() == contents, "{name} was written to");
    }
    std::fs::hard_link(path("whole"), path("second name")).unwrap();
    symlink(path("whole"), path("symlink")).unwrap();
    std::fs::write(path("unreadable"), &whole).unwrap();
    std::fs::set_permissions(path("unreadable"), Permissions::from_mode(0o000)).unwrap();
    for name in ["second name", "symlink", "unreadable", "absent"] {
        runs(&path(name), name);
    }
    assert!(std::fs::read(path("whole")).unwrap() == whole, "written to by a second name");
    // A file that has no name any more, and cannot be sealed.
    let unnamed = OpenOptions::new().read(true).write(true).open(path("whole")).unwrap();
    for name in ["whole", "second name"] {
        std::fs::remove_file(path(name)).unwrap();
    }
    assert_eq!(unnamed.metadata().unwrap().nlink(), 0);
    runs(&link(&unnamed), "unnamed");
    assert_eq!(word(&unnamed, NEXT), 1);
}

#[test]
fn what_is_no_file_is_not_waited_for() {
    let dir = Scratch::new("stats-kinds");
    let fifo = dir.0.join("fifo");
    let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
    // SAFETY: makes a FIFO of that name.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let open = OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let null = File::open("/dev/null").unwrap();
    let directory = File::open(&dir.0).unwrap();
    for named in [&fifo, &dir.0, &link(&open), &link(&null), &link(&directory), &PathBuf::from("/proc/1/fd/99999")] {
        runs(named, &named.display().to_string());
    }
}

#[test]
fn memfds_that_are_not_right_are_left_alone() {
    let wrong = [
        ("magic", memfd(BYTES, 7, VERSION, SEALS)),
        ("version", memfd(BYTES, FILE_MAGIC, VERSION + 1, SEALS)),
        ("empty", memfd(0, FILE_MAGIC, VERSION, SEALS)),
        ("a page", memfd(PAGE_BYTES as u64, FILE_MAGIC, VERSION, SEALS)),
        ("longer", memfd(BYTES + 1, FILE_MAGIC, VERSION, SEALS)),
        ("not sealed", memfd(BYTES, FILE_MAGIC, VERSION, libc::F_SEAL_GROW)),
        ("read only", memfd(BYTES, FILE_MAGIC, VERSION, SEALS | libc::F_SEAL_WRITE)),
        ("others may write", right_one()),
        ("another's", right_one()),
    ];
    wrong[7].1.set_permissions(Permissions::from_mode(0o602)).unwrap();
    let mut count = wrong.len();
    if is_root() {
        fchown(&wrong[8].1, Some(65_534), None).unwrap();
    } else {
        weir_testing::skip!("a foreign owner: only root can make one");
        count -= 1;
    }
    for (what, file) in &wrong[..count] {
        let before = (file.metadata().unwrap().len() > NEXT).then(|| word(file, NEXT));
        runs(&link(file), what);
        assert_eq!((file.metadata().unwrap().len() > NEXT).then(|| word(file, NEXT)), before, "{what} was written to");
    }
}

/// Root takes such a file, and a user that the kernel would not let open it does not.
#[test]
fn another_user_goes_without() {
    if !is_root() {
        weir_testing::skip!("only root can become another user");
        return;
    }
    let file = right_one();
    let name = [("WEIR_STATS", link(&file).into())];
    let set = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", "exit 7"];
    let output = run(Path::new("setpriv"), &set, Mode::Plain, &name);
    if output.status.code() == Some(127) {
        weir_testing::skip!("no setpriv; Debian has it in util-linux");
        return;
    }
    assert_eq!(output.status.code(), Some(7), "{}", describe(&output));
    assert!(foreign() || word(&file, NEXT) == 2, "setpriv took a page, and the shell none: {}", word(&file, NEXT));
}

#[test]
fn a_page_is_taken_and_a_forked_child_takes_its_own_by_memory_calls_alone() {
    let Some(program) = compile(Kind::C, "late_page.c") else { return };
    let (file, dir) = (right_one(), Scratch::new("stats-late"));
    let root = dir.0.to_str().expect("paths here are text");
    let output = run(&program, &[root], Mode::Plain, &[("WEIR_STATS", link(&file).into())]);
    assert!(output.status.success(), "{}", describe(&output));
    if foreign() {
        return weir_testing::skip!("the statistics are Weir's");
    }
    let page = PAGE_BYTES as u64;
    assert_eq!(word(&file, NEXT), 3, "two pages were taken");
    assert!([page, 2 * page].iter().all(|&at| word(&file, at) == u64::from_ne_bytes(*b"weirstat")));
    let pid = |at: u64| word(&file, at + 8) >> 32;
    assert_ne!(pid(page), pid(2 * page));
}
