//! Puts Weir where programs look for it: `cargo xtask install`, and takes it away again: `cargo xtask uninstall`.

mod artifacts;
mod command_line;
mod install;
mod layout;
mod manifest;
mod uninstall;

use artifacts::Artifacts;
use clap::Parser;
use command_line::{Command, CommandLine};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(CommandLine::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command_line: CommandLine) -> anyhow::Result<()> {
    match command_line.command {
        Command::Install(options) => {
            let artifacts = Artifacts::new(&options.profile, options.target.as_deref())?;
            if !options.no_build {
                artifacts.build()?;
            }
            install::install(&options.place, &layout::entries(&artifacts, &options)?)
        }
        Command::Uninstall(place) => uninstall::uninstall(&place),
    }
}
