//! A child's thread that is traced: it is stopped, and goes on by one instruction, or until it comes to an address.
//!
//! A restartable sequence would never end under it: each step is a stop, and each stop makes the kernel abort the sequence
//! and rewrite the CPU's number, over which Google's tcmalloc keeps a pointer. So the child's thread is first taken off
//! the kernel's list, by a system call made in its name, and its rseq area is filled again with what it held: true as
//! long as it stays on its CPU.

use std::io::Error;

const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const UNREGISTER: u64 = 1;
/// The words of the kernel's `struct rseq`, of which the second points to the sequence under way.
const AREA_WORDS: usize = 4;
const RSEQ_CS: usize = 1;
/// The instruction `syscall`.
const SYSCALL: i64 = 0x050f;

/// The debug register that switches the others on, and the bit of it for the first.
const CONTROL: usize = 7;
const FIRST_ADDRESS: u64 = 1;

/// A traced thread that is stopped.
pub struct StoppedThread(libc::pid_t);

/// The kernel's `struct ptrace_rseq_configuration`.
#[repr(C)]
#[derive(Default)]
struct RseqConfiguration {
    pointer: u64,
    size: u32,
    signature: u32,
    flags: u32,
    pad: u32,
}

impl StoppedThread {
    /// Waits until the child, which called `PTRACE_TRACEME`, has stopped itself.
    pub fn wait_for(pid: u32) -> Result<StoppedThread, String> {
        let pid = pid as libc::pid_t;
        match wait(pid)? {
            status if libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGSTOP => Ok(StoppedThread(pid)),
            status => Err(format!("it did not stop as it should (status {status:#x})")),
        }
    }

    /// Has the kernel forget this thread's rseq area, and leaves the area as it is.
    pub fn leave_rseq(&self) -> Result<(), String> {
        let mut rseq = RseqConfiguration::default();
        let size = size_of::<RseqConfiguration>();
        // SAFETY: the kernel writes at most `size` bytes to `rseq`.
        if unsafe { libc::ptrace(GET_RSEQ_CONFIGURATION, self.0, size, &raw mut rseq) } < 0 {
            return Err(failed("ask for its rseq area (Linux 5.13)"));
        }
        if rseq.pointer == 0 {
            return Ok(());
        }
        let mut held = [0; AREA_WORDS];
        for (word, address) in held.iter_mut().zip((rseq.pointer..).step_by(8)) {
            *word = self.read(address)?;
        }
        held[RSEQ_CS] = 0;
        self.system_call(libc::SYS_rseq, [rseq.pointer, rseq.size.into(), UNREGISTER, rseq.signature.into()])?;
        for (word, address) in held.into_iter().zip((rseq.pointer..).step_by(8)) {
            self.write(address, word)?;
        }
        Ok(())
    }

    /// Makes a system call in the child's name. It has just made the one that stopped it, so the instruction is there.
    fn system_call(&self, number: i64, arguments: [u64; 4]) -> Result<(), String> {
        let registers = self.registers()?;
        let instruction = registers.rip - 2;
        if self.read(instruction)? & 0xffff != SYSCALL {
            return Err("it did not stop behind a system call".into());
        }
        let [rdi, rsi, rdx, r10] = arguments;
        // No system call is in progress, so the kernel restarts none.
        let orig_rax = u64::MAX;
        self.set_registers(&libc::user_regs_struct {
            rip: instruction,
            rax: number as u64,
            orig_rax,
            rdi,
            rsi,
            rdx,
            r10,
            ..registers
        })?;
        self.step()?;
        let answer = self.registers()?.rax as i64;
        self.set_registers(&libc::user_regs_struct { orig_rax, ..registers })?;
        if answer == 0 { Ok(()) } else { Err(format!("its rseq area stays registered: error {}", -answer)) }
    }

    pub fn read(&self, address: u64) -> Result<i64, String> {
        // SAFETY: reads a word of the child's memory, or fails and sets errno, which is this thread's.
        let (word, errno) = unsafe {
            *libc::__errno_location() = 0;
            (libc::ptrace(libc::PTRACE_PEEKDATA, self.0, address, 0), *libc::__errno_location())
        };
        if errno == 0 { Ok(word) } else { Err(failed("read its memory")) }
    }

    fn write(&self, address: u64, word: i64) -> Result<(), String> {
        // SAFETY: writes a word of the child's memory, or fails.
        let done = unsafe { libc::ptrace(libc::PTRACE_POKEDATA, self.0, address, word) };
        if done == 0 { Ok(()) } else { Err(failed("write its memory")) }
    }

    /// One instruction on; whether the child goes on after it.
    pub fn step(&self) -> Result<bool, String> {
        // SAFETY: lets the stopped child run one instruction, without a signal.
        if unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.0, 0, 0) } != 0 {
            return Err(failed("step"));
        }
        match wait(self.0)? {
            status if libc::WIFSTOPPED(status) => match libc::WSTOPSIG(status) {
                libc::SIGTRAP => Ok(true),
                libc::SIGSTOP => Ok(false),
                signal => Err(format!("signal {signal} came in between")),
            },
            status => Err(format!("it ended in between (status {status:#x})")),
        }
    }

    /// On to `address`, without a stop before it.
    ///
    /// By a register of the processor, which stops this thread alone: others may run the same code meanwhile.
    pub fn run_to(&self, address: u64) -> Result<(), String> {
        self.set_debug_register(0, address)?;
        // Stops before the instruction at the first address is executed; length and kind of the access are 0 for that.
        self.set_debug_register(CONTROL, FIRST_ADDRESS)?;
        // SAFETY: lets the stopped child run, without a signal.
        if unsafe { libc::ptrace(libc::PTRACE_CONT, self.0, 0, 0) } != 0 {
            return Err(failed("go on"));
        }
        let status = wait(self.0)?;
        if !libc::WIFSTOPPED(status) || libc::WSTOPSIG(status) != libc::SIGTRAP {
            return Err(format!("it did not come to {address:#x} (status {status:#x})"));
        }
        self.set_debug_register(CONTROL, 0)
    }

    fn set_debug_register(&self, number: usize, value: u64) -> Result<(), String> {
        let place = std::mem::offset_of!(libc::user, u_debugreg) + number * size_of::<u64>();
        // SAFETY: sets a debug register of the stopped child, which the kernel checks.
        let done = unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.0, place, value) };
        if done == 0 { Ok(()) } else { Err(failed("set a debug register")) }
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) -> Result<(), String> {
        // SAFETY: the kernel reads the registers, and refuses what may not be set.
        let done = unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.0, 0, registers) };
        if done == 0 { Ok(()) } else { Err(failed("set its registers")) }
    }

    pub fn registers(&self) -> Result<libc::user_regs_struct, String> {
        // SAFETY: plain data, which the kernel fills.
        let (got, registers) = unsafe {
            let mut registers: libc::user_regs_struct = std::mem::zeroed();
            (libc::ptrace(libc::PTRACE_GETREGS, self.0, 0, &raw mut registers), registers)
        };
        if got == 0 { Ok(registers) } else { Err(failed("read its registers")) }
    }
}

fn wait(pid: libc::pid_t) -> Result<libc::c_int, String> {
    let mut status = 0;
    // SAFETY: waitpid fills `status`.
    if unsafe { libc::waitpid(pid, &mut status, 0) } == pid { Ok(status) } else { Err(failed("wait for it")) }
}

fn failed(what: &str) -> String {
    format!("cannot {what}: {}", Error::last_os_error())
}
