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

use crate::base::failure::{Failure, Kind};
use crate::base::output;
use crate::base::sink::ResultFile;
use crate::base::units::bytes;
use crate::command_line::{ProfileFormat, ProfileOptions};
use data::{Measure, Profile};
use formats::{folded, pprof, text};
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Read};
use std::path::Path;
use symbols::Symbols;
use symbols::files::Files;
use taking::{recording, text_file};

/// Bytes of a profile's file that are read at most: its table, as text, is below it many times.
const MOST_TEXT: u64 = 256 << 20;

/// Takes or reads the profile, and writes it.
pub fn profile(options: &ProfileOptions) -> Result<i32, Failure> {
    let format = format(options)?;
    // Opened first: an unwritable file should be known before the wait, not after.
    let sink = options.output.as_deref().map(|path| ResultFile::open("--output", path)).transpose()?;
    let pid = options.subject.to_str().and_then(|text| text.parse::<i32>().ok()).filter(|&pid| pid > 0);
    let (profile, files) = match pid {
        Some(pid) => (recording::record(pid, options)?, Files::Of(pid)),
        None => (read(options)?, Files::Own),
    };
    refuse_empty(&profile, options)?;
    let symbols = Symbols::of(&profile, files);
    let measure = if options.allocated { Measure::Allocated } else { Measure::Live };
    write(options, format, sink, &rendered(&profile, &symbols, format, measure)?)
}

/// The format that is asked for, by its name or by that of the file; text for people, pprof's for files.
fn format(options: &ProfileOptions) -> Result<ProfileFormat, Failure> {
    let Some(path) = &options.output else {
        let format = options.format.unwrap_or(ProfileFormat::Text);
        if format == ProfileFormat::Pprof && std::io::stdout().is_terminal() {
            return Err(Failure::of(
                Kind::Usage,
                "pprof's format is no text for a terminal: give it a file with -o FILE".into(),
            ));
        }
        return Ok(format);
    };
    let of_ending = match path.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => ProfileFormat::Flame,
        Some("txt") => ProfileFormat::Text,
        Some("collapsed" | "folded") => ProfileFormat::Collapsed,
        _ => ProfileFormat::Pprof,
    };
    Ok(options.format.unwrap_or(of_ending))
}

/// Reads the profile in a file.
fn read(options: &ProfileOptions) -> Result<Profile, Failure> {
    let name = options.subject.display();
    if options.seconds.is_some() || options.bytes.is_some() || options.keep_on {
        return Err(Failure::of(
            Kind::Usage,
            format!(
                "{name} is a file: --seconds, --bytes and --keep-on are for a running process: leave them out, or give a PID"
            ),
        ));
    }
    let text = text_of(&options.subject).map_err(|error| {
        let kind = match error.kind() {
            ErrorKind::NotFound => Kind::NotFound,
            ErrorKind::PermissionDenied => Kind::Refused,
            _ => Kind::Usage,
        };
        Failure::of(kind, format!("cannot read {name}: {error}: give a PID, or the file of a profile"))
    })?;
    let mut profile =
        text_file::parse(&text).map_err(|why| Failure::of(Kind::Usage, format!("cannot use {name}: {why}")))?;
    profile.subject = name.to_string();
    Ok(profile)
}

fn text_of(path: &Path) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MOST_TEXT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Nothing was sampled: an empty page would be read as if nothing were allocated.
fn refuse_empty(profile: &Profile, options: &ProfileOptions) -> Result<(), Failure> {
    if !profile.stacks.is_empty() {
        return Ok(());
    }
    let subject = &profile.subject;
    Err(Failure::of_weir(if profile.mean_bytes == 0 {
        format!(
            "{subject}: the profile is empty: the process allocated too little to be sampled; set WEIR_PROFILE_BYTES lower"
        )
    } else {
        let (mean, time) = (bytes(profile.mean_bytes), profile.duration_ns / 1_000_000_000);
        let less = options.bytes.unwrap_or(profile.mean_bytes) / 16;
        format!(
            "{subject}: no samples in {time} s, one each {mean}: it allocates little; try longer --seconds, or --bytes {}",
            less.max(1)
        )
    }))
}

/// The bytes of the file.
fn rendered(profile: &Profile, symbols: &Symbols, format: ProfileFormat, measure: Measure) -> Result<Vec<u8>, Failure> {
    Ok(match format {
        ProfileFormat::Pprof => pprof::file(profile, symbols, measure)
            .map_err(|error| Failure::of_weir(format!("cannot compress the profile: {error}")))?,
        ProfileFormat::Flame => folded::page(profile, symbols, measure)?.into_bytes(),
        ProfileFormat::Text => text::text(profile, symbols, measure).into_bytes(),
        ProfileFormat::Collapsed => folded::text(profile, symbols, measure).into_bytes(),
    })
}

fn write(
    options: &ProfileOptions,
    format: ProfileFormat,
    sink: Option<ResultFile>,
    bytes: &[u8],
) -> Result<i32, Failure> {
    let (Some(sink), Some(path)) = (sink, &options.output) else { return output::print_bytes(bytes).map(|()| 0) };
    sink.write(bytes)?;
    let name = path.display();
    if path != Path::new("-") {
        let how = match format {
            ProfileFormat::Pprof => format!("; read it with `go tool pprof {name}`"),
            ProfileFormat::Flame => "; open it in a browser".into(),
            ProfileFormat::Text | ProfileFormat::Collapsed => String::new(),
        };
        output::say(format_args!("weir: wrote {name}{how}\n"));
    }
    Ok(0)
}
