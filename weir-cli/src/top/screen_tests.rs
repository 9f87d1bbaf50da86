//! A panic while the screen is taken over.

use super::screen::Screen;
use std::process::{Command, Stdio};

#[test]
#[ignore = "the test below runs it, on a terminal of its own"]
fn panics() {
    let _screen = Screen::take().unwrap();
    panic!("told on the first screen");
}

#[test]
fn a_panic_gives_the_terminal_back_before_it_is_told() {
    let own = std::env::current_exe().unwrap();
    let run = format!("'{}' --exact top::screen_tests::panics --ignored --nocapture; stty -a", own.display());
    let mut command = Command::new("script");
    let Ok(output) = command.args(["-qec", &run, "/dev/null"]).stdin(Stdio::null()).output() else {
        return eprintln!("skipped: no `script`; Debian has it in bsdutils");
    };
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let place = |part: &str| shown.find(part).unwrap_or_else(|| panic!("{part:?} is missing: {shown:?}"));
    let [taken, given_back, told] = ["\x1b[?1049h", "\x1b[?1049l", "told on the first screen"].map(place);
    assert!(taken < given_back && given_back < told, "{shown:?}");
    assert!(shown.contains("\x1b[?25h"), "the cursor is shown: {shown:?}");
    let modes: Vec<&str> = shown[place("speed ")..].split_whitespace().collect();
    assert!(modes.contains(&"icanon") && modes.contains(&"echo") && modes.contains(&"isig"), "{modes:?}");
}
