//! The threads that serve clients.

use crate::base::Failure;
use crate::io::{Engine, Remote, Worker};
use crate::session::{Context, Home};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;
use tokio::sync::mpsc::UnboundedSender;

/// A worker, as the acceptor sees it.
#[derive(Clone)]
pub struct Seat {
    /// The way to it.
    pub remote: Remote,
    /// Its clients.
    pub load: Arc<AtomicUsize>,
}

/// How workers have ended.
pub type Ends = UnboundedSender<std::io::Result<()>>;

/// Starts `count` workers. Each tells at its end how it was. Also returns how they do I/O on files: io_uring, if one of them does.
pub fn start(
    count: usize,
    engine: Engine,
    context: &Arc<Context>,
    ends: &Ends,
) -> Result<(Vec<Seat>, &'static str), Failure> {
    let start_one = |number| {
        let (context, ends) = (context.clone(), ends.clone());
        let (opened, open) = channel();
        let thread = std::thread::Builder::new().name(format!("weir-nbd {number}"));
        let work = move || {
            // Here, on the worker's thread: a ring is used only by the thread that has opened it.
            let mut worker = match Worker::new(engine) {
                Err(why) => return drop(opened.send(Err(why))),
                Ok(worker) => worker,
            };
            Home::settle(context);
            // Both fail only if the main thread has ended, and with it the process.
            let _ = opened.send(Ok((worker.remote(), worker.refused.take())));
            let _ = ends.send(worker.run());
        };
        thread.spawn(work).map_err(Failure::because("a worker's thread"))?;
        let remote = open.recv().map_err(Failure::because("a worker's thread"))?;
        let (remote, refused) = remote.map_err(Failure::because("a worker"))?;
        Ok::<_, Failure>((Seat { remote, load: Arc::default() }, refused))
    };
    let (mut seats, mut refused) = (Vec::new(), Vec::new());
    for number in 0..count {
        let (seat, why) = start_one(number)?;
        seats.push(seat);
        refused.extend(why);
    }
    if let Some(why) = refused.first() {
        tracing::warn!("io_uring is refused to {} of {count} workers ({why}): I/O is done by threads", refused.len());
    }
    let has_ring = engine != Engine::Threads && refused.len() < count;
    Ok((seats, if has_ring { "io_uring" } else { "threads" }))
}
