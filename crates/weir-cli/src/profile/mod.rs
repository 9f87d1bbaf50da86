//! `weir profile`: which calls of a process allocated what it holds.
//!
//! | part | what it does |
//! |---|---|
//! | [`taking`] | takes the profile of a running process: switches sampling on, waits, copies the table; or reads a file |
//! | [`data`] | the profile: stacks of addresses, and the files that they are in |
//! | [`symbols`] | the functions and lines of addresses, and which of them are shown |
//! | [`formats`] | writes it: pprof's, flame graphs, lines, text |

mod data;
mod formats;
mod symbols;
mod taking;

use crate::base::failure::{Failure, Kind, WEIR_FAILED};
use crate::base::output;
use crate::base::sink::{self, ResultFile};
use crate::base::units::bytes;
use crate::command_line::{ProfileFormat, ProfileOptions};
use data::{Measure, Profile};
use formats::{folded, pprof, text};
use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::Path;
use symbols::Symbols;
use symbols::files::Files;
use taking::{recording, text_file};

/// Bytes of a profile's file that are read at most: its table, as text, is below it many times.
const MOST_TEXT: u64 = 256 << 20;

/// Takes or reads the profile, and writes it.
pub fn profile(options: &ProfileOptions) -> Result<i32, Failure> {
    let format = format(options)?;
    let pid = options.subject.to_str().and_then(|text| text.parse::<i32>().ok()).filter(|&pid| pid > 0);
    if pid.is_none() {
        sink::is_no_input("--output", options.output.as_deref(), &[&options.subject])?;
    }
    // Opened first: an unwritable file should be known before the wait, not after.
    let mut sink = options.output.as_deref().map(|path| ResultFile::open("--output", path)).transpose()?;
    let (profile, files) = match pid {
        Some(pid) => (recording::record(pid, options, || drop(sink.take()))?, Files::Of(pid)),
        None => (read(options)?, Files::Own),
    };
    refuse_empty(&profile, options)?;
    let (symbols, measure) =
        (Symbols::of(&profile, files), if options.allocated { Measure::Allocated } else { Measure::Live });
    let (bytes, how) = match format {
        ProfileFormat::Pprof => (pprof::file(&profile, &symbols, measure)?, "; read it with `go tool pprof FILE`"),
        ProfileFormat::Flame => (folded::page(&profile, &symbols, measure)?.into(), "; open it in a browser"),
        ProfileFormat::Text => (text::text(&profile, &symbols, measure).into(), ""),
        ProfileFormat::Collapsed => (folded::text(&profile, &symbols, measure).into(), ""),
    };
    // In text and in a page readers see them.
    if matches!(format, ProfileFormat::Pprof | ProfileFormat::Collapsed) {
        let notes = profile.notes.iter().cloned().chain(symbols.doubts());
        notes.for_each(|note| output::say(format_args!("weir: note: {}\n", output::printable_line(&note))));
    }
    let (Some(sink), Some(path)) = (sink, &options.output) else { return output::print_bytes(&bytes).map(|()| 0) };
    sink.write(bytes)?;
    if path != Path::new("-") {
        let name = path.display().to_string();
        output::say(format_args!("weir: wrote {name}{}\n", how.replace("FILE", &name)));
    }
    Ok(0)
}

/// The format that is asked for, by its name or by that of the file; text for people, as on standard output, pprof's for files.
fn format(options: &ProfileOptions) -> Result<ProfileFormat, Failure> {
    let file = options.output.as_deref().filter(|path| *path != Path::new("-"));
    let ending = file.map(|path| path.extension().and_then(|ending| ending.to_str()));
    let format = options.format.unwrap_or(match ending {
        None | Some(Some("txt")) => ProfileFormat::Text,
        Some(Some("html" | "htm")) => ProfileFormat::Flame,
        Some(Some("collapsed" | "folded")) => ProfileFormat::Collapsed,
        Some(_) => ProfileFormat::Pprof,
    });
    if format == ProfileFormat::Pprof && ending.is_none() && std::io::stdout().is_terminal() {
        let why = "pprof's format is no text for a terminal: give it a file with -o FILE";
        return Err(Failure::of(Kind::Usage, why.into()));
    }
    Ok(format)
}

/// Reads the profile in a file.
fn read(options: &ProfileOptions) -> Result<Profile, Failure> {
    let name = options.subject.display();
    if options.seconds.is_some() || options.bytes.is_some() || options.keep_on {
        let why = "--seconds, --bytes and --keep-on are for a running process: leave them out, or give a PID";
        return Err(Failure::of(Kind::Usage, format!("{name} is a file: {why}")));
    }
    let mut bytes = Vec::new();
    let read = File::open(&options.subject).and_then(|file| file.take(MOST_TEXT).read_to_end(&mut bytes));
    read.map_err(|error| {
        let say = format!("cannot read {name}: {error}: give a PID, or the file of a profile");
        Failure::of_file(&error, WEIR_FAILED, say)
    })?;
    let profile = text_file::parse(&String::from_utf8_lossy(&bytes));
    let profile = profile.map_err(|why| Failure::of_weir(format!("cannot use {name}: {why}")))?;
    Ok(Profile { subject: name.to_string(), ..profile })
}

/// Nothing was sampled: an empty page would be read as if nothing were allocated.
fn refuse_empty(profile: &Profile, options: &ProfileOptions) -> Result<(), Failure> {
    let Profile { subject, mean_bytes, duration_ns, .. } = profile;
    let why = match (profile.stacks.is_empty(), *mean_bytes) {
        (false, _) => return Ok(()),
        (true, 0) => {
            "the profile is empty: the process allocated too little to be sampled; set WEIR_PROFILE_BYTES lower".into()
        }
        (true, mean) => format!(
            "no samples in {} s, one each {}: it allocates little; try longer --seconds, or --bytes {}",
            duration_ns / 1_000_000_000,
            bytes(mean),
            (options.bytes.unwrap_or(mean) / 16).max(1)
        ),
    };
    Err(Failure::of_weir(format!("{subject}: {why}")))
}
