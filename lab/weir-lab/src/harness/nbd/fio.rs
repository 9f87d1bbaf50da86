//! fio, with its own NBD client (libnbd), and what it measured.

use crate::harness::child::{KilledOnDrop, system};
use crate::harness::lab::Need;
use crate::harness::machine::restore::kill;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

pub const PROGRAM: Need = Need::Program("fio", "fio");
/// Bytes of its output that are read, and of its complaints.
const MOST_SAID: u64 = 64 << 20;
const MOST_COMPLAINT: u64 = 64 << 10;

/// The outcome of all jobs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    pub requests: f64,
    pub bytes_a_second: f64,
    /// The 99th percentile of the slowest job.
    pub p99_ns: f64,
}

/// fio, started with a text of jobs; and its complaints, which are read so that they never block it.
pub struct Fio(KilledOnDrop, JoinHandle<Vec<u8>>);

impl Fio {
    pub fn start(file: &Path, jobs: &str) -> Result<Fio> {
        std::fs::write(file, jobs)?;
        let mut fio = system("fio")?;
        fio.args(["--output-format=json", "--group_reporting", "--exitall_on_error"]).arg(file);
        fio.current_dir(file.parent().context("no folder")?);
        Fio::run(fio)
    }

    /// One that complains without end is ended.
    fn run(mut fio: Command) -> Result<Fio> {
        fio.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = KilledOnDrop::start(fio, "fio")?;
        let (complaints, pid) = (child.0.stderr.take().context("no complaints")?, child.pid());
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            if complaints.take(MOST_COMPLAINT).read_to_end(&mut text).is_ok_and(|read| read as u64 == MOST_COMPLAINT) {
                kill(pid);
            }
            text
        });
        Ok(Fio(child, reader))
    }

    pub fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Waits for its end.
    pub fn outcome(mut self) -> Result<Outcome> {
        let mut said = Vec::new();
        self.0.0.stdout.take().context("fio has no output")?.take(MOST_SAID).read_to_end(&mut said)?;
        let status = self.0.0.wait()?;
        let complaint = self.1.join().unwrap_or_default();
        let complaint = String::from_utf8_lossy(&complaint);
        ensure!(status.success(), "fio failed: {}", complaint.lines().next().unwrap_or("no message"));
        parse(&String::from_utf8_lossy(&said))
    }
}

fn parse(said: &str) -> Result<Outcome> {
    // Its notes stand before the JSON.
    let json = said.find('{').map_or("", |at| &said[at..]);
    let said: Value = serde_json::from_str(json).context("fio said no JSON")?;
    let mut sum = Outcome::default();
    for job in said["jobs"].as_array().context("fio tells of no job")? {
        ensure!(job["error"] == 0, "fio: job {} failed with error {}", job["jobname"], job["error"]);
        for side in ["read", "write"] {
            let number = |value: &Value| value.as_f64().unwrap_or(0.0);
            sum.requests += number(&job[side]["total_ios"]);
            sum.bytes_a_second += number(&job[side]["bw_bytes"]);
            sum.p99_ns = sum.p99_ns.max(number(&job[side]["clat_ns"]["percentile"]["99.000000"]));
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
        assert_eq!(parse(&said).unwrap(), sum);
        assert!(
            parse(&format!("{{\"jobs\":[{}]}}", job(5, 3, 50))).is_err_and(|why| why.to_string().contains("error 5"))
        );
        assert!(parse("nothing").is_err());
    }

    #[test]
    fn one_that_complains_without_end_is_ended_and_says_why() {
        let mut complainer = Command::new("sh");
        complainer.args(["-c", "exec yes the server is gone >&2"]);
        let outcome = Fio::run(complainer).unwrap().outcome();
        assert_eq!(outcome.unwrap_err().to_string(), "fio failed: the server is gone");
    }
}
