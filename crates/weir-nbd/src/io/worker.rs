//! A worker: a thread with a runtime, whose tasks stay on it.

use super::remote::{Errand, Remote};
use super::ring;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

/// Most threads of a worker that work on one file. A queue of this depth is what disks use; more operations wait.
pub(super) const MOST_OF_FILE: usize = 32;
/// Most threads of a worker for what may block: where a file hangs, most are left to others.
const MAX_THREADS: usize = 4 * MOST_OF_FILE;
/// A thread without work for this long ends: never, so that there is one where the system refuses another.
const IDLE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// A thread for calls that block needs little stack: a system call and a completion.
const STACK: usize = 128 << 10;

/// Tasks that run between two looks for events: some look for work themselves, and others wait for events meanwhile.
const EVENT_INTERVAL: u32 = 16;

thread_local! {
    /// Tasks that this worker does not end before.
    static TASKS: Cell<usize> = const { Cell::new(0) };
    static IS_STOPPING: Cell<bool> = const { Cell::new(false) };
    /// The way to this thread's worker.
    static REMOTE: RefCell<Option<Remote>> = const { RefCell::new(None) };
}

/// Starts a task of this worker, which does not end before it.
pub fn spawn(task: impl Future<Output = ()> + 'static) {
    TASKS.set(TASKS.get() + 1);
    tokio::task::spawn_local(async {
        task.await;
        TASKS.set(TASKS.get() - 1);
        // The worker looks whether it ends.
        if IS_STOPPING.get() && TASKS.get() == 0 {
            stop();
        }
    });
}

/// Lets the other tasks that can go on do so first. (The runtime's own looks for events too, which is a call.)
pub async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Has a thread run `work`, which may block.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("what blocks does not panic")
}

/// This worker ends when its last task has.
pub fn stop() {
    IS_STOPPING.set(true);
    REMOTE.with_borrow(|remote| remote.iter().for_each(|remote| remote.run(|| {})));
}

/// A runtime for the main thread. It has a thread for what may block from the start: where the system refuses it later, a
/// reload or the flush at the end would be a panic.
pub fn main_runtime() -> io::Result<LocalRuntime> {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().thread_keep_alive(IDLE).thread_name("weir-nbd main");
    let runtime = builder.build_local(LocalOptions::default())?;
    runtime.spawn_blocking(|| {});
    Ok(runtime)
}

/// How operations on files get done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, clap::ValueEnum, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// io_uring, or threads where the kernel refuses it.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Threads.
    Threads,
}

/// A thread's worker.
pub struct Worker {
    runtime: LocalRuntime,
    errands: UnboundedReceiver<Errand>,
    remote: Remote,
    /// The task that serves its ring; an error ends it.
    ring: Option<JoinHandle<io::Error>>,
    /// Why it has no ring, if it was to have one.
    pub refused: Option<io::Error>,
}

impl Worker {
    /// A worker for this thread.
    pub fn new(engine: Engine) -> io::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(MAX_THREADS)
            .thread_keep_alive(IDLE)
            .thread_stack_size(STACK)
            .thread_name("weir-nbd file")
            .event_interval(EVENT_INTERVAL)
            .build_local(LocalOptions::default())?;
        let ring = (engine != Engine::Threads).then(|| {
            let _entered = runtime.enter();
            ring::open()
        });
        let (ring, refused) = match ring {
            Some(Ok(ring)) => (Some(runtime.spawn_local(ring.run())), None),
            Some(Err(why)) if engine == Engine::Uring => {
                return Err(io::Error::other(format!("io_uring is refused: {why}")));
            }
            other => (None, other.and_then(Result::err)),
        };
        // The first of the threads.
        runtime.spawn_blocking(|| {});
        let (sender, errands) = unbounded_channel();
        let remote = Remote::new(sender);
        REMOTE.set(Some(remote.clone()));
        Ok(Self { runtime, errands, remote, ring, refused })
    }

    /// The way to this worker for other threads.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// Runs tasks until [`stop`] was called and the last one has ended. An error is the ring's.
    pub fn run(mut self) -> io::Result<()> {
        let errands = async {
            while !(IS_STOPPING.get() && TASKS.get() == 0) {
                let errand = self.errands.recv().await.expect("this worker has a sender");
                errand();
            }
        };
        let ring = async {
            match self.ring {
                Some(ring) => ring.await.unwrap_or_else(io::Error::other),
                None => std::future::pending().await,
            }
        };
        let ended = self.runtime.block_on(async {
            tokio::select! {
                () = errands => Ok(()),
                why = ring => Err(why),
            }
        });
        // What still blocks may do so for ever.
        self.runtime.shutdown_background();
        ended
    }
}
