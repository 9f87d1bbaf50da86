//! Workers of the further nodes of a machine that has several: each releases what is free of its node, on that node's
//! CPUs, beside the background thread, which goes through all nodes, the first one first.
//!
//! A worker lives for the length of a pressure event: there is nothing to keep it for, and a thread that is not there
//! holds no rights which the program gives up meanwhile. Whoever has the background thread end waits for workers too.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};
use weir_core::base::cause::Cause;

use crate::os::path::FixedPath;
use crate::os::process::{affinity, set_affinity, set_thread_name};
use crate::os::{fd, text};
use crate::platform::rseq;
use crate::process::heap::HEAP;
use crate::threads::background;
use crate::threads::thread::Place;

struct Worker {
    place: Place,
    /// Why it is there: the cause, and 256 if that is severe.
    task: AtomicU32,
}

/// Nodes that have workers, counting the first, which needs none; what is free of further nodes the background thread
/// releases alone.
const WORKERS_MAX: usize = 8;
static WORKERS: [Worker; WORKERS_MAX] =
    [const { Worker { place: Place::new(), task: AtomicU32::new(0) } }; WORKERS_MAX];

/// Starts the worker of `node`, unless it is at work still, or the caller is a thread of the program's.
pub(crate) fn summon(node: usize, cause: Cause, severe: bool) {
    let Some(worker) = WORKERS.get(node) else { return };
    if background::is_this_thread() {
        worker.task.store(cause as u32 | u32::from(severe) << 8, Release);
        let _ = worker.place.spawn(run, node);
    }
}

/// In a forked child: no worker is there.
pub(crate) fn forget() {
    WORKERS.iter().for_each(|worker| worker.place.forget());
}

/// Waits until no worker is there, at most until `deadline`.
pub(crate) fn wait_gone(deadline: u64) {
    WORKERS.iter().filter(|worker| worker.place.is_alive()).for_each(|worker| worker.place.wait_gone(deadline));
}

/// Whether the caller is a worker.
pub(crate) fn is_here() -> bool {
    WORKERS.iter().any(|worker| worker.place.is_here())
}

extern "C" fn run(node: usize) -> ! {
    rseq::register(true);
    let _ = set_thread_name(c"weir-node");
    move_to(node);
    let worker = &WORKERS[node];
    let task = worker.task.load(Acquire);
    let cause = if task & 0xff == Cause::Limit as u32 { Cause::Limit } else { Cause::Pressure };
    HEAP.engine().balance_node(node, cause, task >> 8 != 0);
    worker.place.leave().end(0)
}

/// Runs on the node's CPUs from now on, those of them that the program may use; else where it is.
fn move_to(node: usize) {
    const { assert!(WORKERS_MAX <= 10, "a node's number is one digit") };
    let (mut list, mut cpus, mut own) = ([0u8; 1024], [0u64; 128], [0u64; 128]);
    let digit = [b'0' + node as u8];
    if let Some(path) = FixedPath::from_parts(&[b"/sys/devices/system/node/node", &digit, b"/cpulist"])
        && let Ok(read) = fd::read_file(path.as_c_str(), &mut list)
        && text::list_bits(read, &mut cpus).is_some()
        && affinity(&mut own).is_ok()
    {
        cpus.iter_mut().zip(own).for_each(|(node, own)| *node &= own);
        // Refused where none is left.
        let _ = set_affinity(&cpus);
    }
}
