//! `weir-nbd`: a block server (NBD) on Weir.

mod backend;
mod base;
mod buffers;
mod cache;
mod command_line;
mod export;
mod io;
mod protocol;
mod serve;
mod session;
mod transport;

use clap::Parser;
use command_line::{Command, CommandLine};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

#[global_allocator]
static HEAP: weir::Weir = weir::Weir;

/// Has a panic end the process, as the workspace's profile does. `cargo install` builds without that: there a panic would end one
/// client's session, and leave what it held as it was.
#[cfg(panic = "unwind")]
fn abort_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        tell(what);
        std::process::abort();
    }));
}

/// Has glibc make no arenas. Threads do allocate from it: where Rust registers thread-local destructors, glibc calls its own
/// `calloc`. For that, each thread would reserve 64 MiB of addresses, which count against `ulimit -v`.
#[cfg(target_env = "gnu")]
fn make_no_arenas() {
    // SAFETY: it changes a number of glibc's, under a lock of glibc's.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

fn main() -> ExitCode {
    #[cfg(target_env = "gnu")]
    make_no_arenas();
    #[cfg(panic = "unwind")]
    abort_on_panic();
    let result = match CommandLine::parse().command {
        Command::Serve(options) => {
            log(options.log);
            ignore_signal_of_file_size();
            be_io_flusher();
            serve::serve(&options)
        }
        Command::Stat(options) => serve::stat(&options),
        Command::Generate { directory } => command_line::generate(&directory),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // There may be nobody who reads it.
            let _ = writeln!(std::io::stderr(), "weir-nbd: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Logs to standard error. The journal has times of its own.
///
/// What cannot be written is left out: the disk of the log may be full, or its reader gone. Told about, by `eprintln`, it
/// would be a panic, and the end of the server.
fn log(level: tracing::Level) {
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level).with_target(false);
    let log = log.with_ansi(std::io::stderr().is_terminal()).log_internal_errors(false);
    if std::env::var_os("JOURNAL_STREAM").is_some() { log.without_time().init() } else { log.init() }
}

/// Has the kernel free no memory for this process by I/O, which may be to a file system on one of its own exports, and wait for
/// this process. Threads have that of the one that starts them.
fn be_io_flusher() {
    if let Err(why) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!(
            "no I/O flusher, so an export that is mounted on this machine may hang when memory is short: {why}"
        );
    }
}

/// A write beyond the limit of file sizes is an error (`EFBIG`), and not the server's end.
fn ignore_signal_of_file_size() {
    // SAFETY: it sets a signal to be ignored; no handler runs.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}
