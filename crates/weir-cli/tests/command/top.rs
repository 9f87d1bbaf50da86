//! `weir top` on a real terminal (a pseudo-terminal), and as text.

use crate::subject::{Subject, says, terminal, text, wait_for, weir};
use rustix::process::Signal;
use rustix::termios::{Action, LocalModes, Winsize, tcflow, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

/// `weir top`, which ends with the test whatever becomes of it.
struct Top(Child);

impl Top {
    /// On a new terminal, which may be its session's; the terminal's outer and inner end.
    fn start(arguments: &[&str], is_sessions: bool) -> (Self, File, File) {
        let (outer, inner) = terminal();
        tcsetwinsize(&inner, size(80, 24)).unwrap();
        let end = || Stdio::from(inner.try_clone().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("top").args(arguments).env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
        // SAFETY: two system calls that a child may make between fork and exec.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                if is_sessions {
                    rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                }
                Ok(())
            });
        }
        (Self(command.spawn().unwrap()), outer, inner)
    }

    fn kill(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }

    fn ended(&mut self) -> ExitStatus {
        wait_for("the end of top", || self.0.try_wait().unwrap())
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `weir top` on a terminal of its own, of which the screen is read as a person sees it.
struct Terminal {
    top: Top,
    keyboard: File,
    screen: Arc<Mutex<vt100::Parser>>,
    /// The terminal as the program sees it.
    line: File,
}

impl Terminal {
    fn new(arguments: &[&str]) -> Self {
        let (top, keyboard, line) = Top::start(arguments, true);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(cells(24), cells(80), 0)));
        let (mut output, parser) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                parser.lock().unwrap().process(&bytes[..read]);
            }
        });
        Self { top, keyboard, screen, line }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn shown(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen has this on it.
    fn shows(&self, part: &str) {
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(part, || self.shown().contains(part).then_some(()));
        }));
        assert!(found.is_ok(), "{part} is not on the screen:\n{}", self.shown());
    }

    /// Whether the terminal is as it was: keys are echoed, lines edited, the first screen is back, the cursor shown.
    fn is_given_back(&self) -> bool {
        let modes = tcgetattr(&self.line).unwrap().local_modes;
        let guard = self.screen.lock().unwrap();
        let screen = guard.screen();
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
            && !screen.alternate_screen()
            && !screen.hide_cursor()
    }
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }
}

#[test]
fn processes_are_shown_and_steered_and_the_terminal_is_given_back() {
    // What is freed stays until it is drained.
    let Some(mut subject) = Subject::new(&[("WEIR_IDLE_MS", "3600000")]) else { return };
    subject.tell("hold 60");
    let pid = subject.pid().to_string();
    wait_for("measured", || says(&["why", &pid, "--json"]).contains("\"live\"").then_some(()));
    let mut terminal = Terminal::new(&["--delay=200ms"]);
    terminal.shows("F10Quit");
    // Only this one, whatever other processes with Weir there are.
    terminal.press("\\");
    terminal.shows("Filter: _");
    terminal.press(&pid);
    terminal.press("\r");
    terminal.shows(&format!("({pid})"));
    terminal.shows("# live 6");
    assert!(!tcgetattr(&terminal.line).unwrap().local_modes.contains(LocalModes::ECHO));
    subject.tell("drop");
    terminal.press("k");
    terminal.shows("Steer ");
    terminal.press("\x1b[B\r");
    terminal.shows("y: yes");
    terminal.press("y");
    terminal.shows(&format!("{pid}: drain released "));
    terminal.press("h");
    terminal.shows("Help: any key ends it");
    terminal.press("q");
    terminal.shows("F10Quit");
    // A larger terminal is filled, a small one too.
    for (columns, rows) in [(120, 40), (40, 12), (80, 24)] {
        terminal.screen.lock().unwrap().screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&terminal.line, size(columns, rows)).unwrap();
        wait_for("drawn anew", || {
            let last = terminal.shown().lines().nth(usize::from(rows) - 1).map(|line| line.contains("F1Help"));
            last.filter(|&is_there| is_there)
        });
    }
    // A key that comes together with a new size is seen with the next one (crossterm 0.29).
    let ended = wait_for("the end of top", || {
        terminal.press("q");
        terminal.top.0.try_wait().unwrap()
    });
    assert_eq!(ended.code(), Some(0));
    wait_for("given back", || terminal.is_given_back().then_some(()));
}

#[test]
fn a_signal_ends_it_and_the_terminal_is_given_back() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut terminal = Terminal::new(&[]);
        terminal.shows("F10Quit");
        assert!(!terminal.is_given_back());
        terminal.top.kill(signal);
        assert_eq!(terminal.top.ended().signal(), Some(signal.as_raw()));
        wait_for("given back", || terminal.is_given_back().then_some(()));
    }
}

