//! Postmark: how it is told what to do, and what it says.

use std::path::Path;

/// How much it does.
pub struct Work {
    /// Files that are there before the transactions.
    pub files: u32,
    /// Bytes of a file: from, to.
    pub sizes: [u32; 2],
    /// Transactions.
    pub transactions: u32,
}

impl Work {
    /// Its commands, to run once in `folder`.
    pub fn commands(&self, folder: &Path) -> String {
        let Work { files, sizes: [low, high], transactions } = self;
        format!(
            "set location {}\nset number {files}\nset size {low} {high}\nset transactions {transactions}\n\
             set subdirectories 10\nset read 4096\nset write 4096\nset seed 42\nrun\nquit\n",
            folder.display()
        )
    }
}

/// What it did, by its own lines. Rates are of whole seconds, which is all that it counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    /// Transactions a second.
    pub transactions: f64,
    /// Megabytes read, and a second.
    pub read: [f64; 2],
    /// Megabytes written, and a second.
    pub written: [f64; 2],
    /// Files created alone, and with transactions, a second.
    pub created: [f64; 2],
    /// Files deleted alone, and with transactions, a second.
    pub deleted: [f64; 2],
}

/// Reads its output.
pub fn parse(output: &str) -> Result<Lines, String> {
    let mut lines = Lines::default();
    let (mut is_deletion, mut found) = (false, 0);
    for line in output.lines().map(str::trim) {
        let Some(rate) = rate(line) else { continue };
        let amount = || line.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(f64::NAN);
        found += 1;
        match line {
            _ if line.contains("of transactions") => lines.transactions = rate,
            _ if line.contains("megabytes read") || line.contains("kilobytes read") => lines.read = [amount(), rate],
            _ if line.contains("megabytes written") || line.contains("kilobytes written") => {
                lines.written = [amount(), rate];
            }
            _ if line.contains(" deleted ") => is_deletion = true,
            _ if line.starts_with("Creation alone") => lines.created[0] = rate,
            _ if line.starts_with("Deletion alone") => lines.deleted[0] = rate,
            _ if line.starts_with("Mixed") => {
                *(if is_deletion { &mut lines.deleted[1] } else { &mut lines.created[1] }) = rate
            }
            _ => found -= 1,
        }
        if line.contains("kilobytes") {
            return Err("postmark did too little to be measured in megabytes".into());
        }
    }
    if found == 8 { Ok(lines) } else { Err(format!("postmark did not end well: {}", last_line(output))) }
}

/// `… (12.3 per second)`, `… (12.3 megabytes per second)`.
fn rate(line: &str) -> Option<f64> {
    line.strip_suffix("per second)")?.rsplit_once('(')?.1.split(' ').next()?.parse().ok()
}

fn last_line(output: &str) -> &str {
    output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "PostMark v1.51 : 8/14/01\npm>pm>Creating files...Done\nPerforming transactions..........Done\n\
        Deleting files...Done\nTime:\n\t12 seconds total\n\t10 seconds of transactions (30 per second)\n\nFiles:\n\
        \t344 created (28 per second)\n\t\tCreation alone: 200 files (100 per second)\n\
        \t\tMixed with transactions: 144 files (14 per second)\n\t140 read (14 per second)\n\
        \t160 appended (16 per second)\n\t344 deleted (28 per second)\n\t\tDeletion alone: 188 files (94 per second)\n\
        \t\tMixed with transactions: 156 files (15 per second)\n\nData:\n\
        \t48.60 megabytes read (4.05 megabytes per second)\n\t133.40 megabytes written (11.12 megabytes per second)\npm>";

    #[test]
    fn its_lines_are_read() {
        let expected = Lines {
            transactions: 30.0,
            read: [48.6, 4.05],
            written: [133.4, 11.12],
            created: [100.0, 14.0],
            deleted: [94.0, 15.0],
        };
        assert_eq!(parse(SAID), Ok(expected));
    }

    #[test]
    fn what_is_no_result_is_an_error() {
        assert!(parse("pm>Error: cannot open").unwrap_err().contains("cannot open"));
        assert!(parse(&SAID.replace("48.60 megabytes", "48.60 kilobytes")).is_err());
    }
}
