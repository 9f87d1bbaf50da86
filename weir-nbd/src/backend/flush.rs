//! Making written data durable, for all connections of all workers.
//!
//! One `fdatasync` at a time, by one open file. The kernel reports a failed write-back once to each open file, to
//! whichever call comes first, and then forgets the data that was lost. With two calls under way, one could succeed
//! because the other was told. So requests that come while a call is under way wait for the next one, which is theirs
//! together; and after a failure no flush succeeds any more, since it is not known which data is on the disk.

use crate::io::{Reactor, Remote};
use futures_util::future::FutureExt;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

type Waiter = Box<dyn FnOnce(Option<i32>) + Send>;

/// The flushes of one volume.
pub struct Flusher {
    file: Arc<OwnedFd>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_running: bool,
    /// Requests that the next call serves.
    waiting: Vec<Waiter>,
    /// The first call that failed.
    failed: Option<i32>,
}

impl Flusher {
    pub(super) fn new(file: Arc<OwnedFd>) -> Self {
        Self { file, state: Mutex::default() }
    }

    /// All that was written before this was called is durable when it returns; or an error, and then never again a
    /// success.
    pub async fn flush(self: &Arc<Self>, reactor: &Rc<Reactor>) -> Result<()> {
        let (deliver, result) = answer(reactor.remote());
        let is_first = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.waiting.push(deliver);
            !std::mem::replace(&mut state.is_running, true)
        };
        if is_first {
            // A task of its own: it goes on for others when this request's connection has ended.
            reactor.spawn(self.clone().run(reactor.clone()));
        }
        match result.await {
            None => Ok(()),
            Some(error) => Err(Error::from_raw_os_error(error)),
        }
    }

    async fn sync(&self, reactor: &Rc<Reactor>) -> Result<()> {
        loop {
            match reactor.sync(&self.file).await {
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    /// Flushes until no request waits.
    async fn run(self: Arc<Self>, reactor: Rc<Reactor>) {
        loop {
            let (waiting, mut failed) = {
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.is_running = !state.waiting.is_empty();
                (std::mem::take(&mut state.waiting), state.failed)
            };
            if waiting.is_empty() {
                return;
            }
            if failed.is_none()
                && let Err(why) = self.sync(&reactor).await
            {
                tracing::error!(
                    "a flush failed, and what was written before may be lost: {why}; every later one fails too"
                );
                failed = Some(why.raw_os_error().unwrap_or(libc::EIO));
                self.state.lock().unwrap_or_else(PoisonError::into_inner).failed = failed;
            }
            waiting.into_iter().for_each(|deliver| deliver(failed));
        }
    }
}

/// A result that another worker's thread delivers to a task of this one.
fn answer(remote: Remote) -> (Waiter, impl Future<Output = Option<i32>>) {
    let (sender, receiver) = futures_channel::oneshot::channel();
    // The task is woken on its own thread: only there does that end the worker's wait.
    let deliver = move |result| {
        remote.run(move |_| {
            // The request's task may have ended with its worker.
            let _ = sender.send(result);
        });
    };
    (Box::new(deliver), receiver.map(|result| result.unwrap_or(Some(libc::EIO))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::{Engine, Pool, Worker};
    use std::cell::RefCell;

    /// Runs a task to its end on a worker.
    fn run<T: Send + 'static>(task: impl AsyncFnOnce(Rc<Reactor>) -> T + Send + 'static) -> T {
        let worker = Worker::new(Engine::Threads, &Pool::default()).expect("a worker");
        let (sender, result) = std::sync::mpsc::channel();
        worker.remote().run(move |reactor| {
            let own = reactor.clone();
            reactor.spawn(async move {
                sender.send(task(own.clone()).await).expect("the test listens");
                own.stop();
            });
        });
        worker.run().expect("the worker ends well");
        result.recv().expect("the task has ended")
    }

    #[test]
    fn many_flushes_succeed() {
        run(async |reactor| {
            let file: OwnedFd = tempfile::tempfile().expect("a file").into();
            let flusher = Arc::new(Flusher::new(Arc::new(file)));
            let results = futures_util::future::join_all((0..20).map(|_| flusher.flush(&reactor))).await;
            assert!(results.iter().all(Result::is_ok));
        });
    }

    #[test]
    fn after_a_failure_no_flush_succeeds() {
        run(async |reactor| {
            // A pipe cannot be flushed.
            let (_reader, writer) = std::io::pipe().expect("a pipe");
            let mut flusher = Arc::new(Flusher::new(Arc::new(writer.into())));
            assert!(flusher.flush(&reactor).await.is_err());
            // The same on a file that can be.
            let file: OwnedFd = tempfile::tempfile().expect("a file").into();
            Arc::get_mut(&mut flusher).expect("it is idle").file = Arc::new(file);
            let error = flusher.flush(&reactor).await.expect_err("it has failed before");
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        });
    }

    #[test]
    fn a_flush_that_comes_during_one_waits_for_the_next() {
        run(async |reactor| {
            let file: OwnedFd = tempfile::tempfile().expect("a file").into();
            let flusher = Arc::new(Flusher::new(Arc::new(file)));
            let order = RefCell::new(Vec::new());
            let flush = async |name| {
                flusher.flush(&reactor).await.expect("a file can be flushed");
                order.borrow_mut().push(name);
            };
            let late = async {
                // Not before the first call has taken its waiters.
                while !flusher.state.lock().expect("no panic").waiting.is_empty() {
                    reactor.sleep(std::time::Duration::ZERO).await;
                }
                flush("late").await;
            };
            futures_util::future::join(flush("first"), late).await;
            assert_eq!(*order.borrow(), ["first", "late"]);
            assert!(!flusher.state.lock().expect("no panic").is_running);
        });
    }
}
