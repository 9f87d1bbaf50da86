//! The command line. Each experiment is a command of its own, so that its help names the options that it takes.

use crate::experiments::{EXPERIMENTS, Experiment};
use crate::harness::args::RunArgs;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// What to do.
pub enum Action {
    /// Print the experiments, the workloads of e9, and the peers with how to get each.
    List,
    /// Build these peers, or all if none is named.
    BuildPeers(Vec<String>),
    /// Fetch the kernel of the guests.
    FetchKernel,
    /// Run an experiment.
    Run(&'static Experiment, Box<RunArgs>),
}

/// Options that an experiment has to list to take them, as clap has their names.
const LISTED: [&str; 11] =
    ["runs", "subject", "only", "mix", "minutes", "seconds", "later", "svg", "cast", "profiled", "swap_dir"];

/// Reads the command line. Ends the program with a message if it is wrong, or with the help that was asked for.
pub fn parse() -> Action {
    let mut command = command();
    let matches = command.get_matches_mut();
    action(&matches).unwrap_or_else(|error| error.format(&mut command).exit())
}

fn command() -> Command {
    let names = Arg::new("names").num_args(0..).value_name("NAME").help("Only these peers");
    Command::new("weir-lab")
        .about("Weir's experiments and the peers it is measured against")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list").about("List the experiments, the workloads of e9, and the peers with how to get each"),
            Command::new("peers").about("Build the peers that come as crates").arg(names),
            Command::new("guest-kernel").about(
                "Fetch and unpack the kernel that the guests of e5, e12 and groups boot (Debian's cloud kernel)",
            ),
            Command::new("run")
                .about("Run an experiment and print its table")
                .subcommand_required(true)
                .arg_required_else_help(true)
                .subcommand_value_name("EXPERIMENT")
                .subcommand_help_heading("Experiments")
                .disable_help_subcommand(true)
                .subcommands(EXPERIMENTS.iter().map(command_of)),
        ])
}

/// The command of one experiment. Options that it does not take are left out of its help.
fn command_of(experiment: &Experiment) -> Command {
    let mut command = RunArgs::augment_args(Command::new(experiment.name)).about(experiment.about);
    for name in LISTED {
        if !experiment.takes(name) {
            command = command.mut_arg(name, |arg| arg.hide(true));
        }
    }
    if let Some([full, quick]) = experiment.rounds {
        let help = format!("Rounds, in each of which everything has its turn [default: {full}; with --quick: {quick}]");
        command = command.mut_arg("runs", |arg| arg.help(help));
    }
    if let Some(parts) = experiment.only {
        command = command.mut_arg("only", |arg| arg.help(format!("Only these: {parts}")));
    }
    command
}

fn action(matches: &ArgMatches) -> Result<Action, clap::Error> {
    match matches.subcommand() {
        Some(("peers", matches)) => {
            let names = matches.get_many::<String>("names").unwrap_or_default();
            Ok(Action::BuildPeers(names.cloned().collect()))
        }
        Some(("guest-kernel", _)) => Ok(Action::FetchKernel),
        Some(("run", matches)) => run(matches),
        _ => Ok(Action::List),
    }
}

fn run(matches: &ArgMatches) -> Result<Action, clap::Error> {
    let chosen = matches.subcommand().and_then(|(name, matches)| {
        let experiment = EXPERIMENTS.iter().find(|experiment| experiment.name == name)?;
        Some((experiment, matches))
    });
    let (experiment, matches) = chosen.ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?;
    let given = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
    if let Some(name) = LISTED.into_iter().filter(given).find(|name| !experiment.takes(name)) {
        let say = format!("{} has no option --{}", experiment.name, name.replace('_', "-"));
        return Err(clap::Error::raw(ErrorKind::UnknownArgument, say));
    }
    let mut args = RunArgs::from_arg_matches(matches)?;
    args.set_rounds(experiment.rounds.unwrap_or([1, 1]));
    Ok(Action::Run(experiment, Box::new(args)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn parse(line: &str) -> Result<Action, clap::Error> {
        let words = std::iter::once("weir-lab").chain(line.split_whitespace());
        action(&command().try_get_matches_from(words)?)
    }

    #[test]
    fn the_command_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn rounds_are_as_asked_for_or_the_experiments_own() {
        let rounds = |line: &str| match parse(line) {
            Ok(Action::Run(experiment, args)) => (experiment.name, args.rounds),
            _ => panic!("{line} is no run"),
        };
        assert_eq!(rounds("run e4"), ("e4", 7));
        assert_eq!(rounds("run e6 --quick"), ("e6", 2));
        assert_eq!(rounds("run e9 --quick --runs 3"), ("e9", 3));
    }

    #[test]
    fn options_of_other_experiments_are_refused() {
        let refused = |line: &str| parse(line).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused("run e4 --later 5").contains("e4 has no option --later"));
        assert!(refused("run picture --runs 5").contains("picture has no option --runs"));
        assert!(parse("run e8 --later 5 --swap-dir /x").is_ok());
        assert!(refused("run e0").contains("e0"));
    }

    /// The sources of an experiment.
    fn sources(name: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/experiments");
        let name = &name.replace('-', "_");
        let named = |path: &PathBuf| {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            let other = match name.as_str() {
                "groups" => "cgroup_v2",
                "calls" => "instructions",
                "report" => "reporting_time",
                _ => name,
            };
            stem == other || stem.starts_with(&format!("{other}_"))
        };
        let found = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find(named).expect(name);
        let files = match found.is_dir() {
            true => std::fs::read_dir(found).unwrap().map(|entry| entry.unwrap().path()).collect(),
            false => vec![found],
        };
        files.iter().filter(|file| file.is_file()).map(|file| std::fs::read_to_string(file).unwrap()).collect()
    }

    #[test]
    fn the_help_of_an_experiment_names_what_its_sources_use_and_no_more() {
        for experiment in EXPERIMENTS {
            let (help, source) = (command_of(experiment).render_help().to_string(), sources(experiment.name));
            for name in LISTED {
                let field = if name == "runs" { "rounds" } else { name };
                let used = source.contains(&format!("args.{field}"));
                assert_eq!(experiment.takes(name), used, "{}: {name}", experiment.name);
                let shown = help.contains(&format!("--{} ", name.replace('_', "-")));
                assert_eq!(shown, used, "{}: --{name} in\n{help}", experiment.name);
            }
            assert!(help.starts_with(experiment.about), "{help}");
        }
    }
}
