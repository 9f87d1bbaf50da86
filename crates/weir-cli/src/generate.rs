//! `weir generate`: man pages and shell completions, from the definitions that parse the command line.

use crate::base::failure::Failure;
use crate::command_line::CommandLine;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io;
use std::path::Path;

/// Writes `man1/weir*.1`, a page for each command, and `completions/` for three shells.
pub fn generate(directory: &Path) -> Result<i32, Failure> {
    write(directory).map(|()| 0).map_err(|why| Failure::of_weir(format!("cannot write {}: {why}", directory.display())))
}

fn write(directory: &Path) -> io::Result<()> {
    let (pages, completions) = (directory.join("man1"), directory.join("completions"));
    std::fs::create_dir_all(&pages)?;
    std::fs::create_dir_all(&completions)?;
    let mut command = CommandLine::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, &pages)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut CommandLine::command(), "weir", &completions)?;
    }
    Ok(())
}

/// The page of a command and those of its subcommands. All name the program's version; a subcommand has none of its own.
fn write_pages(command: &clap::Command, pages: &Path) -> io::Result<()> {
    command.get_subcommands().try_for_each(|subcommand| write_pages(subcommand, pages))?;
    let page = Man::new(command.clone()).source(concat!("weir ", env!("CARGO_PKG_VERSION")));
    page.generate_to(pages).map(drop)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_page_names_the_programs_version() {
        let folder = tempfile::tempdir().unwrap();
        super::write(folder.path()).unwrap();
        let pages: Vec<_> =
            std::fs::read_dir(folder.path().join("man1")).unwrap().map(|page| page.unwrap().path()).collect();
        assert!(pages.len() > 1, "{pages:?}");
        for page in pages {
            let text = std::fs::read_to_string(&page).unwrap();
            let title = text.lines().find(|line| line.starts_with(".TH ")).unwrap();
            assert!(
                title.contains(concat!(" \"weir ", env!("CARGO_PKG_VERSION"), "\"")),
                "{}: {title}",
                page.display()
            );
        }
    }
}
