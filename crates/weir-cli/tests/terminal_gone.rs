//! `weir top` on a terminal that goes away, or that takes no output any more.

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Action, LocalModes, Winsize, tcflow, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use weir_testing::wait_until;

/// `weir top`, which ends with the test whatever becomes of it.
struct Top(Child);

impl Top {
    /// Waits for its end; the signal that it ended by.
    fn signal(&mut self) -> Option<i32> {
        let mut status = None;
        wait_until("the end of top", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap().signal()
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `weir top` on a new terminal, once it has drawn; the terminal's outer and inner end.
fn top(is_sessions: bool) -> (Top, File, File) {
    let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&outer).unwrap();
    unlockpt(&outer).unwrap();
    let name = ptsname(&outer, Vec::new()).unwrap();
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
    let inner = File::from(rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap());
    tcsetwinsize(&inner, Winsize { ws_col: 80, ws_row: 24, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let end = || Stdio::from(inner.try_clone().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["top", "--delay=100ms"]).env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end());
    // SAFETY: two system calls that a child may make between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            match is_sessions {
                true => Ok(rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?),
                false => Ok(()),
            }
        });
    }
    let top = Top(command.spawn().unwrap());
    let mut outer = File::from(outer);
    let (mut drawn, mut bytes) = (Vec::new(), [0; 4096]);
    while !drawn.windows(4).any(|part| part == b"Quit") {
        let read = outer.read(&mut bytes).unwrap();
        drawn.extend_from_slice(&bytes[..read]);
    }
    (top, outer, inner)
}

/// With the signal that the kernel sends a session's leader, and without: of a terminal that is not the session's.
#[test]
fn it_ends_with_its_terminal() {
    for is_sessions in [true, false] {
        let (mut top, outer, inner) = top(is_sessions);
        drop((outer, inner));
        assert_eq!(top.signal(), Some(Signal::HUP.as_raw()), "session's: {is_sessions}");
    }
}

/// As after Ctrl-S, or with a multiplexer that is stopped: a write waits for ever.
#[test]
fn a_signal_ends_it_on_a_terminal_that_takes_no_output() {
    let (mut top, _outer, inner) = top(true);
    tcflow(&inner, Action::OOff).unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&top.0), Signal::TERM).unwrap();
    assert_eq!(top.signal(), Some(Signal::TERM.as_raw()));
    let modes = tcgetattr(&inner).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG));
}
