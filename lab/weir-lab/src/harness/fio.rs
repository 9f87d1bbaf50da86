//! fio, with its own NBD client (libnbd), and what it measured.

use crate::harness::child::KilledOnDrop;
use crate::harness::programs::command;
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Debian's package of the program.
pub const PROGRAM: (&str, &str) = ("fio", "fio");

/// What all jobs of a run came to together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Requests that were done.
    pub requests: f64,
    /// Bytes a second.
    pub bytes_a_second: f64,
    /// The time that 99 of 100 requests did not take longer than, ns.
    pub p99_ns: f64,
}

fn command_of(jobs: &Path) -> Result<Command, String> {
    let mut fio = command("fio")?;
    // Errors of one job end all.
    fio.args(["--output-format=json", "--group_reporting", "--exitall_on_error"]).arg(jobs);
    fio.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Some versions leave files of their state where they run.
    fio.current_dir(jobs.parent().unwrap_or(Path::new("/")));
    Ok(fio)
}

/// fio under way.
pub struct Fio(KilledOnDrop);

impl Fio {
    /// Starts the jobs of `text`, which is written to `file`.
    pub fn start(file: &Path, text: &str) -> Result<Fio, String> {
        let written = std::fs::File::create(file).and_then(|mut to| to.write_all(text.as_bytes()));
        written.map_err(|why| format!("cannot write fio's jobs: {why}"))?;
        KilledOnDrop::start(command_of(file)?, "fio").map(Fio)
    }

    /// Waits for its end. A fio that complains without end is killed: of a server that died its NBD engine says so for
    /// ever, as fast as the pipe takes it.
    pub fn outcome(mut self) -> Result<Outcome, String> {
        let child = &mut self.0.0;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (stdout, stderr) = stdout.zip(stderr).ok_or("fio has no output")?;
        // Both at once: the complaint may fill its pipe before anything else is said.
        let (said, complaint) = std::thread::scope(|scope| {
            let complaint = scope.spawn(|| {
                let complaint = read_up_to(stderr, MOST_COMPLAINT)?;
                if complaint.len() as u64 >= MOST_COMPLAINT {
                    child.kill().map_err(|why| format!("cannot end fio: {why}"))?;
                }
                Ok::<String, String>(complaint)
            });
            let said = read_up_to(stdout, MOST_SAID);
            (said, complaint.join().map_err(|_| "a thread panicked".to_string()).flatten())
        });
        let (said, complaint) = (said?, complaint?);
        let status = self.0.0.wait().map_err(|why| format!("fio: {why}"))?;
        if !status.success() {
            return Err(format!("fio failed: {}", complaint.lines().next().unwrap_or("no message")));
        }
        parse(&said)
    }
}

/// Bytes of complaints after which fio is ended: some 1,000 lines, of which the first is told.
const MOST_COMPLAINT: u64 = 64 << 10;

/// Bytes of its figures: 200 jobs say some 1 MiB.
const MOST_SAID: u64 = 64 << 20;

fn read_up_to(pipe: impl Read, most: u64) -> Result<String, String> {
    let mut bytes = Vec::new();
    pipe.take(most).read_to_end(&mut bytes).map_err(|why| format!("fio's output: {why}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads fio's JSON, which lines of text may stand before.
fn parse(said: &str) -> Result<Outcome, String> {
    let json = said.find('{').map_or("", |at| &said[at..]);
    let said: Value = serde_json::from_str(json).map_err(|why| format!("fio said no JSON: {why}"))?;
    let mut sum = Outcome::default();
    for job in said["jobs"].as_array().ok_or("fio tells of no job")? {
        if job["error"].as_i64() != Some(0) {
            return Err(format!("fio: job {} failed with error {}", job["jobname"], job["error"]));
        }
        for side in ["read", "write"] {
            let side = &job[side];
            let number = |value: &Value| value.as_f64().unwrap_or(0.0);
            sum.requests += number(&side["total_ios"]);
            sum.bytes_a_second += number(&side["bw_bytes"]);
            sum.p99_ns = sum.p99_ns.max(number(&side["clat_ns"]["percentile"]["99.000000"]));
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_of_a_run_are_added_up() {
        let side = |ios: u32, p99: u32| {
            format!(r#"{{"total_ios":{ios},"bw_bytes":1000,"clat_ns":{{"percentile":{{"99.000000":{p99}}}}}}}"#)
        };
        let job = |error: u32, ios, p99| {
            format!(r#"{{"jobname":"a","error":{error},"read":{},"write":{{"total_ios":0}}}}"#, side(ios, p99))
        };
        let said = format!("note: this\n{{\"jobs\":[{},{}]}}", job(0, 3, 50), job(0, 4, 20));
        let sum = Outcome { requests: 7.0, bytes_a_second: 2000.0, p99_ns: 50.0 };
        assert_eq!(parse(&said), Ok(sum));
        assert!(parse(&format!("{{\"jobs\":[{}]}}", job(5, 3, 50))).is_err_and(|why| why.contains("error 5")));
        assert!(parse("nothing").is_err());
    }
    #[test]
    fn one_that_complains_without_end_is_ended() {
        let mut complainer = Command::new("sh");
        complainer.args(["-c", "exec yes the server is gone >&2"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let fio = Fio(KilledOnDrop::start(complainer, "yes").unwrap());
        assert_eq!(fio.outcome(), Err("fio failed: the server is gone".into()));
    }
}
