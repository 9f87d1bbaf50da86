//! The mappings of a process: the lines of `/proc/PID/maps` and `/proc/PID/smaps`, whatever names a process gives its files. And
//! its `/proc/PID/status`, whatever its own name is.

use procfs::process::{MemoryMaps, Process, Status};
use procfs::{FromBufRead, ProcError};
use std::borrow::Cow;
use std::io::{self, Read};
use std::path::Path;

/// Bytes that are read at most: 65,530 mappings (`vm.max_map_count`) of files with paths of usual length. A process may have
/// them with paths of any length, which are not to fill the memory of who looks at it.
const MOST_MAPS: u64 = 16 << 20;
/// The bound of `smaps`, with the 25 lines that `smaps` has for each, 700 bytes.
const MOST_SMAPS: u64 = 64 << 20;
/// Bytes of the usual process's `maps`, so that its reading does not begin in small steps.
const USUAL: usize = 16 << 10;
/// How the kernel names System V shared memory: this, and a key of [`KEY`] hexadecimal digits.
const SYSTEM_V: &str = "/SYSV";
const KEY: usize = 8;

/// The number by which the kernel tells of a process's memory. That is its own, or that of another of its threads where the main
/// thread has ended before them.
pub fn living(pid: i32) -> i32 {
    let has_ended =
        |stat: procfs::ProcResult<procfs::process::Stat>| stat.is_ok_and(|stat| matches!(stat.state, 'Z' | 'X'));
    let process = Process::new(pid).ok().filter(|process| has_ended(process.stat()));
    let tasks = process.and_then(|process| process.tasks().ok()).into_iter().flatten().flatten();
    let mut others = tasks.filter(|task| task.tid != pid && !has_ended(task.stat())).map(|task| task.tid);
    others.next().unwrap_or(pid)
}

/// Whether a process has no memory any more: it ends, or has ended and was not waited for, or is not there.
pub fn has_ended(pid: i32) -> bool {
    Process::new(living(pid)).and_then(|process| process.stat()).map_or(true, |stat| stat.vsize == 0)
}

/// The text of a process's `maps` file: its first [`MOST_MAPS`] bytes.
pub fn text(pid: i32) -> io::Result<Vec<u8>> {
    read(std::fs::File::open(format!("/proc/{pid}/maps"))?, MOST_MAPS)
}

/// A process's `maps` file, of which no more than [`MOST_MAPS`] bytes are read.
pub fn open(process: &Process) -> Result<impl Read + use<>, ProcError> {
    Ok(process.open_relative(Path::new("maps"))?.take(MOST_MAPS))
}

/// A process's mappings.
pub fn maps(process: &Process) -> Result<MemoryMaps, ProcError> {
    parse(&read(open(process)?, MOST_MAPS)?)
}

/// A process's mappings, with what is resident of each.
pub fn smaps(process: &Process) -> Result<MemoryMaps, ProcError> {
    parse(&read(process.open_relative(Path::new("smaps"))?, MOST_SMAPS)?)
}

/// Bytes of `status` that are read at most: it has some 60 lines.
const MOST_STATUS: u64 = 64 << 10;

/// A process's `status`. The kernel cuts a name after 15 bytes, which may be within a character; the reader of procfs 0.18 refuses
/// text that is not UTF-8.
pub fn status(process: &Process) -> Result<Status, ProcError> {
    let text = read(process.open_relative(Path::new("status"))?, MOST_STATUS)?;
    Status::from_buf_read(String::from_utf8_lossy(&text).as_bytes())
}

fn read(file: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(USUAL);
    file.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// The mappings in the text of such a file.
///
/// The reader of procfs 0.18 refuses text that is not UTF-8 or ends within a line. It takes any file whose path begins with
/// `/SYSV` for System V shared memory. It panics or refuses all of the text where no key follows. Any process can map such a
/// file. So these are handed to it in another form: `//SYSV` is the same path.
pub fn parse(text: &[u8]) -> Result<MemoryMaps, ProcError> {
    let whole = memchr::memrchr(b'\n', text).map_or(0, |end| end + 1);
    let mut text = String::from_utf8_lossy(&text[..whole]);
    if text.contains(SYSTEM_V) {
        text = Cow::Owned(text.split_inclusive('\n').map(with_plain_name).collect());
    }
    MemoryMaps::from_buf_read(text.as_bytes())
}

/// A line of which the name is no System V shared memory, unless it has a key.
fn with_plain_name(line: &str) -> Cow<'_, str> {
    // The first slash of a line begins its name.
    let Some(at) = line.find('/') else { return Cow::Borrowed(line) };
    let (before, name) = line.split_at(at);
    match name.strip_prefix(SYSTEM_V) {
        Some(rest) if !has_key(rest) => Cow::Owned(format!("{before}/{name}")),
        _ => Cow::Borrowed(line),
    }
}

fn has_key(rest: &str) -> bool {
    rest.as_bytes().get(..KEY).is_some_and(|key| key.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::process::MMapPath;

    fn names(names: &[&[u8]]) -> Vec<MMapPath> {
        let line = |name: &&[u8]| [b"1000-2000 rw-s 00000000 00:01 7                          ", *name, b"\n"].concat();
        let text: Vec<u8> = names.iter().flat_map(line).collect();
        parse(&text).unwrap().into_iter().map(|map| map.pathname).collect()
    }

    #[test]
    fn files_whose_names_begin_as_system_v_shared_memory_do_are_files() {
        let path = |name: &str| MMapPath::Path(name.into());
        let found = names(&[b"/SYSV", b"/SYSV12", b"/SYSVnothexad", "/SYSV123456é".as_bytes(), b"/a/SYSV1"]);
        let wanted = ["//SYSV", "//SYSV12", "//SYSVnothexad", "//SYSV123456é", "/a/SYSV1"];
        assert_eq!(found, wanted.map(path));
        assert_eq!(names(&[b"/SYSV0000abcd (deleted)"]), [MMapPath::Vsys(0xabcd)]);
    }

    #[test]
    fn a_process_whose_name_is_cut_within_a_character_has_a_status() {
        let named = std::thread::spawn(|| {
            // 16 bytes, of which the kernel keeps 15.
            rustix::thread::set_name(c"abcdefghijklmn\xc3\xa9").unwrap();
            let thread = Process::new(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            (thread.status().is_err(), status(&thread).unwrap())
        });
        let (is_refused, status) = named.join().unwrap();
        assert!(is_refused, "procfs reads it by now");
        assert_eq!((status.name.as_str(), status.tgid), ("abcdefghijklmn\u{fffd}", std::process::id() as i32));
    }

    #[test]
    fn names_of_any_bytes_and_a_text_that_was_cut_are_read() {
        assert_eq!(names(&[b"/tmp/\xff\xfe"]), [MMapPath::Path("/tmp/\u{fffd}\u{fffd}".into())]);
        assert_eq!(parse(b"1000-2000 rw-s 00000000 00:01 7  /a\n2000-30").unwrap().len(), 1);
        assert_eq!(parse(b"").unwrap().len(), 0);
    }
}
