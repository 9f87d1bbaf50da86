//! Sampling in a process, switched on through its control channel, and back as it was.

use crate::base::failure::Failure;
use crate::base::output;
use crate::inspect::control::Control;
use crate::inspect::page::Page;

/// The setting: mean of the bytes between two samples; 0: none are taken.
const SETTING: &str = "profile_bytes";

/// Sampling that was switched on. It goes back when this is dropped.
pub struct Switch {
    control: Control,
    pid: i32,
    before: u64,
    stays: bool,
}

impl Switch {
    /// Has process `pid` take a sample each `bytes` on average.
    pub fn set(pid: i32, page: &Page, bytes: u64, stays: bool) -> Result<Self, Failure> {
        let control = Control::connect(pid, page).map_err(|why| refused(pid, bytes, &why))?;
        let before = control.ask(&format!("get {SETTING}")).map_err(|why| refused(pid, bytes, &why))?;
        control.ask(&format!("set {SETTING} {bytes}")).map_err(|why| refused(pid, bytes, &why))?;
        Ok(Self { control, pid, before: value_in(&before).unwrap_or(0), stays })
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        let Self { control, pid, before, stays } = self;
        if *stays {
            return;
        }
        // A process that has ended samples no more.
        if let Err(why) = control.ask(&format!("set {SETTING} {before}"))
            && std::fs::exists(format!("/proc/{pid}")).unwrap_or(false)
        {
            output::say(format_args!(
                "weir: warning: process {pid} goes on sampling ({why}): `weir ctl {pid} set {SETTING} {before}` sets it back\n"
            ));
        }
    }
}

fn refused(pid: i32, bytes: u64, why: &Failure) -> Failure {
    let says = format!(
        "process {pid} takes no samples, and they cannot be switched on: {why}; or start the program with \
         WEIR_PROFILE_BYTES={bytes} in its environment"
    );
    why.saying(says)
}

/// The number in an answer such as `profile_bytes 0`.
fn value_in(answer: &str) -> Option<u64> {
    answer.lines().next()?.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty())?.parse().ok()
}
