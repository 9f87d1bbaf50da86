//! Boots the guest's image under QEMU and measures, on the host, what comes back.
//!
//! One line of `name=value` words for each round on standard output; what the guest says is passed on behind
//! `guest:`. Ends with 0 if the guest found all in order, 77 if there is no QEMU, 1 or 2 otherwise.

mod guest;
mod options;

use anyhow::Result;
use clap::Parser;
use guest::{Guest, NoQemu};
use options::Options;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The exit code by which a test is told that it is skipped.
const SKIPPED: u8 = 77;
/// Between two looks at the resident set.
const LOOK: Duration = Duration::from_millis(5);
/// Percent of the freed bytes of which the time is told.
const MOST_OF_IT: f64 = 90.0;

/// Figures of a round.
#[derive(Default)]
struct Round {
    name: String,
    bytes: f64,
    peak: f64,
    freed_at: Option<Instant>,
    cpu: f64,
    back: Option<Duration>,
    reported: f64,
    guest_ns: f64,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) if why.is::<NoQemu>() => {
            eprintln!("weir-guest-run: skipped: {why}; on Debian: apt-get install qemu-system-x86");
            ExitCode::from(SKIPPED)
        }
        Err(why) => {
            eprintln!("weir-guest-run: {why:#}");
            ExitCode::FAILURE
        }
    }
}

/// The value of a word `name=value` of a line.
fn word<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn number(line: &str, name: &str) -> f64 {
    word(line, name).and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

fn run(options: &Options) -> Result<()> {
    let mut guest = Guest::start(options)?;
    let mut round = Round::default();
    loop {
        let Some((at, line)) = guest.line(LOOK)? else {
            round.look(&guest)?;
            continue;
        };
        match word(&line, "phase") {
            Some("touched") => {
                let name = word(&line, "round").unwrap_or_default().to_string();
                round = Round { name, bytes: number(&line, "bytes"), peak: guest.resident()?, ..Round::default() };
                guest.go_on()?;
            }
            Some("freed") => (round.freed_at, round.cpu) = (Some(at), guest.cpu_seconds()?),
            Some("returned") => {
                round.say(options, &guest)?;
                guest.go_on()?;
            }
            _ if line.starts_with("cost ") => {
                (round.reported, round.guest_ns) = (number(&line, "reported_bytes"), number(&line, "return_ns"));
            }
            _ if line.starts_with("end=") => return guest.end(),
            _ => {}
        }
    }
}

impl Round {
    fn look(&mut self, guest: &Guest) -> Result<()> {
        if let (Some(freed), None) = (self.freed_at, self.back)
            && (self.peak - guest.resident()?) * 100.0 >= self.bytes * MOST_OF_IT
        {
            self.back = Some(freed.elapsed());
        }
        Ok(())
    }

    fn say(&mut self, options: &Options, guest: &Guest) -> Result<()> {
        self.look(guest)?;
        let (cpu, after) = (guest.cpu_seconds()? - self.cpu, guest.resident()?);
        let (fallen, gib) = (self.peak - after, self.reported / f64::from(1 << 30));
        let switch = |off: bool| if off { "off" } else { "on" };
        println!(
            "round={} reporting={} poison={} freed_bytes={} reported_bytes={} peak_rss_bytes={} after_rss_bytes={after} \
             fallen_bytes={fallen} fallen_percent={:.1} host_ms_to_90_percent={} guest_return_ms={:.0} \
             qemu_cpu_ms_per_gib={}",
            self.name,
            switch(options.no_reporting),
            switch(options.no_poison),
            self.bytes,
            self.reported,
            self.peak,
            fallen * 100.0 / self.bytes.max(1.0),
            self.back.map_or("never".to_string(), |time| time.as_millis().to_string()),
            self.guest_ns / 1e6,
            if gib > 0.0 { format!("{:.0}", cpu * 1e3 / gib) } else { "none".into() },
        );
        self.freed_at = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_by_their_whole_name() {
        let line = "cost xround=a round=calm bytes=12 empty=";
        assert_eq!((word(line, "round"), number(line, "bytes")), (Some("calm"), 12.0));
        assert_eq!((word(line, "rou"), number(line, "empty"), number(line, "none")), (None, 0.0, 0.0));
    }

    #[test]
    fn options_are_read_and_wrong_ones_refused() {
        let parse = |line: &str| Options::try_parse_from(["weir-guest-run"].into_iter().chain(line.split_whitespace()));
        let options = parse("--touch 100 --no-reporting --image x").unwrap();
        assert_eq!((options.memory, options.touch, options.no_reporting, options.no_poison), (512, 100, true, false));
        assert!(parse("--touch 0").is_err() && parse("--tuch").is_err());
    }
}
