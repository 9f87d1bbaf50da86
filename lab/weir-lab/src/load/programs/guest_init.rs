//! The first process of the lab's guests: makes a minimal userland around one load program, and runs it on the first
//! serial line under the allocator that lies beside it.

use crate::base::userland::{environment, mount};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::process::Command;

/// `guest-init NAME ARGS…`: runs that load program with what is in `/environment` (`groups` and `live-shrink` itself, which
/// start others with that), then powers the guest off.
pub fn main(args: impl Iterator<Item = String>) -> Result<(), String> {
    let mut args = args.peekable();
    if std::process::id() != 1 {
        return Err("guest-init is a guest's first process and nothing else".into());
    }
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount(kind, place).map_err(|why| format!("cannot mount {place}: {why}"))?;
    }
    serial_lines().map_err(|why| format!("no serial line: {why}"))?;
    load_modules()?;
    let told = match args.peek().map(String::as_str) {
        Some("groups") => crate::programs::groups::main(),
        Some("live-shrink") => crate::programs::live_shrink::main(args.skip(1)),
        _ => {
            let ended = Command::new("/init").envs(environment()).args(args).status();
            ended.map(|ended| eprintln!("guest-init: the program ended: {ended}")).map_err(|why| why.to_string())
        }
    };
    if let Err(why) = told {
        eprintln!("guest-init: {why}");
    }
    // What was written to the line is to have left it.
    // SAFETY: waits for this process's own output.
    unsafe { libc::tcdrain(1) };
    // SAFETY: ends this guest; there is no disk to write to.
    unsafe { libc::reboot(libc::LINUX_REBOOT_CMD_POWER_OFF) };
    Ok(())
}

/// Standard input and output: the first line, as it is, without echo. Errors go where the kernel's messages go.
fn serial_lines() -> io::Result<()> {
    let line = OpenOptions::new().read(true).write(true).open("/dev/ttyS0")?;
    // SAFETY: the calls read and write the settings given to them, which are plain data, and this process's own
    // descriptors.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        libc::tcgetattr(line.as_raw_fd(), &mut settings);
        libc::cfmakeraw(&mut settings);
        libc::tcsetattr(line.as_raw_fd(), libc::TCSANOW, &settings);
        libc::dup2(line.as_raw_fd(), 0);
        libc::dup2(line.as_raw_fd(), 1);
    }
    Ok(())
}

/// In the order of their names.
fn load_modules() -> Result<(), String> {
    let mut modules: Vec<_> = std::fs::read_dir("/modules")
        .map_err(|why| format!("no modules: {why}"))?
        .flatten()
        .map(|f| f.path())
        .collect();
    modules.sort();
    for path in modules {
        let told = |why: io::Error| format!("cannot load {}: {why}", path.display());
        let file = File::open(&path).map_err(told)?;
        // SAFETY: an open file and an empty C string.
        let failed = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
        if failed != 0 {
            return Err(told(io::Error::last_os_error()));
        }
    }
    Ok(())
}
