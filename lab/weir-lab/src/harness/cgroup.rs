//! A memory cgroup of one's own, version 1 or 2, removed when it goes.

use crate::harness::owner;
use crate::harness::restore::{RestoreGuard, on_end};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A cgroup with a memory limit.
pub struct Cgroup {
    path: PathBuf,
    version: u8,
    _guard: RestoreGuard,
}

/// Where groups of version 2 are, and those of version 1 that have the memory controller.
pub const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];

/// Where cgroups with a memory controller can be made, and of which version they are.
pub fn root() -> Result<(PathBuf, u8), String> {
    let [unified, memory] = ROOTS.map(Path::new);
    if fs::read_to_string(unified.join("cgroup.controllers")).is_ok_and(|c| c.split_whitespace().any(|c| c == "memory"))
    {
        return Ok((unified.to_path_buf(), 2));
    }
    if memory.join("memory.limit_in_bytes").exists() {
        Ok((memory.to_path_buf(), 1))
    } else {
        Err("no memory cgroups are mounted".into())
    }
}

/// Which version a new cgroup would have.
pub fn version() -> Result<u8, String> {
    root().map(|(_, version)| version)
}

impl Cgroup {
    /// Makes one with a limit of `bytes`; swap is not limited.
    pub fn make(name: &str, bytes: u64) -> Result<Cgroup, String> {
        let (root, version) = root()?;
        if version == 2 {
            // Refused if there are processes in the root of a delegated tree; then writing the limit fails below.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
        }
        let path = root.join(owner::name(&format!("-{name}")));
        let undo = path.clone();
        let guard = on_end(move || {
            if !remove(&undo) {
                eprintln!("weir-lab: a cgroup stays behind: rmdir {}", undo.display());
            }
        });
        fs::create_dir(&path).map_err(|why| format!("cannot make a memory cgroup (needs root): {why}"))?;
        let cgroup = Cgroup { path, version, _guard: guard };
        cgroup.limit(bytes)?;
        Ok(cgroup)
    }

    /// Changes the limit. The kernel reclaims what is over it before the write returns.
    pub fn limit(&self, bytes: u64) -> Result<(), String> {
        self.write(if self.version == 2 { "memory.max" } else { "memory.limit_in_bytes" }, bytes)
    }

    /// Makes the kernel reclaim memory from the processes inside, as at the limit, but kills none: lowers the limit by a
    /// tenth of what is used, and sets it to `limit` again at once.
    pub fn squeeze(&self, limit: u64) -> Result<(), String> {
        let less = self.usage()? / 10 * 9;
        if self.version == 2 {
            // Above the high mark an allocation is slowed down and reclaims.
            self.write("memory.high", less)?;
            return fs::write(self.path.join("memory.high"), "max").map_err(|why| format!("memory.high: {why}"));
        }
        // If the limit is reached in between, an allocation waits until it is raised.
        let _ = self.write("memory.oom_control", 1);
        // Refused if less than that can be reclaimed.
        let _ = self.limit(less);
        self.limit(limit)
    }

    /// Moves a process in.
    pub fn take_in(&self, pid: u32) -> Result<(), String> {
        self.write("cgroup.procs", pid.into())
    }

    /// Lets `bytes` of what is inside be swapped out, beyond a memory limit of `limit`.
    pub fn limit_swap(&self, limit: u64, bytes: u64) -> Result<(), String> {
        match self.version {
            2 => self.write("memory.swap.max", bytes),
            _ => self.write("memory.memsw.limit_in_bytes", limit + bytes),
        }
    }

    /// Bytes charged.
    pub fn usage(&self) -> Result<u64, String> {
        self.read(if self.version == 2 { "memory.current" } else { "memory.usage_in_bytes" })
    }

    fn read(&self, file: &str) -> Result<u64, String> {
        let text = fs::read_to_string(self.path.join(file)).map_err(|why| format!("{file}: {why}"))?;
        text.trim().parse().map_err(|_| format!("{file} is no number"))
    }

    /// Bytes swapped out that are charged here.
    pub fn swapped(&self) -> Result<u64, String> {
        if self.version == 2 {
            return self.read("memory.swap.current");
        }
        let text = fs::read_to_string(self.path.join("memory.stat")).map_err(|why| format!("memory.stat: {why}"))?;
        // Version 1 counts swap only if the kernel is built to account it.
        let count = text.lines().find_map(|line| line.strip_prefix("total_swap ")?.parse().ok());
        count.ok_or_else(|| "memory.stat counts no swap here".into())
    }

    /// The file into which a process writes its number to join.
    pub fn door(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    fn write(&self, file: &str, value: u64) -> Result<(), String> {
        fs::write(self.path.join(file), value.to_string()).map_err(|why| format!("cannot set {file}: {why}"))
    }
}

/// Makes the child enter the cgroup before it becomes its program.
pub fn enter(command: &mut Command, cgroup: &Cgroup) {
    let door = std::ffi::CString::new(cgroup.door().into_os_string().into_encoded_bytes()).unwrap_or_default();
    // SAFETY: between fork and exec only system calls are made: open, write, close.
    unsafe {
        command.pre_exec(move || {
            let fd = libc::open(door.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            // "0" is the writing process itself, in both versions.
            if fd < 0 || libc::write(fd, c"0".as_ptr().cast(), 1) != 1 {
                return Err(std::io::Error::last_os_error());
            }
            libc::close(fd);
            Ok(())
        });
    }
}

/// Ends what is inside, then removes it; whether it is gone.
pub fn remove(path: &Path) -> bool {
    for _ in 0..100 {
        let inside = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        for pid in inside.lines().filter_map(|line| line.parse::<libc::pid_t>().ok()) {
            // SAFETY: sends a signal to a process of this very cgroup, which only weir-lab's children join.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        if fs::remove_dir(path).is_ok() || !path.exists() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}
