//! Tasks of unit tests.

use crate::io::{Engine, Pool, Reactor, Worker};
use std::rc::Rc;

/// Runs a task to its end on a worker.
pub fn run<T: Send + 'static>(task: impl AsyncFnOnce(Rc<Reactor>) -> T + Send + 'static) -> T {
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
