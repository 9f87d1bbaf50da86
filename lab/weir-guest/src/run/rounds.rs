//! The measurement: for each round of the guest, the resident set before and after, and how long the way was.

use std::time::{Duration, Instant};

use crate::guest::{Failure, Guest};
use crate::options::Options;

/// Between two looks at the resident set while memory is on its way.
const LOOK: Duration = Duration::from_millis(5);
/// Part of the freed bytes, in percent, whose return is timed.
const MOST_OF_IT: u64 = 90;

/// A round under way.
#[derive(Default)]
struct Round {
    name: String,
    bytes: u64,
    peak: u64,
    freed_at: Option<Instant>,
    cpu: Duration,
    /// From the last free until most of it was gone.
    back: Option<Duration>,
    reported: u64,
    guest_ns: u64,
}

/// The value of a word `name=value` in a line.
fn word<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn number(line: &str, name: &str) -> u64 {
    word(line, name).and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// Runs the guest to its end and prints a line for each round.
pub fn run(options: &Options) -> Result<(), Failure> {
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
            Some("freed") => (round.freed_at, round.cpu) = (Some(at), guest.cpu()?),
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
    /// Notes when most of what was freed is gone.
    fn look(&mut self, guest: &Guest) -> Result<(), Failure> {
        if let (Some(freed), None) = (self.freed_at, self.back)
            && self.peak.saturating_sub(guest.resident()?) * 100 >= self.bytes * MOST_OF_IT
        {
            self.back = Some(freed.elapsed());
        }
        Ok(())
    }

    fn say(&mut self, options: &Options, guest: &Guest) -> Result<(), Failure> {
        self.look(guest)?;
        let cpu = guest.cpu()?.saturating_sub(self.cpu);
        let after = guest.resident()?;
        let fallen = self.peak.saturating_sub(after);
        let percent = fallen as f64 * 100.0 / self.bytes.max(1) as f64;
        let back = self.back.map_or("never".to_string(), |time| time.as_millis().to_string());
        let cpu_per_gib = (cpu.as_millis() << 30).checked_div(self.reported.into());
        println!(
            "round={} reporting={} poison={} freed_bytes={} reported_bytes={} peak_rss_bytes={} after_rss_bytes={after} \
             fallen_bytes={fallen} fallen_percent={percent:.1} host_ms_to_90_percent={back} guest_return_ms={} \
             qemu_cpu_ms_per_gib={}",
            self.name,
            if options.reporting { "on" } else { "off" },
            if options.poison { "on" } else { "off" },
            self.bytes,
            self.reported,
            self.peak,
            self.guest_ns / 1_000_000,
            cpu_per_gib.map_or("none".to_string(), |ms| ms.to_string()),
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
        assert_eq!((word(line, "round"), number(line, "bytes")), (Some("calm"), 12));
        assert_eq!((word(line, "rou"), number(line, "empty"), number(line, "none")), (None, 0, 0));
    }
}
