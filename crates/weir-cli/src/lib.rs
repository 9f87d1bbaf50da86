//! The `weir` command: runs programs with Weir as their malloc, shows and steers those that run, and says what works on
//! this machine. For programs, [`survey`], [`shrink`], [`ctl`] and [`metrics_server`].

mod around;
mod base;
mod command_line;
pub mod ctl;
mod doctor;
mod export;
mod figures;
mod generate;
mod inspect;
mod library;
pub mod metrics_server;
mod processes;
mod profile;
mod report;
mod run;
mod settings;
pub mod shrink;
mod stat;
pub mod survey;
mod top;
mod trace;
mod usage;
mod why;

pub use around::stall::Stall;
pub use base::descriptors::use_all_descriptors;
pub use base::failure::Failure;
pub use base::json::pretty as printable_json;
pub use base::output::printable_line;

use base::failure::{Kind, WEIR_FAILED};
use base::output;
use clap::Parser;
use command_line::{Command, CommandLine};
use std::io::Write;

/// The command, by the arguments of this process; ends it.
pub fn main() -> ! {
    let command = CommandLine::try_parse().unwrap_or_else(|error| refuse(&error)).command;
    let result = proc_of(&command).and_then(|()| match command {
        Command::Run(options) => run::run(&options),
        Command::Stat(options) => stat::stat(&options),
        Command::Why(options) => why::why(&options),
        Command::Top(options) => top::top(&options),
        Command::Ctl(options) => ctl::ctl(&options),
        Command::Shrink(options) => shrink::command(&options),
        Command::Trace { pid } => trace::trace(pid),
        Command::Doctor { pid, json } => doctor::doctor(pid, json),
        Command::Profile(options) => profile::profile(&options),
        Command::Export(options) => export::export(&options),
        Command::Report(options) => report::report(&options),
        Command::Settings => settings::settings(),
        Command::Generate { directory } => generate::generate(&directory),
    });
    std::process::exit(result.unwrap_or_else(|failure| {
        output::say(format_args!("{}", output::error_line(&failure)));
        failure.status
    }))
}

/// Who looks at processes does so by `/proc`. Without one all of them would be said to run without Weir, or not to be there.
/// And it needs open files, two for each process that is steered.
fn proc_of(command: &Command) -> Result<(), Failure> {
    use Command::{Ctl, Export, Shrink, Stat, Top, Trace, Why};
    let is_of_others = matches!(command, Ctl(_) | Export(_) | Shrink(_) | Stat(_) | Top(_) | Trace { .. } | Why(_));
    if !is_of_others {
        return Ok(());
    }
    if processes::tree::numbers().is_empty() {
        let say = "there is no /proc here, by which processes are looked at: `mount -t proc proc /proc`";
        return Err(Failure::of(Kind::NotFound, say.into()));
    }
    use_all_descriptors();
    Ok(())
}

/// Prints what is wrong with the command line, or the help that was asked for. `weir run` leaves all statuses but its own
/// to the program.
fn refuse(error: &clap::Error) -> ! {
    let is_run = std::env::args_os().nth(1).is_some_and(|command| command == "run");
    let status = if error.exit_code() == 0 {
        output::end_with_reader();
        match error.print().and_then(|()| std::io::stdout().flush()) {
            Ok(()) => 0,
            Err(error) => {
                output::say(format_args!("weir: cannot write to standard output: {error}\n"));
                WEIR_FAILED
            }
        }
    } else {
        output::say(format_args!("{}", output::error_line(usage::in_a_line(error))));
        if is_run { WEIR_FAILED } else { error.exit_code() }
    };
    std::process::exit(status)
}