/// Ctrl-Z, and the signal that stops: the shell's terminal meanwhile, the screen again after.
#[test]
fn it_can_be_stopped_and_goes_on() {
    let mut terminal = Terminal::new(&["--delay=200ms"]);
    terminal.shows("F10Quit");
    let is_stopped = |terminal: &Terminal| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", terminal.top.0.id())).ok()?;
        stat.contains(") T ").then_some(())
    };
    for by_key in [true, false] {
        if by_key {
            terminal.press("\x1a")
        } else {
            terminal.top.kill(Signal::TSTP)
        };
        wait_for("stopped", || is_stopped(&terminal));
        wait_for("given back", || terminal.is_given_back().then_some(()));
        terminal.top.kill(Signal::CONT);
        wait_for("taken again", || (!terminal.is_given_back()).then_some(()));
        terminal.shows("F10Quit");
    }
    terminal.press("q");
    assert_eq!(terminal.top.ended().code(), Some(0));
}

#[test]
fn control_c_quits_as_q_does() {
    let mut terminal = Terminal::new(&["--delay=200ms"]);
    terminal.shows("F10Quit");
    terminal.press("\x03");
    assert_eq!(terminal.top.ended().code(), Some(0));
    wait_for("given back", || terminal.is_given_back().then_some(()));
}

#[test]
fn without_a_terminal_it_says_so_in_one_line() {
    let refused = weir(&["top"]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
    let said = text(&refused.stderr);
    assert!(said.contains("standard output is no terminal") && said.lines().count() == 1, "{said}");
}

#[test]
fn one_screen_is_printed_as_text() {
    let Some(mut subject) = Subject::new(&[]) else { return };
    subject.tell("hold 60");
    let pid = subject.pid().to_string();
    let line = wait_for("60 MiB in use", || {
        let text = says(&["top", "--once"]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(!text.contains('\x1b') && text.lines().count() >= 24);
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(&pid))?.to_owned();
        let live = line.split_whitespace().nth(2)?.strip_suffix('M')?.parse::<u32>().ok()?;
        (58..70).contains(&live).then_some(line)
    });
    assert!(line.contains("subject-"), "{line}");
    let without = says(&["top", "--once"]);
    let own = std::process::id().to_string();
    let has = |text: &str| text.lines().any(|line| line.split_whitespace().next() == Some(&own));
    assert!(!has(&without) && has(&says(&["top", "--once", "--all"])), "this test has no Weir");
}

/// `weir top` once it has drawn.
fn drawn(is_sessions: bool) -> (Top, File, File) {
    let (top, mut outer, inner) = Top::start(&["--delay=100ms"], is_sessions);
    let (mut drawn, mut bytes) = (Vec::new(), [0; 4096]);
    while !drawn.windows(4).any(|part| part == b"Quit") {
        let read = outer.read(&mut bytes).unwrap();
        drawn.extend_from_slice(&bytes[..read]);
    }
    (top, outer, inner)
}

/// This terminal answers no question: not where its cursor is either.
#[test]
fn control_l_draws_anew_on_a_terminal_that_answers_nothing() {
    let mut terminal = Terminal::new(&["--delay=200ms"]);
    terminal.shows("F10Quit");
    let garbage = b"\x1b[5;5Hgarbage of another program";
    terminal.screen.lock().unwrap().process(garbage);
    terminal.shows("garbage of");
    terminal.press("\x0c");
    wait_for("drawn anew", || (!terminal.shown().contains("garbage of")).then_some(()));
    terminal.shows("F10Quit");
    terminal.press("q");
    assert_eq!(terminal.top.ended().code(), Some(0));
}

/// With the signal that the kernel sends a session's leader, and without: of a terminal that is not the session's.
#[test]
fn it_ends_with_its_terminal() {
    for is_sessions in [true, false] {
        let (mut top, outer, inner) = drawn(is_sessions);
        drop((outer, inner));
        assert_eq!(top.ended().signal(), Some(Signal::HUP.as_raw()), "session's: {is_sessions}");
    }
}

/// As after Ctrl-S, or with a multiplexer that is stopped: a write waits for ever.
#[test]
fn a_signal_ends_it_on_a_terminal_that_takes_no_output() {
    let (mut top, _outer, inner) = drawn(true);
    tcflow(&inner, Action::OOff).unwrap();
    top.kill(Signal::TERM);
    assert_eq!(top.ended().signal(), Some(Signal::TERM.as_raw()));
    let modes = tcgetattr(&inner).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG));
}
