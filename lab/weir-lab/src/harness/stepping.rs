//! Counts the instructions of calls, of a child that is stepped through one by one.
//!
//! Exact, and possible where no performance counter is (virtual machines); a step takes 10 to 40 us there. So what libc
//! copies and clears is not stepped through: it runs to its end, and counts by its length.
//!
//! A restartable sequence would never end under it. Each step is a stop. Each stop makes the kernel abort the sequence and
//! rewrite the CPU's number, over which Google's tcmalloc keeps a pointer. So the child's thread is first taken off the
//! kernel's list, by a system call made in its name. Its rseq area is filled again with what it held, which is true as
//! long as it stays on its CPU.

use crate::harness::child::{KilledOnDrop, number};
use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;
use std::ffi::c_void;
use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::process::{Command, Stdio};

/// A child that steps longer does not end by itself.
const MOST_STEPS: u64 = 20_000_000;
/// Bytes that libc copies or clears with one instruction.
const BYTES_AN_INSTRUCTION: u64 = 32;
/// The instruction `syscall`, and its length.
const SYSCALL: i64 = 0x050f;
const SYSCALL_LEN: u64 = 2;
const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const UNREGISTER: u64 = 1;
const AREA_WORDS: u64 = 4;
/// The word of the area that names the sequence under way.
const RSEQ_CS: u64 = 1;
/// The debug register that says which of the others are on, and the first of them as an instruction's address.
const CONTROL: usize = 7;
const FIRST_ADDRESS: u64 = 1;

/// The way of counting.
pub struct Counting<'a> {
    /// The functions of which each call is counted, from its entry to its return, and those that run to their end.
    pub functions: &'a [&'a str],
    pub copies: &'a [&'a str],
    /// Instructions that a system call counts as.
    pub system_call: u64,
    /// The counting ends after so many steps, if there are as many calls.
    pub enough: u64,
    pub least: usize,
}

/// A call: which of the functions, and its instructions.
pub type Call = (usize, u64);

#[repr(C)]
#[derive(Default)]
struct RseqConfiguration {
    pointer: u64,
    size: u32,
    signature: u32,
    flags: u32,
    pad: u32,
}

impl Counting<'_> {
    /// Counts in a thread of its own: only who started a child may trace it, and that one is pinned to the child's CPU.
    pub fn count(&self, start: Command) -> Result<Vec<Call>> {
        std::thread::scope(|scope| {
            let counting = scope.spawn(|| self.count_here(start));
            counting.join().unwrap_or_else(|_| Err(anyhow!("the counting panicked")))
        })
    }

    fn count_here(&self, mut start: Command) -> Result<Vec<Call>> {
        start.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = KilledOnDrop::start(start, "weir-lab-load")?;
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().context("no output")?).read_line(&mut line)?;
        let told: Value = serde_json::from_str(&line).context("no addresses")?;
        let addresses = |names: &[&str]| {
            names
                .iter()
                .map(|name| told[*name].as_u64().with_context(|| format!("no {name}")))
                .collect::<Result<Vec<_>>>()
        };
        let mut cpus = CpuSet::new();
        cpus.set(number(&told, "cpu")? as usize)?;
        sched_setaffinity(Pid::from_raw(0), &cpus)?;
        let thread = Stopped(Pid::from_raw(child.pid() as i32));
        ensure!(matches!(thread.wait()?, Signal::SIGSTOP), "it did not stop as it should");
        self.step_through(&thread, &addresses(self.functions)?, &addresses(self.copies)?)
    }

    fn step_through(&self, child: &Stopped, functions: &[u64], copies: &[u64]) -> Result<Vec<Call>> {
        child.leave_rseq()?;
        let mut counted = Vec::new();
        // The call under way: its function, the stack at its entry, its instructions.
        let mut call: Option<(usize, u64, u64)> = None;
        let mut before = ptrace::getregs(child.0)?;
        for step in 0..MOST_STEPS {
            let enough = call.is_none() && step >= self.enough && counted.len() >= self.least;
            if enough || !child.step()? {
                return Ok(counted);
            }
            let mut now = ptrace::getregs(child.0)?;
            if let Some((_, _, instructions)) = &mut call {
                *instructions += u64::from(now.rip != before.rip); // A repeated instruction is one.
                // A system call leaves the address behind it in rcx.
                let may_be = now.rip == before.rip + SYSCALL_LEN && now.rcx == now.rip;
                if may_be && child.read(before.rip)? & 0xffff == SYSCALL {
                    *instructions += self.system_call - 1;
                }
                if copies.contains(&now.rip) {
                    *instructions += now.rdx / BYTES_AN_INSTRUCTION;
                    child.run_to(child.read(now.rsp)? as u64)?;
                    now = ptrace::getregs(child.0)?;
                }
            }
            if let Some((function, _, instructions)) = call.take_if(|call| now.rsp > call.1) {
                counted.push((function, instructions));
            }
            if call.is_none() {
                let function = functions.iter().position(|&entry| entry == now.rip);
                call = function.map(|function| (function, now.rsp, 0));
            }
            before = now;
        }
        bail!("it is not done after {MOST_STEPS} instructions")
    }
}

