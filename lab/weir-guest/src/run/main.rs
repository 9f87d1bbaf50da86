//! Boots the guest's image under QEMU and measures, on the host, what comes back.
//!
//! One line of `name=value` words for each round on standard output; what the guest says is passed on behind
//! `guest:`. Ends with 0 if the guest found all in order, 77 if there is no QEMU, 1 or 2 otherwise.

mod guest;
mod options;
mod rounds;

use std::process::ExitCode;

use options::Options;

/// What a test harness takes for "skipped".
const SKIPPED: u8 = 77;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            eprintln!("weir-guest-run: {wrong}\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    match rounds::run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(guest::Failure::NoQemu(program)) => {
            eprintln!("weir-guest-run: skipped: there is no {program}; on Debian: apt-get install qemu-system-x86");
            ExitCode::from(SKIPPED)
        }
        Err(why) => {
            eprintln!("weir-guest-run: {why}");
            ExitCode::FAILURE
        }
    }
}
