//! systemd's memory pressure protocol: the service manager says what to watch in `MEMORY_PRESSURE_WATCH`, and what
//! to write there first in `MEMORY_PRESSURE_WRITE` (base64).

use super::psi::Growth;
use crate::os::fd::{self, FileKind, POLLIN, POLLPRI};
use crate::os::file::path::FixedPath;
use crate::os::file::socket;
use crate::os::syscall::{Errno, Result};
use arrayvec::ArrayVec;
use base64ct::{Base64Unpadded, Encoding};
use core::cell::UnsafeCell;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

/// Longest text that may be written first.
const WRITE_CAPACITY: usize = 256;
/// Longest value of a variable that is kept.
const VARIABLE_CAPACITY: usize = 511;

/// A text that is written before the file is watched.
type Text = ArrayVec<u8, WRITE_CAPACITY>;

/// A request of the service manager's.
#[derive(Debug)]
pub enum Request<'a> {
    /// Nothing: the program chooses for itself.
    Unset,
    /// Not to react to pressure at all (`/dev/null`).
    Off,
    /// To watch this file.
    Watch {
        /// An absolute path.
        path: &'a [u8],
        /// The text to write first, in base64.
        write: Option<&'a [u8]>,
    },
}

impl<'a> Request<'a> {
    /// Reads the two environment variables. A path that is not absolute counts as unset, as systemd has it.
    pub fn from_variables(watch: Option<&'a [u8]>, write: Option<&'a [u8]>) -> Self {
        match watch {
            Some(b"/dev/null") => Self::Off,
            Some(path) if path.first() == Some(&b'/') => Self::Watch { path, write: write.filter(|w| !w.is_empty()) },
            _ => Self::Unset,
        }
    }
}

/// A variable of the environment, copied: programs that set their process title write over the original.
struct Variable {
    text: UnsafeCell<ArrayVec<u8, VARIABLE_CAPACITY>>,
    is_set: AtomicBool,
}

// SAFETY: `text` is written once, by `keep`, before `is_set` is stored (release) and while the process has one thread.
// It is only read where `is_set` was seen (acquire).
unsafe impl Sync for Variable {}

impl Variable {
    const fn new() -> Self {
        Self { text: UnsafeCell::new(ArrayVec::new_const()), is_set: AtomicBool::new(false) }
    }

    /// Keeps `value`, unless it is too long or there is one.
    fn keep(&self, value: &[u8]) {
        if !self.is_set.load(Relaxed) {
            // SAFETY: `is_set` is false, so there is no reader, and the start of the process has one thread.
            let text = unsafe { &mut *self.text.get() };
            let fits = text.try_extend_from_slice(value).is_ok();
            self.is_set.store(fits, Release);
        }
    }

    fn get(&self) -> Option<&[u8]> {
        // SAFETY: `is_set` was stored after the last write.
        self.is_set.load(Acquire).then(|| unsafe { (*self.text.get()).as_slice() })
    }
}

static WATCH: Variable = Variable::new();
static WRITE: Variable = Variable::new();

/// Keeps a variable of the environment if it is one of the two, at the start of the process; whether it is.
pub fn keep_variable(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"MEMORY_PRESSURE_WATCH" => WATCH.keep(value),
        b"MEMORY_PRESSURE_WRITE" => WRITE.keep(value),
        _ => return false,
    }
    true
}

/// The request in the environment.
pub fn request() -> Request<'static> {
    Request::from_variables(WATCH.get(), WRITE.get())
}

/// A file that the service manager has us watch.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// The descriptor.
    pub fd: i32,
    /// The events to poll the descriptor for.
    pub events: i16,
    /// Whether input must be thrown away after an event. A regular file has none.
    pub has_input: bool,
    /// For a pressure file, distinguishes its trigger's events from false ones.
    pub growth: Option<Growth>,
}

