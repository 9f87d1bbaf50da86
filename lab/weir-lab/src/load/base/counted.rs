//! Calls that the harness steps through, instruction by instruction, to count them.

use anyhow::{Result, bail};
use std::ffi::CStr;

/// Says where the functions begin, stops, does `work`, and stops again: the harness traces this process from the first
/// stop on. Ends the process.
///
/// `cpu` is where this thread has to be kept.
pub fn between_stops(functions: &[&CStr], cpu: usize, work: impl FnOnce()) -> Result<()> {
    // SAFETY: dlsym with C strings; the answers are only printed.
    let address = |name: &&CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
    let line: String =
        functions.iter().map(|name| format!("\"{}\":{},", name.to_string_lossy(), address(name))).collect();
    println!("{{{line}\"cpu\":{cpu}}}");
    // SAFETY: asks the parent to trace this process, and stops it twice; no memory is involved.
    unsafe {
        if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
            bail!("may not be traced");
        }
        libc::raise(libc::SIGSTOP);
        work();
        libc::raise(libc::SIGSTOP);
        libc::_exit(0)
    }
}

/// Keeps this thread on the CPU it is on, which is returned.
pub fn stay_on_this_cpu() -> usize {
    // SAFETY: asks the kernel a number.
    let cpu = unsafe { libc::sched_getcpu() }.max(0) as usize;
    stay_on(cpu);
    cpu
}

/// Keeps this thread on a CPU.
pub fn stay_on(cpu: usize) {
    // SAFETY: the set is plain data, of the size that is passed.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}
