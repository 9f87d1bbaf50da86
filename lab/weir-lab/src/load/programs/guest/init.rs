//! The first process of the lab's guests. It makes a minimal userland around one load program, and runs it on the
//! first serial line under the allocator that lies beside it.

use crate::base::guest::{environment, mount, mount_groups};
use crate::base::prelude::*;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::process::Command;

pub fn main(args: impl Iterator<Item = String>) -> Result<()> {
    let mut args = args.peekable();
    ensure!(std::process::id() == 1, "guest-init is a guest's first process and nothing else");
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount(kind, place)?;
    }
    serial_lines().context("no serial line")?;
    load_modules()?;
    let told = match args.peek().map(String::as_str) {
        Some("groups") => mount_groups().and_then(|()| super::groups::main()),
        Some("live-shrink") => {
            mount_groups().and_then(|()| Words::read(args.skip(1))).and_then(|words| super::live_shrink::main(&words))
        }
        _ => {
            let ended = Command::new("/init").envs(environment()).args(args).status();
            ended.map(|ended| eprintln!("guest-init: the program ended: {ended}")).map_err(Into::into)
        }
    };
    if let Err(why) = told {
        eprintln!("guest-init: {why:#}");
    }
    // SAFETY: waits until the line has sent everything, and switches the machine off.
    unsafe {
        libc::tcdrain(1);
        libc::reboot(libc::LINUX_REBOOT_CMD_POWER_OFF);
    }
    Ok(())
}

/// Makes the first line, as it is, standard input and output; the kernel's messages have the second.
fn serial_lines() -> std::io::Result<()> {
    let line = OpenOptions::new().read(true).write(true).open("/dev/ttyS0")?;
    // SAFETY: the settings are plain data that the kernel fills, and the descriptors are this process's own.
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
fn load_modules() -> Result<()> {
    let mut modules: Vec<_> = std::fs::read_dir("/modules")?.flatten().map(|file| file.path()).collect();
    modules.sort();
    for path in modules {
        let file = File::open(&path)?;
        // SAFETY: the kernel reads the file; the parameters end with a zero byte.
        let failed = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) };
        ensure!(failed == 0, "cannot load {}: {}", path.display(), std::io::Error::last_os_error());
    }
    Ok(())
}
