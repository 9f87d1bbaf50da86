//! Workers of further NUMA nodes, each under the number of its first part. Each releases what is free of all parts, on the CPUs of
//! that NUMA node. The background thread, beside them, goes through all nodes, the first one first.
//!
//! A worker lives for the length of a pressure event. There is nothing to keep it for, and a thread that is not there
//! holds no rights which the program gives up meanwhile. Whoever ends the background thread waits for the workers too.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};
use weir_core::base::cause::Cause;
use weir_core::platform::Topology;

use crate::os::process::set_thread_name;
use crate::os::tasks::{affinity, set_affinity};
use crate::platform::linux::Engine;
use crate::platform::machine;
use crate::threads::at_work::AT_WORK;
use crate::threads::raw_thread::RawThread;

/// NUMA nodes that have workers, counting the first, which needs none; what is free of further ones the background thread
/// releases alone.
const WORKERS_MAX: usize = 8;

struct Worker {
    thread: RawThread,
    /// Why it is there: the cause, and 256 if pressure is severe.
    task: AtomicU32,
}

/// The workers of a heap, one for each NUMA node; the first one's is never started.
pub struct NodeWorkers {
    heap: &'static Engine,
    workers: [Worker; WORKERS_MAX],
}

impl NodeWorkers {
    /// No worker yet.
    pub const fn new(heap: &'static Engine) -> Self {
        Self { heap, workers: [const { Worker { thread: RawThread::new(), task: AtomicU32::new(0) } }; WORKERS_MAX] }
    }

    /// Starts the worker of `node`, unless it is still at work. From the background thread.
    pub(crate) fn start(&'static self, node: usize, cause: Cause, is_severe: bool) {
        let Some(worker) = self.workers.get(node) else { return };
        worker.task.store(cause as u32 | u32::from(is_severe) << 8, Release);
        let _ = worker.thread.spawn(run, core::ptr::from_ref(self) as usize, node);
    }

    /// In a forked child: no worker is there.
    ///
    /// # Safety
    /// It is one, and no worker was started since the fork.
    pub(crate) unsafe fn forget(&self) {
        // SAFETY: the workers are the parent's.
        self.workers.iter().for_each(|worker| unsafe { worker.thread.forget() });
    }

    /// Waits until no worker is there, at most until `deadline`.
    pub(crate) fn wait_gone(&self, deadline: u64) {
        let there = self.workers.iter().filter(|worker| worker.thread.is_alive());
        there.for_each(|worker| worker.thread.wait_gone(deadline));
    }

    fn work(&self, node: usize) -> ! {
        let worker = &self.workers[node];
        worker.thread.register();
        let _ = set_thread_name(c"weir-node");
        if self.heap.platform().has_numa_nodes() {
            move_to(self.heap.platform().numa_node(node));
        }
        let task = worker.task.load(Acquire);
        let cause = if task & 0xff == Cause::Limit as u32 { Cause::Limit } else { Cause::Pressure };
        AT_WORK.begin();
        self.heap.reclaim().balance_node(node, cause, task >> 8 != 0);
        AT_WORK.end();
        worker.thread.leave().end(0)
    }
}

extern "C" fn run(workers: usize, node: usize) -> ! {
    // SAFETY: `start` passed a reference that lives as long as the process.
    unsafe { &*(workers as *const NodeWorkers) }.work(node)
}

/// Runs on the NUMA node's CPUs from now on, those of them that the program may use; else where it is.
fn move_to(node: usize) {
    let mut own = [0; 128];
    if let Some(mut cpus) = machine::node_cpus(node)
        && affinity(&mut own).is_ok()
    {
        cpus.iter_mut().zip(own).for_each(|(node, own)| *node &= own);
        // Refused where none is left.
        let _ = set_affinity(&cpus);
    }
}
