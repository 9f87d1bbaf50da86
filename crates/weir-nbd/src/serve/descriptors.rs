//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are not clients' at most, beside those of volumes and workers: logs, listeners, the control socket.
const SPARE: usize = 32;
/// Descriptors of one worker: its epoll instance and its ring, with an event each.
const WORKER: usize = 4;

/// Raises the limit to what this process may have, and returns how many of `wanted` clients it allows. A limit that is
/// too low is told once, now.
pub fn allow(wanted: usize, volumes: usize, workers: usize) -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // It can only be refused if the limit was lowered meanwhile: then the old one holds.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = getrlimit(Resource::Nofile).current.or(current);
    let own = SPARE + volumes + WORKER * workers;
    let allowed = limit.map_or(usize::MAX, |limit| limit as usize).saturating_sub(own).max(1);
    if allowed < wanted {
        let limit = limit.unwrap_or_default();
        tracing::warn!(
            "the limit of {limit} open files allows {allowed} clients, not {wanted}: raise it \
             (ulimit -n, LimitNOFILE=) or lower --max-connections"
        );
    }
    allowed.min(wanted)
}
