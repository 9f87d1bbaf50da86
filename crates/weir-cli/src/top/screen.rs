//! The terminal: taken over at the start, and given back as it was at every end.
//!
//! - The program ends, or fails: [`Screen`] is dropped.
//! - It panics: a hook gives the terminal back before the message is printed.
//! - A signal ends it: the handler only notes it; the loop sees it, drops the screen, and ends by the same signal. A thread of its
//!   own sees to it where the loop does not come that far ([`watch_end`]).
//! - It is stopped (Ctrl-Z, `SIGTSTP`): the terminal is given back before, and taken again after.

use crate::processes::signals::{ENDING, Noted};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use signal_hook::consts::signal::{SIGHUP, SIGSTOP, SIGTSTP};
use signal_hook::low_level::pipe;
use std::fs::File;
use std::io::{IsTerminal, Read, Result, Stdout, stdin, stdout};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Once;
use std::time::Duration;

/// How long the loop may take to end by a signal: one look at all processes of a busy machine.
const GRACE: Duration = Duration::from_secs(3);

/// The screen, as long as it is taken over.
pub struct Screen {
    /// The terminal's own end would show the cursor again, and where the terminal has gone panic as it says that it cannot.
    pub terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
}

impl Screen {
    /// Takes the terminal over.
    pub fn take() -> Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |what| {
                give_back();
                before(what);
            }));
        });
        enable_raw_mode()?;
        let entered = execute!(stdout(), EnterAlternateScreen);
        let made = entered.and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        made.map(|terminal| Self { terminal: ManuallyDrop::new(terminal) }).inspect_err(|_| give_back())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// All of it, whatever fails: the terminal may be gone.
fn give_back() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// The signals that end a program or stop it, noted from now on.
pub struct Signals {
    /// Those that end it.
    pub end: Noted,
    /// The one that stops it.
    pub stop: Noted,
}

impl Signals {
    /// Whether they are ignored or not.
    pub fn new() -> Result<Self> {
        Ok(Self { end: Noted::of(ENDING)?, stop: Noted::of([SIGTSTP])? })
    }
}

/// Stops this program until a signal has it go on; its terminal is to be given back before.
pub fn suspend() -> Result<()> {
    signal_hook::low_level::raise(SIGSTOP)
}

/// Ends this program as a signal does, so that its parent sees which.
pub fn end_by(signal: i32) -> ! {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
    std::process::exit(128 + signal)
}

/// Watches the terminals of this program from now on.
///
/// A terminal that has gone (a closed window, a lost connection, a killed multiplexer) reads as at its end, again and again.
/// The reader of keys takes that for no input yet and never returns, so that its thread hears of no signal either. And
/// a terminal that takes no output (Ctrl-S, a stopped multiplexer) has a write wait as long as it likes. So a thread of its
/// own waits for both.
pub fn watch_end(noted: &Noted) -> Result<()> {
    let noted = noted.clone();
    let terminals = terminals()?;
    let (mut signalled, signals) = UnixStream::pair()?;
    for signal in ENDING {
        pipe::register(signal, signals.try_clone()?)?;
    }
    std::thread::Builder::new().name("hangup".into()).spawn(move || {
        if is_hung_up(&terminals, signalled.as_raw_fd()) {
            // There is nothing to give back.
            end_by(SIGHUP);
        }
        let _ = signalled.read(&mut [0]);
        std::thread::sleep(GRACE);
        // The modes alone: a write may wait for ever, as the terminal takes no output now.
        let _ = disable_raw_mode();
        end_by(noted.signal().unwrap_or(SIGHUP))
    })?;
    Ok(())
}

/// Whether one of the terminals has gone.
pub fn has_gone() -> bool {
    let Ok(terminals) = terminals() else { return true };
    let mut all = waited_for(&terminals);
    // SAFETY: the kernel reads and writes so many entries of the list, which is this function's.
    unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, 0) > 0 }
}

fn terminals() -> Result<Vec<OwnedFd>> {
    Ok([Some(stdout().as_fd().try_clone_to_owned()?), keyboard()].into_iter().flatten().collect())
}

/// The kernel tells a hang-up whether it is asked for or not.
fn waited_for(terminals: &[OwnedFd]) -> Vec<libc::pollfd> {
    terminals.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: 0, revents: 0 }).collect()
}

/// Where keys come from, as the reader of keys has it.
fn keyboard() -> Option<OwnedFd> {
    if stdin().is_terminal() {
        return stdin().as_fd().try_clone_to_owned().ok();
    }
    File::open("/dev/tty").ok().map(OwnedFd::from)
}

/// Waits until one of the terminals has gone (`true`), or a signal has come.
fn is_hung_up(terminals: &[OwnedFd], signals: RawFd) -> bool {
    let mut all = waited_for(terminals);
    all.push(libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 });
    loop {
        // SAFETY: the kernel reads and writes so many entries of the list, which is this function's.
        let ready = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, -1) };
        let (last, terminals) = match all.split_last() {
            Some(parts) if ready > 0 => parts,
            _ => continue,
        };
        if terminals.iter().any(|it| it.revents != 0) {
            return true;
        }
        if last.revents != 0 {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Screen;
    use std::process::{Command, Stdio};
    use weir_testing::skip;

    /// Has the process that the test starts, on a terminal of its own, panic.
    const IS_TO_PANIC: &str = "WEIR_TEST_PANICS_ON_THE_SCREEN";

    #[test]
    fn a_panic_gives_the_terminal_back_before_it_is_told() {
        if std::env::var_os(IS_TO_PANIC).is_some() {
            let _screen = Screen::take().unwrap();
            panic!("told on the first screen");
        }
        let (own, thread) = (std::env::current_exe().unwrap(), std::thread::current());
        let run = format!("'{}' --exact {} --nocapture; stty -a", own.display(), thread.name().unwrap());
        let mut command = Command::new("script");
        command.args(["-qec", &run, "/dev/null"]).env(IS_TO_PANIC, "1").stdin(Stdio::null());
        let Ok(output) = command.output() else {
            return skip!("no `script`; Debian has it in bsdutils");
        };
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        let place = |part: &str| shown.find(part).unwrap_or_else(|| panic!("{part:?} is missing: {shown:?}"));
        let [taken, given_back, told] = ["\x1b[?1049h", "\x1b[?1049l", "told on the first screen"].map(place);
        assert!(taken < given_back && given_back < told, "{shown:?}");
        assert!(shown.contains("\x1b[?25h"), "the cursor is shown: {shown:?}");
        let modes: Vec<&str> = shown[place("speed ")..].split_whitespace().collect();
        assert!(modes.contains(&"icanon") && modes.contains(&"echo") && modes.contains(&"isig"), "{modes:?}");
    }
}
