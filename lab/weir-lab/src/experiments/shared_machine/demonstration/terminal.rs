//! A program on a terminal of its own, of which all that it shows is recorded; below it are lines that tell what goes on.

use crate::harness::prelude::*;
use std::io::Read;
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The program's lines and columns: what `weir top` is made for.
const ROWS: u16 = 24;
const COLUMNS: u16 = 80;
/// Lines below it: a rule, and what goes on.
const TOLD: u16 = 4;

/// The text that was shown, and when.
pub struct Recording {
    /// Seconds since the beginning, and the bytes.
    shown: Vec<(f64, String)>,
}

/// The terminal.
pub struct Terminal {
    child: Child,
    began: Instant,
    state: Arc<Mutex<State>>,
}

struct State {
    parser: vt100::Parser,
    shown: Vec<(f64, String)>,
    /// The beginning of a character of several bytes.
    rest: Vec<u8>,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap_or(NonZero::<u16>::MIN)
}

impl State {
    fn show(&mut self, seconds: f64, bytes: &[u8]) {
        self.parser.process(bytes);
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text: Vec<u8> = self.rest.drain(..whole).collect();
        self.shown.push((seconds, String::from_utf8_lossy(&text).into_owned()));
    }
}

impl Terminal {
    /// Starts a program.
    pub fn start(program: &Path, arguments: &[&str]) -> Result<Terminal> {
        let (mut screen, line) = pty_process::blocking::open()?;
        screen.resize(pty_process::Size::new(ROWS, COLUMNS))?;
        let start = pty_process::blocking::Command::new(program).args(arguments).env("TERM", "xterm-256color");
        let child = start.spawn(line).with_context(|| format!("{} on a terminal", program.display()))?;
        let parser = vt100::Parser::new(cells(ROWS + TOLD), cells(COLUMNS), 0);
        let state = Arc::new(Mutex::new(State { parser, shown: Vec::new(), rest: Vec::new() }));
        let (began, shared) = (Instant::now(), Arc::clone(&state));
        std::thread::spawn(move || {
            let mut bytes = [0; 16384];
            while let Ok(read @ 1..) = screen.read(&mut bytes) {
                lock(&shared).show(began.elapsed().as_secs_f64(), &bytes[..read]);
            }
        });
        Ok(Terminal { child, began, state })
    }

    /// Says below the program what goes on: one line each, [`TOLD`] less one at most.
    pub fn tell(&self, lines: &[String]) {
        let width = usize::from(COLUMNS);
        let mut text = format!("\x1b7\x1b[{};1H\x1b[0;90m{}", ROWS + 1, "─".repeat(width));
        for (row, line) in (ROWS + 2..).zip(lines) {
            text += &format!("\x1b[{row};1H\x1b[0;1;36m{line:<width$}");
        }
        text += "\x1b[0m\x1b8";
        lock(&self.state).show(self.began.elapsed().as_secs_f64(), text.as_bytes());
    }

    /// The screen as it is now.
    pub fn picture(&self) -> vt100::Screen {
        lock(&self.state).parser.screen().clone()
    }

    /// Ends the program.
    pub fn finish(mut self) -> Recording {
        let _ = self.child.kill();
        let _ = self.child.wait();
        Recording { shown: std::mem::take(&mut lock(&self.state).shown) }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Recording {
    /// In asciicast's format, version 2: a line of JSON on the whole, then one for all that was shown at a time.
    pub fn cast(&self) -> String {
        let head =
            json!({ "version": 2, "width": COLUMNS, "height": ROWS + TOLD, "title": "redis on Weir, and a neighbour" });
        let events = self.shown.iter().map(|(seconds, text)| format!("[{seconds:.3},\"o\",{}]\n", json!(text)));
        events.fold(format!("{head}\n"), |cast, event| cast + &event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_shows_is_recorded_and_can_be_seen() {
        let terminal = Terminal::start(Path::new("/bin/sh"), &["-c", "printf 'gr\\303\\274n'; sleep 60"]).unwrap();
        let deadline = Instant::now() + std::time::Duration::from_secs(30);
        while !terminal.picture().contents().contains("grün") {
            assert!(Instant::now() < deadline, "{}", terminal.picture().contents());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        terminal.tell(&["below".into()]);
        assert!(terminal.picture().contents().trim_end().ends_with("below"));
        let cast = terminal.finish().cast();
        let mut lines = cast.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        assert_eq!(lines.next().unwrap()["height"], ROWS + TOLD);
        let text: String = lines.map(|event| event[2].as_str().unwrap().to_string()).collect();
        assert!(text.starts_with("grün") && text.contains("below"), "{text}");
    }
}
