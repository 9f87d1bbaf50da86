//! A panic while the screen is taken over.

use super::screen::Screen;
use std::process::{Command, Stdio};
use weir_testing::skip;

/// Has the process that the test starts, on a terminal of its own, panic.
const IS_TO_PANIC: &str = "WEIR_TEST_PANICS_ON_THE_SCREEN";

#[test]
fn a_panic_gives_the_terminal_back_before_it_is_told() {
    if std::env::var_os(IS_TO_PANIC).is_some() {
        let _screen = Screen::take().unwrap();
        panic!("told on the first screen");
    }
    let (own, thread) = (std::env::current_exe().unwrap(), std::thread::current());
    let run = format!("'{}' --exact {} --nocapture; stty -a", own.display(), thread.name().unwrap());
    let mut command = Command::new("script");
    command.args(["-qec", &run, "/dev/null"]).env(IS_TO_PANIC, "1").stdin(Stdio::null());
    let Ok(output) = command.output() else {
        return skip!("no `script`; Debian has it in bsdutils");
    };
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let place = |part: &str| shown.find(part).unwrap_or_else(|| panic!("{part:?} is missing: {shown:?}"));
    let [taken, given_back, told] = ["\x1b[?1049h", "\x1b[?1049l", "told on the first screen"].map(place);
    assert!(taken < given_back && given_back < told, "{shown:?}");
    assert!(shown.contains("\x1b[?25h"), "the cursor is shown: {shown:?}");
    let modes: Vec<&str> = shown[place("speed ")..].split_whitespace().collect();
    assert!(modes.contains(&"icanon") && modes.contains(&"echo") && modes.contains(&"isig"), "{modes:?}");
}
