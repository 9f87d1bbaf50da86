//! `weir why` and `weir doctor` on a Python program, with its own allocator and without.

mod subject;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use subject::{library, says, text, weir};

/// Python with 60 MiB of small objects, which ends with the test.
struct Python(Child);

impl Python {
    fn new(malloc: Option<&str>) -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(["-c", "a = [[i] for i in range(1 << 19)]\nprint('ready', flush=True)\ninput()"]);
        command.env("LD_PRELOAD", library()).env_remove("PYTHONMALLOC").envs(malloc.map(|it| ("PYTHONMALLOC", it)));
        let made = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut python = match made {
            Ok(child) => Self(child),
            Err(error) => {
                weir_testing::skip!("no python3 ({error})");
                return None;
            }
        };
        let mut line = String::new();
        BufReader::new(python.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Some(python)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_pythons_own_allocator_holds_is_named_with_its_cure() {
    let Some(python) = Python::new(None) else { return };
    let why = says(&["why", &python.pid(), "--json"]);
    assert!(why.contains("pymalloc, Python's own allocator") && why.contains("PYTHONMALLOC=malloc"), "{why}");
    let doctor = text(&weir(&["doctor", &python.pid()]).stdout);
    assert!(doctor.contains("pymalloc") && doctor.contains("PYTHONMALLOC=malloc"), "{doctor}");
    let cured = Python::new(Some("malloc")).unwrap();
    for command in ["why", "doctor"] {
        let said = text(&weir(&[command, &cured.pid()]).stdout);
        assert!(!said.contains("pymalloc"), "{said}");
    }
}
