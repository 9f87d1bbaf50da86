//! The end of the terminal.
//!
//! A terminal that has gone (a closed window, a lost connection, a killed multiplexer) reads as at its end, again and again.
//! The reader of keys takes that for no input yet and never returns, so that its thread hears of no signal either. And
//! a terminal that takes no output (Ctrl-S, a stopped multiplexer) has a write wait as long as it likes. So a thread of its
//! own waits for both.

use super::screen::{ENDING, Signals, end_by, give_back_modes};
use signal_hook::consts::signal::SIGHUP;
use signal_hook::low_level::pipe;
use std::fs::File;
use std::io::{IsTerminal, Read, Result, stdin, stdout};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long the loop may take to end by a signal: one look at all processes of a busy machine.
const GRACE: Duration = Duration::from_secs(3);

/// Watches the terminals of this program from now on.
pub fn watch(counted: &Signals) -> Result<()> {
    let counted = counted.clone();
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
        give_back_modes();
        end_by(counted.end().unwrap_or(SIGHUP))
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
