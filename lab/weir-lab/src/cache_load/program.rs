//! Which program runs.

use crate::settings::Settings;
use crate::{server, worker};

/// `NAME key=value...`
pub fn main() {
    // SAFETY: sets this process's parent-death signal; no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_default();
    let ended = Settings::read(words).and_then(|settings| match name.as_str() {
        "server" => server::main(&settings),
        "worker" => worker::main(&settings),
        _ => Err(format!("no program is called '{name}': server, worker")),
    });
    if let Err(why) = ended {
        eprintln!("weir-lab-cache: {why}");
        std::process::exit(2);
    }
}