/// Opens what is to be watched and writes what is to be written first. A path with no text to write is only
/// polled, as systemd's own client does.
pub fn open(path: &[u8], write: Option<&[u8]>) -> Result<Watched> {
    let path = FixedPath::from_parts(&[path]).ok_or(Errno::ENAMETOOLONG)?;
    let text = write.map_or(Some(Text::new()), base64).ok_or(Errno::EINVAL)?;
    let kind = fd::stat(path.as_c_str())?.kind;
    let (file, events, has_input) = match kind {
        FileKind::Regular => (fd::open(path.as_c_str(), access(&text) | fd::O_NONBLOCK)?, POLLPRI, false),
        // Opened for both ways, a FIFO has a writer at all times and does not hang up between events.
        FileKind::Fifo => (fd::open(path.as_c_str(), fd::O_RDWR | fd::O_NONBLOCK)?, POLLIN, true),
        FileKind::Socket => (socket::connect(path.as_bytes())?, POLLIN, true),
        FileKind::CharDevice | FileKind::Other => return Err(Errno::EINVAL),
    };
    // Before the trigger is armed. A regular file that was swapped for something else since `stat`, or is no pressure
    // file, is polled as what it is not; harmless.
    let growth = if kind == FileKind::Regular { Growth::of_text(file, &text).ok() } else { None };
    if !text.is_empty()
        && let Err(e) = fd::write(file, &text)
    {
        let _ = fd::close(file);
        return Err(e);
    }
    Ok(Watched { fd: file, events, has_input, growth })
}

/// Whether there is something to watch and the text can be read, as far as can be seen without opening it.
pub fn is_usable(path: &[u8], write: Option<&[u8]>) -> bool {
    let found = FixedPath::from_parts(&[path]).and_then(|path| fd::stat(path.as_c_str()).ok());
    found.is_some_and(|found| matches!(found.kind, FileKind::Regular | FileKind::Fifo | FileKind::Socket))
        && write.is_none_or(|coded| base64(coded).is_some())
}

fn access(text: &[u8]) -> u32 {
    if text.is_empty() { fd::O_RDONLY } else { fd::O_RDWR }
}

/// Throws away what a FIFO or socket holds; false at its end, when there is nothing more to watch.
pub fn discard_input(file: i32) -> bool {
    let mut rubbish = [0u8; 512];
    loop {
        match fd::read(file, &mut rubbish) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(Errno::EAGAIN) => return true,
            Err(_) => return false,
        }
    }
}

