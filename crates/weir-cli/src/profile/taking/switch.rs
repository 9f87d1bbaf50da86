//! Sampling in a process, switched on through its control channel, and back as it was.

use crate::base::failure::{Failure, Kind};
use crate::base::output;
use crate::inspect::asked::figure;
use crate::inspect::control::Control;
use crate::inspect::page::Page;
use crate::processes::maps;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;

/// The setting: mean of the bytes between two samples; 0: none are taken.
const SETTING: &str = "profile_bytes";

/// Sampling that was switched on. It goes back when this is dropped: a signal that ends this process is to be caught before.
pub struct Switch {
    control: Control,
    pid: i32,
    before: u64,
    bytes: u64,
    stays: bool,
    /// Locked as long as this lives.
    _only: Option<File>,
}

impl Switch {
    /// Has process `pid` take a sample each `bytes` on average.
    pub fn set(pid: i32, page: &Page, bytes: u64, stays: bool) -> Result<Self, Failure> {
        let only = lock(pid)?;
        let control = Control::connect(pid, page).map_err(|why| refused(pid, bytes, &why))?;
        let before = value(&control).map_err(|why| refused(pid, bytes, &why))?;
        control.ask(&format!("set {SETTING} {bytes}")).map_err(|why| refused(pid, bytes, &why))?;
        Ok(Self { control, pid, before, bytes, stays, _only: only })
    }

    /// Sets it back, unless another command or the process has set it meanwhile.
    fn back(&self) -> Result<(), Failure> {
        match value(&self.control)? == self.bytes {
            true => self.control.ask(&format!("set {SETTING} {}", self.before)).map(drop),
            false => Ok(()),
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let (pid, before) = (self.pid, self.before);
        // A process that has ended samples no more.
        if !self.stays
            && let Err(why) = self.back()
            && !maps::has_ended(pid)
        {
            output::say(format_args!(
                "weir: warning: process {pid} goes on sampling ({why}): `weir ctl {pid} set {SETTING} {before}` sets it back\n"
            ));
        }
    }
}

/// Refuses a second command that would change the setting: the one that ends last would set it to what the first had set it
/// to. The lock is of a file that only who may look into the process can open, and ends with this command, however that ends.
/// `None`: the kernel has no such lock here.
fn lock(pid: i32) -> Result<Option<File>, Failure> {
    let Ok(file) = File::open(format!("/proc/{pid}/environ")) else { return Ok(None) };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::AGAIN) => Err(Failure::of(
            Kind::Refused,
            format!(
                "process {pid}: another `weir profile` has changed how it samples, until it ends: wait for that, or leave \
                 --bytes out to read what it samples now"
            ),
        )),
        Err(_) => Ok(None),
    }
}

fn refused(pid: i32, bytes: u64, why: &Failure) -> Failure {
    let says = format!(
        "process {pid} takes no samples, and they cannot be switched on: {why}; or start the program with \
         WEIR_PROFILE_BYTES={bytes} in its environment"
    );
    why.saying(says)
}

/// The setting's value, by an answer such as `profile_bytes 0 bytes`.
fn value(control: &Control) -> Result<u64, Failure> {
    let answer = control.ask(&format!("get {SETTING}"))?;
    Ok(figure(&answer).map_or(0, |(_, bytes)| bytes))
}
