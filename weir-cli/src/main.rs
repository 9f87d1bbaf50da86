//! The `weir` command: runs programs with Weir as their malloc, and says what works on this machine.

mod command_line;
mod doctor;
mod elf;
mod failure;
mod library;
mod run;
mod settings;
mod signals;
mod stats_file;
mod summary;
mod units;

use clap::Parser;
use command_line::{Command, CommandLine};

fn main() -> ! {
    let result = match CommandLine::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Doctor { json } => doctor::doctor(json),
        Command::Settings => {
            settings::settings();
            Ok(0)
        }
    };
    std::process::exit(result.unwrap_or_else(|failure| {
        eprintln!("weir: {failure}");
        failure.status
    }))
}
