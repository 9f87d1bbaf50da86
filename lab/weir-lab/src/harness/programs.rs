//! Programs of the system's: where they are, what is missing, and running one to its end.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Where a program is: on the path, or where the system's own are.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into(), "/usr/games".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.exists())
}

/// The command of a program of the system's.
pub fn command(program: &str) -> Result<Command, String> {
    find(program).map(Command::new).ok_or_else(|| format!("{program} is not here"))
}

/// Runs a program of the system's to its end, a minute at most; what it printed.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    run_for(program, arguments, 60).map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// The same, `seconds` at most; all that it printed.
pub fn run_for(program: &str, arguments: &[&str], seconds: u32) -> Result<Output, String> {
    let path = find(program).ok_or_else(|| format!("{program} is not here"))?;
    let mut timeout = Command::new("timeout");
    timeout.arg(seconds.to_string()).arg(path).args(arguments).stdin(Stdio::null());
    let output = timeout.output().map_err(|why| format!("cannot run {program}: {why}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} {}: {}", arguments.join(" "), said.lines().next().unwrap_or("it failed")))
}

/// Which of these programs, each with Debian's package of it, are missing: a line each.
pub fn missing(programs: &[(&str, &str)]) -> Vec<String> {
    let absent = programs.iter().filter(|(program, _)| find(program).is_none());
    absent.map(|(program, package)| format!("{program}: apt-get install {package}")).collect()
}

/// A line that says so unless this is root.
pub fn missing_root(why: &str) -> Option<String> {
    // SAFETY: geteuid takes and changes nothing.
    (unsafe { libc::geteuid() } != 0).then(|| format!("root: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_where_they_are() {
        assert!(find("sh").is_some() && find("no-such-program").is_none());
        assert_eq!(missing(&[("sh", "dash"), ("no-such-program", "none")]), ["no-such-program: apt-get install none"]);
    }

    #[test]
    fn what_a_program_says_of_its_failure_is_the_error() {
        assert_eq!(run("echo", &["a", "b"]), Ok("a b".into()));
        assert!(run("ls", &["/no/such/file"]).is_err_and(|why| why.contains("/no/such/file")));
    }
}
