//! Counts the instructions of calls, of a child that is stepped through one by one.
//!
//! Exact, and possible where no performance counter is (virtual machines); a step takes 10 to 40 us there. So what libc
//! copies and clears is not stepped through where that is asked for: it runs to its end, and counts by its length.

use crate::harness::child::KilledOnDrop;
use crate::harness::traced_thread::StoppedThread;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A runaway child is not followed for ever.
const MOST_STEPS: u64 = 20_000_000;
/// Bytes that libc copies or clears by an instruction: a vector of AVX2.
const BYTES_AN_INSTRUCTION: u64 = 32;
/// The instruction `syscall`, and its length.
const SYSCALL: i64 = 0x050f;
const SYSCALL_LEN: u64 = 2;

/// What is counted of a child, and how.
///
/// The child prints a line of JSON with the addresses of the functions that are named here and its CPU, and stops itself
/// before and after the calls that are counted.
pub struct Counting<'a> {
    /// Counted from their entry up to the return to the caller, both included.
    pub functions: &'a [&'a str],
    /// Of libc, with a length as their third argument: `memcpy` and its like.
    pub copies: &'a [&'a str],
    /// What a system call counts as, instructions.
    pub system_call: u64,
    /// After so many steps no further call is counted, if there are so many calls.
    pub enough: u64,
    pub least: usize,
}

/// A counted call: the place of its function in [`Counting::functions`], and its instructions.
pub type Call = (usize, u64);

impl Counting<'_> {
    /// Starts the child and counts its calls until it stops itself again, or until there are enough.
    pub fn count(&self, start: Command) -> Result<Vec<Call>, String> {
        // On a thread of its own: the one that started a child is the one that may trace it, and it is pinned.
        std::thread::scope(|scope| {
            let counting = scope.spawn(|| self.count_here(start));
            counting.join().unwrap_or_else(|_| Err("the counting panicked".into()))
        })
    }

    fn count_here(&self, mut start: Command) -> Result<Vec<Call>, String> {
        start.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = KilledOnDrop::start(start, "weir-lab-load")?;
        let mut line = String::new();
        let pipe = child.0.stdout.take().ok_or("no output to read")?;
        BufReader::new(pipe).read_line(&mut line).map_err(|why| format!("cannot read its output: {why}"))?;
        let told: Value = serde_json::from_str(line.trim()).map_err(|why| format!("no addresses: {why}"))?;
        let number = |name: &&str| told[*name].as_u64().ok_or_else(|| format!("no address of {name}"));
        let functions: Vec<u64> = self.functions.iter().map(number).collect::<Result<_, _>>()?;
        let copies: Vec<u64> = self.copies.iter().map(number).collect::<Result<_, _>>()?;
        // A wake-up on the same CPU costs a tenth of one on another.
        pin(told["cpu"].as_u64().ok_or("no CPU")?);
        self.step_through(&StoppedThread::wait_for(child.0.id())?, &functions, &copies)
    }

    fn step_through(&self, child: &StoppedThread, functions: &[u64], copies: &[u64]) -> Result<Vec<Call>, String> {
        child.leave_rseq()?;
        let mut counted = Vec::new();
        let mut call: Option<OpenCall> = None;
        let mut before = child.registers()?;
        for step in 0..MOST_STEPS {
            let enough = call.is_none() && step >= self.enough && counted.len() >= self.least;
            if enough || !child.step()? {
                return Ok(counted);
            }
            let mut now = child.registers()?;
            if let Some(call) = &mut call {
                // A repeated instruction stops at every repetition, and is one.
                call.instructions += u64::from(now.rip != before.rip);
                if self.system_call > 1 && is_behind_system_call(child, &before, &now)? {
                    call.instructions += self.system_call - 1;
                }
                if copies.contains(&now.rip) {
                    call.instructions += now.rdx / BYTES_AN_INSTRUCTION;
                    child.run_to(child.read(now.rsp)? as u64)?;
                    now = child.registers()?;
                }
            }
            if let Some(ended) = call.take_if(|call| now.rsp > call.stack) {
                counted.push((ended.function, ended.instructions));
            }
            if call.is_none()
                && let Some(function) = functions.iter().position(|&entry| entry == now.rip)
            {
                call = Some(OpenCall { function, stack: now.rsp, instructions: 0 });
            }
            before = now;
        }
        Err(format!("it is not done after {MOST_STEPS} instructions"))
    }
}

/// A call under way: which function, the stack at its entry, instructions so far.
struct OpenCall {
    function: usize,
    stack: u64,
    instructions: u64,
}

/// Whether the last step was a system call, which leaves in `rcx` where it returned to.
fn is_behind_system_call(
    child: &StoppedThread,
    before: &libc::user_regs_struct,
    now: &libc::user_regs_struct,
) -> Result<bool, String> {
    let may_be = now.rip == before.rip + SYSCALL_LEN && now.rcx == now.rip;
    Ok(may_be && child.read(before.rip)? & 0xffff == SYSCALL)
}

/// Keeps this thread on a CPU; that it cannot be kept there only costs time.
fn pin(cpu: u64) {
    // SAFETY: the set is plain data, of the size that is passed.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu as usize, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}
