//! The way to a worker from other threads.

use tokio::sync::mpsc::UnboundedSender;

/// Work that a worker is to do, on its own thread.
pub(super) type Errand = Box<dyn FnOnce() + Send>;

/// The way to a worker for other threads; clones reach the same one.
#[derive(Clone)]
pub struct Remote(UnboundedSender<Errand>);

impl Remote {
    pub(super) fn new(sender: UnboundedSender<Errand>) -> Self {
        Self(sender)
    }

    /// Has the worker run `errand` soon. A worker that has ended runs nothing any more.
    pub fn run(&self, errand: impl FnOnce() + Send + 'static) {
        let _ = self.0.send(Box::new(errand));
    }
}
