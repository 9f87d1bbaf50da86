//! What is wrong with a command line, in one line: what, where, and what to write.

use clap::error::{ContextKind, Error, ErrorKind};
use std::error::Error as _;

/// The command line's error in one line. Clap has it in paragraphs: what is wrong, tips, the usage, where there is more.
pub fn in_a_line(error: &Error) -> String {
    if let (ErrorKind::ValueValidation, Some(option), Some(why)) =
        (error.kind(), error.get(ContextKind::InvalidArg), error.source())
    {
        // It says what to write.
        return format!("{option}: {why}");
    }
    let text = error.render().to_string();
    let help = format!("see `{} --help`", command(&text));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("a command is missing; {help}");
    }
    let paragraphs: Vec<String> = text.split("\n\n").map(on_one_line).collect();
    let what = paragraphs.first().map_or("", String::as_str);
    let tips: Vec<&str> = paragraphs.iter().filter_map(|it| it.strip_prefix("tip: ")).collect();
    // All values that are possible are too many where one of them is like what was written.
    let what = if tips.is_empty() { what } else { what.split(" [possible values").next().unwrap_or(what) };
    let what = what.strip_prefix("error: ").unwrap_or(what);
    [&[what], tips.as_slice(), &[help.as_str()]].concat().join("; ")
}

fn on_one_line(paragraph: &str) -> String {
    paragraph.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The command that the usage is of, such as `weir stat`.
fn command(text: &str) -> String {
    let usage = text.lines().find_map(|line| line.trim().strip_prefix("Usage: ")).unwrap_or_default();
    let is_word = |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let words: Vec<&str> = usage.split(' ').take_while(is_word).collect();
    if words.is_empty() { "weir".into() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line::CommandLine;
    use clap::Parser;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn each_slip_is_told_in_one_line_that_says_what_to_write() {
        for (args, say) in [
            (&["stat", "redis"][..], "[PID]: `redis` is no number of a process: write one, as `pidof` prints it"),
            (&["stat", "-1"], "[PID]: `-1` is no number of a process: write one, as `pidof` prints it"),
            (&["stat", "0"], "[PID]: `0` is no number of a process: write one, as `pidof` prints it"),
            (
                &["stat", "--jso"],
                "unexpected argument '--jso' found; a similar argument exists: '--json'; see `weir stat --help`",
            ),
            (
                &["profile", "1", "--seconds", "x"],
                "--seconds <N>: `x` is no number of seconds: write one from 1 to 86400",
            ),
            (
                &["export", "--max-processes", "-1"],
                "--max-processes <N>: `-1` is no number: write a whole one, such as 1000",
            ),
            (&["trace"], "the following required arguments were not provided: <PID>; see `weir trace --help`"),
            (&["trace", "1", "2"], "unexpected argument '2' found; see `weir trace --help`"),
            (&["run", "--limit"], "a value is required for '--limit <SIZE>' but none was supplied; see `weir --help`"),
            (
                &["run", "-q", "-v", "x"],
                "the argument '--quiet' cannot be used with '--verbose'; see `weir run --help`",
            ),
            (&["doctr"], "unrecognized subcommand 'doctr'; a similar subcommand exists: 'doctor'; see `weir --help`"),
            (
                &["ctl", "1", "get", "limti"],
                "invalid value 'limti' for '[NAME]'; a similar value exists: 'limit'; \
              see `weir --help`",
            ),
            (
                &["ctl", "1"],
                "'weir ctl' requires a subcommand but one was not provided \
              [subcommands: get, set, trim, drain, report, help]; see `weir ctl --help`",
            ),
            (&[], "a command is missing; see `weir --help`"),
            (
                &["report", "--format", "x", "f"],
                "invalid value 'x' for '--format <FORMAT>' \
              [possible values: html, markdown]; see `weir --help`",
            ),
        ] {
            let error = CommandLine::try_parse_from([&["weir"], args].concat()).unwrap_err();
            assert_eq!((in_a_line(&error).as_str(), error.exit_code()), (say, 2), "{args:?}");
        }
        let args = [b"weir".to_vec(), b"stat".to_vec(), b"\xff".to_vec()].map(OsString::from_vec);
        let error = CommandLine::try_parse_from(args).unwrap_err();
        assert_eq!(in_a_line(&error), "invalid UTF-8 was detected in one or more arguments; see `weir stat --help`");
    }
}