/// A child's thread that is stopped.
struct Stopped(Pid);

impl Stopped {
    fn wait(&self) -> Result<Signal> {
        match waitpid(self.0, None)? {
            WaitStatus::Stopped(_, signal) => Ok(signal),
            status => bail!("it ended in between ({status:?})"),
        }
    }

    /// Goes on by an instruction; false if it stopped by itself.
    fn step(&self) -> Result<bool> {
        ptrace::step(self.0, None)?;
        match self.wait()? {
            Signal::SIGTRAP => Ok(true),
            Signal::SIGSTOP => Ok(false),
            signal => bail!("signal {signal} came in between"),
        }
    }

    fn read(&self, address: u64) -> Result<i64> {
        ptrace::read(self.0, address as *mut c_void).context("cannot read its memory")
    }

    fn set_debug_register(&self, number: usize, value: u64) -> Result<()> {
        let place = offset_of!(libc::user, u_debugreg) + number * size_of::<u64>();
        Ok(ptrace::write_user(self.0, place as *mut c_void, value as i64)?)
    }

    fn run_to(&self, address: u64) -> Result<()> {
        self.set_debug_register(0, address)?;
        self.set_debug_register(CONTROL, FIRST_ADDRESS)?;
        ptrace::cont(self.0, None)?;
        ensure!(matches!(self.wait()?, Signal::SIGTRAP), "it did not come to {address:#x}");
        self.set_debug_register(CONTROL, 0)
    }

    fn leave_rseq(&self) -> Result<()> {
        let mut rseq = RseqConfiguration::default();
        let size = size_of::<RseqConfiguration>();
        // SAFETY: the kernel writes at most as much as the place has bytes.
        let got = unsafe { libc::ptrace(GET_RSEQ_CONFIGURATION, self.0.as_raw(), size, &raw mut rseq) };
        ensure!(got >= 0, "cannot ask for its rseq area (Linux 5.13): {}", std::io::Error::last_os_error());
        if rseq.pointer == 0 {
            return Ok(());
        }
        let place = |word: u64| rseq.pointer + word * 8;
        let held = (0..AREA_WORDS).map(|word| self.read(place(word))).collect::<Result<Vec<_>>>()?;
        self.system_call(libc::SYS_rseq, [rseq.pointer, rseq.size.into(), UNREGISTER, rseq.signature.into()])?;
        for (word, value) in (0..).zip(held) {
            let value = if word == RSEQ_CS { 0 } else { value };
            ptrace::write(self.0, place(word) as *mut c_void, value)?;
        }
        Ok(())
    }

    /// Makes a system call in its name: it stopped behind one.
    fn system_call(&self, call: i64, [rdi, rsi, rdx, r10]: [u64; 4]) -> Result<()> {
        let registers = ptrace::getregs(self.0)?;
        let (rip, orig_rax) = (registers.rip - SYSCALL_LEN, u64::MAX); // None to be restarted.
        ensure!(self.read(rip)? & 0xffff == SYSCALL, "it did not stop behind a system call");
        let rax = call as u64;
        ptrace::setregs(self.0, libc::user_regs_struct { rip, rax, orig_rax, rdi, rsi, rdx, r10, ..registers })?;
        self.step()?;
        let answer = ptrace::getregs(self.0)?.rax as i64;
        ptrace::setregs(self.0, libc::user_regs_struct { orig_rax, ..registers })?;
        ensure!(answer == 0, "its rseq area stays registered: error {}", -answer);
        Ok(())
    }
}