/// Decodes base64 (padding optional, white space ignored); `None` for anything else or too much of it.
fn base64(text: &[u8]) -> Option<Text> {
    let mut coded = ArrayVec::<u8, { WRITE_CAPACITY / 3 * 4 + 4 }>::new();
    let body = text.trim_ascii();
    let body = body.strip_suffix(b"==").or_else(|| body.strip_suffix(b"=")).unwrap_or(body);
    for &letter in body.iter().filter(|letter| !letter.is_ascii_whitespace()) {
        coded.try_push(letter).ok()?;
    }
    Text::try_from(Base64Unpadded::decode_in_place(&mut coded).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::vec::Vec;

    /// `some 200000 2000000` and a zero byte, as systemd writes it.
    const CODED: &[u8] = b"c29tZSAyMDAwMDAgMjAwMDAwMAA=";
    const PLAIN: &[u8] = b"some 200000 2000000\0";

    fn bytes(path: &std::path::Path) -> &[u8] {
        path.to_str().unwrap().as_bytes()
    }

    fn wait(watched: &Watched, ms: u64) -> i16 {
        let mut poll = [fd::PollFd { fd: watched.fd, events: watched.events, revents: 0 }];
        fd::ppoll(&mut poll, Some(ms * 1_000_000)).unwrap();
        poll[0].revents
    }

    #[test]
    fn requests() {
        assert!(matches!(Request::from_variables(None, Some(b"x")), Request::Unset));
        assert!(matches!(Request::from_variables(Some(b"/dev/null"), None), Request::Off));
        assert!(matches!(Request::from_variables(Some(b"relative"), None), Request::Unset));
        let set = Request::from_variables(Some(b"/p"), Some(b""));
        assert!(matches!(set, Request::Watch { path: b"/p", write: None }));
    }

    #[test]
    fn a_fifo_gets_the_text_and_gives_events() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let watched = open(bytes(&path), None).unwrap();
        assert_eq!(wait(&watched, 0), 0);
        let mut manager = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        manager.write_all(b"now").unwrap();
        assert_eq!(wait(&watched, 1000), POLLIN);
        assert!(watched.has_input && discard_input(watched.fd));
        assert_eq!(wait(&watched, 0), 0);
        drop(manager);
        assert_eq!(wait(&watched, 0), 0, "no hang-up between events");
        let writing = open(bytes(&path), Some(CODED)).unwrap();
        let mut text = [0u8; 64];
        let mut manager = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(manager.read(&mut text).unwrap(), PLAIN.len());
        assert_eq!(&text[..PLAIN.len()], PLAIN);
        fd::close(watched.fd).unwrap();
        fd::close(writing.fd).unwrap();
    }

    #[test]
    fn a_socket_gets_the_text_and_gives_events_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let watched = open(bytes(&path), Some(CODED)).unwrap();
        let (mut manager, _) = listener.accept().unwrap();
        let mut text = [0u8; PLAIN.len()];
        manager.read_exact(&mut text).unwrap();
        assert_eq!(text, PLAIN);
        manager.write_all(&[0; 2000]).unwrap();
        assert_eq!(wait(&watched, 1000), POLLIN);
        assert!(discard_input(watched.fd));
        drop(manager);
        assert_ne!(wait(&watched, 1000), 0);
        assert!(!discard_input(watched.fd));
        fd::close(watched.fd).unwrap();
    }

    #[test]
    fn a_regular_file_is_written_and_has_no_input() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let watched = open(bytes(&path), Some(CODED)).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), PLAIN);
        assert_eq!((watched.events, watched.has_input, watched.growth), (POLLPRI, false, None));
        fd::close(watched.fd).unwrap();
        assert!(is_usable(b"/proc/self/maps", Some(CODED)) && !is_usable(b"/proc/self/maps", Some(b"!")));
        assert!(
            !is_usable(b"/no/such/file", None) && !is_usable(b"/dev/zero", None) && !is_usable(&[b'/'; 5000], None)
        );
        assert_eq!(open(b"/no/such/file", None).unwrap_err(), Errno::ENOENT);
        assert_eq!(open(b"/dev/zero", None).unwrap_err(), Errno::EINVAL);
        assert_eq!(open(b"/dev", None).unwrap_err(), Errno::EINVAL);
        assert_eq!(open(b"/dev/zero", Some(b"!")).unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn base64_of_the_standards_examples() {
        let decode = |text: &[u8]| base64(text).map(|text| text.to_vec());
        for (coded, plain) in [("", ""), ("Zg==", "f"), ("Zm8", "fo"), ("Zm9v", "foo"), ("Zm9v\nYmFy", "foobar")] {
            assert_eq!(decode(coded.as_bytes()).unwrap(), plain.as_bytes());
        }
        assert_eq!(decode(b"Zm9vY"), None);
        assert_eq!(decode(b"Z-=="), None);
        assert_eq!(decode(&[b'Z'; WRITE_CAPACITY / 3 * 4 + 4]), None, "256 bytes at most");
        assert_eq!(decode(&[b'A'; 340]).unwrap(), [0; 255]);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(text: Vec<u8>, coded in "[A-Za-z0-9+/=]{0,40}") {
            let _ = base64(&text);
            let _ = base64(coded.as_bytes());
            let _ = Request::from_variables(Some(&text), Some(&text));
        }
    }
}
