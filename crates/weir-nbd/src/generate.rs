//! `weir-nbd generate`: man pages and shell completions, from the definitions that parse the command line.

use crate::base::Failure;
use crate::command_line::CommandLine;
use clap::CommandFactory;
use clap_complete::Shell;
use std::io;
use std::path::Path;

/// Writes `man1/weir-nbd*.1`, a page for each command, and `completions/` for three shells.
pub fn generate(directory: &Path) -> Result<(), Failure> {
    write(directory).map_err(Failure::because(format_args!("cannot write {}", directory.display())))
}

fn write(directory: &Path) -> io::Result<()> {
    let (pages, completions) = (directory.join("man1"), directory.join("completions"));
    std::fs::create_dir_all(&pages)?;
    std::fs::create_dir_all(&completions)?;
    clap_mangen::generate_to(CommandLine::command(), pages)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut CommandLine::command(), "weir-nbd", &completions)?;
    }
    Ok(())
}
