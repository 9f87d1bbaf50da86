//! Workers of the further nodes of a machine that has several: each releases what is free of its node, on that node's
//! CPUs, while the background thread does the same of the first.
//!
//! A worker lives for the length of a pressure event: there is nothing to keep it for, and a thread that is not there
//! holds no rights which the program gives up meanwhile (the background thread has just made sure of its own).

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};
use weir_core::buddy::Backing;
use weir_core::heap::MAX_NODES;
use weir_core::report::Want;
use weir_core::stats::Cause;

use crate::heap::HEAP;
use crate::os::path::FixedPath;
use crate::os::process::{set_affinity, set_thread_name};
use crate::os::{fd, text};
use crate::thread::Place;
use crate::{background, rseq};

struct Worker {
    place: Place,
    /// What it is to do: the cause, and the backing times 256.
    task: AtomicU32,
}

static WORKERS: [Worker; MAX_NODES] = [const { Worker { place: Place::new(), task: AtomicU32::new(0) } }; MAX_NODES];

/// Starts the worker of `node`, unless it is at work still. Called by the background thread alone.
pub(crate) fn summon(node: usize, want: Want) {
    let worker = &WORKERS[node];
    if background::is_running() && !worker.place.is_taken() {
        worker.task.store(want.cause as u32 | (want.split as u32) << 8, Release);
        worker.place.spawn(run, node);
    }
}

/// In a forked child: no worker is there.
pub(crate) fn forget() {
    WORKERS.iter().for_each(|worker| worker.place.forget());
}

extern "C" fn run(node: usize) -> ! {
    rseq::register(true);
    let _ = set_thread_name(c"weir-node");
    move_to(node);
    let worker = &WORKERS[node];
    HEAP.engine().balance_node(node, want(worker.task.load(Acquire)));
    worker.place.leave().end()
}

fn want(task: u32) -> Want {
    let split = [Backing::Small, Backing::SparseHuge, Backing::Huge][(task >> 8) as usize % 3];
    let causes = [Cause::Idle, Cause::Pressure, Cause::Limit, Cause::Asked];
    let cause = causes.into_iter().find(|&cause| cause as u32 == task & 0xff).unwrap_or(Cause::Pressure);
    Want { cause, split }
}

/// Runs on the node's CPUs from now on, those of them that the program may use; else where it is.
fn move_to(node: usize) {
    const { assert!(MAX_NODES <= 10, "a node's number is one digit") };
    let (mut list, mut cpus) = ([0u8; 1024], [0u64; 128]);
    let digit = [b'0' + node as u8];
    if let Some(path) = FixedPath::from_parts(&[b"/sys/devices/system/node/node", &digit, b"/cpulist"])
        && let Ok(read) = fd::read_file(path.as_c_str(), &mut list)
        && text::list_bits(read, &mut cpus).is_some()
    {
        let _ = set_affinity(&cpus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_what_it_was() {
        for cause in [Cause::Idle, Cause::Pressure, Cause::Limit, Cause::Asked] {
            for split in [Backing::Small, Backing::SparseHuge, Backing::Huge] {
                let got = want(cause as u32 | (split as u32) << 8);
                assert_eq!((got.cause as u8, got.split), (cause as u8, split));
            }
        }
    }
}
