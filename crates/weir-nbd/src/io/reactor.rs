//! One worker: tasks on one thread, which wait for operations, alarms and errands.

use super::driver::Driver;
use super::inbox::Inbox;
use super::operation::Operation;
use super::pool::Pool;
use futures_executor::LocalSpawner;
use futures_util::task::LocalSpawnExt;
use slab::Slab;
use std::any::Any;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A worker's own side: it starts operations, tasks and alarms.
pub struct Reactor {
    driver: RefCell<Box<dyn Driver>>,
    operations: RefCell<Slab<State>>,
    alarms: RefCell<BTreeMap<(Instant, u64), Action>>,
    next_alarm: Cell<u64>,
    spawner: LocalSpawner,
    tasks: Cell<usize>,
    stopping: Cell<bool>,
    remote: Remote,
    pool: Pool,
}

/// What an alarm does.
type Action = Box<dyn FnOnce()>;

/// How far an operation is.
enum State {
    Waiting(Option<Waker>),
    Done(i32),
    /// No task waits for it any more. What it uses is kept until it is done.
    Abandoned {
        _uses: Box<dyn Any>,
    },
}

/// What a worker is to do, on its own thread.
type Errand = Box<dyn FnOnce(&Rc<Reactor>) + Send>;

/// A worker, for other threads; clones reach the same one.
#[derive(Clone)]
pub struct Remote(Arc<Inbox<Errand>>);

impl Remote {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Inbox::new()?)))
    }

    /// Has the worker run `errand` soon. A worker that has ended runs nothing any more.
    pub fn run(&self, errand: impl FnOnce(&Rc<Reactor>) + Send + 'static) {
        self.0.leave(Box::new(errand));
    }
}

impl Reactor {
    /// The reactor of a worker that starts tasks by `spawner`, and that `remote` reaches.
    pub(super) fn new(driver: Box<dyn Driver>, spawner: LocalSpawner, remote: Remote, pool: Pool) -> Rc<Self> {
        Rc::new(Self {
            driver: RefCell::new(driver),
            operations: RefCell::default(),
            alarms: RefCell::default(),
            next_alarm: Cell::new(0),
            spawner,
            tasks: Cell::new(0),
            stopping: Cell::new(false),
            remote,
            pool,
        })
    }

    /// Starts `operation`, which uses memory and descriptors that `uses` owns.
    ///
    /// # Safety
    /// All that the operation names is valid, used by nothing else (descriptors may be shared) and at the same address
    /// as long as `uses` is not dropped, also when it moves.
    pub(super) unsafe fn start<T: Unpin + 'static>(self: &Rc<Self>, operation: Operation, uses: T) -> Pending<T> {
        let key = self.operations.borrow_mut().insert(State::Waiting(None));
        // SAFETY: `uses` is held by `Pending`, or by its entry in `operations`, until the result has been delivered.
        let started = unsafe { self.driver.borrow_mut().start(key, operation) };
        if let Err(why) = started {
            self.complete(key, -why.raw_os_error().unwrap_or(libc::EIO));
        }
        Pending { reactor: self.clone(), key, uses: Some(uses) }
    }

    /// Has an operation on a socket end early.
    pub(super) fn cancel(&self, key: usize) {
        if let Err(why) = self.driver.borrow_mut().cancel(key) {
            tracing::error!("cancelling an operation: {why}");
        }
    }

    /// Delivers an operation's result: the driver's, or of a thread of the pool.
    pub(super) fn complete(&self, key: usize, result: i32) {
        let mut operations = self.operations.borrow_mut();
        match std::mem::replace(&mut operations[key], State::Done(result)) {
            State::Waiting(waker) => {
                drop(operations);
                waker.into_iter().for_each(Waker::wake);
            }
            State::Abandoned { .. } => drop(operations.remove(key)),
            State::Done(_) => unreachable!("an operation has one result"),
        }
    }

    /// Has a thread of the pool run `work`, which may block.
    pub async fn blocking<T: Send + 'static>(self: &Rc<Self>, work: impl FnOnce() -> T + Send + 'static) -> T {
        let result = Arc::new(Mutex::new(None));
        let key = self.operations.borrow_mut().insert(State::Waiting(None));
        let (slot, remote) = (result.clone(), self.remote.clone());
        self.pool.run(Box::new(move || {
            let value = work();
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            remote.run(move |reactor| reactor.complete(key, 0));
        }));
        let _ = Pending { reactor: self.clone(), key, uses: Some(()) }.await;
        let value = result.lock().unwrap_or_else(PoisonError::into_inner).take();
        value.expect("the job has set its result before it completed")
    }

    /// Starts a task. The worker does not end before it.
    pub fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        self.tasks.set(self.tasks.get() + 1);
        let reactor = self.clone();
        let counted = async move {
            task.await;
            reactor.tasks.set(reactor.tasks.get() - 1);
        };
        self.spawner.spawn_local(counted).expect("the pool lives as long as its worker");
    }

    /// Has `action` run after `delay`, unless the alarm is dropped before.
    pub fn alarm(self: &Rc<Self>, delay: Duration, action: impl FnOnce() + 'static) -> Alarm {
        let number = self.next_alarm.replace(self.next_alarm.get() + 1);
        let at = (Instant::now() + delay, number);
        self.alarms.borrow_mut().insert(at, Box::new(action));
        Alarm { reactor: self.clone(), at }
    }

    /// Waits.
    pub async fn sleep(self: &Rc<Self>, delay: Duration) {
        let state = Rc::new((Cell::new(false), RefCell::new(None::<Waker>)));
        let rung = state.clone();
        let _alarm = self.alarm(delay, move || {
            rung.0.set(true);
            rung.1.take().into_iter().for_each(Waker::wake);
        });
        std::future::poll_fn(|cx| {
            state.1.replace(Some(cx.waker().clone()));
            if state.0.get() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What does operations, for a call at a time.
    pub(super) fn driver(&self) -> RefMut<'_, Box<dyn Driver>> {
        self.driver.borrow_mut()
    }

    /// The way to this worker for other threads.
    pub fn remote(&self) -> Remote {
        self.remote.clone()
    }

    /// The worker ends when its last task has.
    pub fn stop(&self) {
        self.stopping.set(true);
    }

    /// The worker has been stopped, and ends with its last task.
    pub fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// The worker has been stopped and has no task left.
    pub(super) fn has_ended(&self) -> bool {
        self.stopping.get() && self.tasks.get() == 0
    }

    /// Runs what other threads send, as long as the worker lives.
    pub(super) async fn run_errands(self: Rc<Self>) {
        loop {
            for errand in self.remote.0.take() {
                errand(&self);
            }
            let mut count = Box::new([0u8; 8]);
            let operation = Operation::ReadEvent { event: self.remote.0.event(), into: count.as_mut_ptr() };
            // SAFETY: the event is open as long as the reactor; the count lies in a box, which goes along.
            let (read, _) = unsafe { self.start(operation, count) }.await;
            match read {
                Err(why) if why.kind() != io::ErrorKind::Interrupted => {
                    return tracing::error!("reading a worker's event: {why}");
                }
                _ => {}
            }
        }
    }

    /// Waits until something is done or an alarm is due, and delivers it.
    pub(super) fn turn(&self, done: &mut Vec<(usize, i32)>) -> io::Result<()> {
        let timeout = self.until_next_alarm();
        self.driver.borrow_mut().wait(timeout, done)?;
        for (key, result) in done.drain(..) {
            self.complete(key, result);
        }
        self.ring_alarms();
        Ok(())
    }

    fn until_next_alarm(&self) -> Option<Duration> {
        let alarms = self.alarms.borrow();
        alarms.first_key_value().map(|((at, _), _)| at.saturating_duration_since(Instant::now()))
    }

    fn ring_alarms(&self) {
        if self.alarms.borrow().is_empty() {
            return;
        }
        let now = Instant::now();
        loop {
            let mut alarms = self.alarms.borrow_mut();
            let Some(first) = alarms.first_entry().filter(|first| first.key().0 <= now) else { return };
            let action = first.remove();
            drop(alarms);
            action();
        }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        // What is still under way may use its memory later: it is leaked. Only a failed worker comes here with any but
        // the eight bytes of its event.
        std::mem::forget(self.operations.take());
    }
}

/// An alarm that has been set.
pub struct Alarm {
    reactor: Rc<Reactor>,
    at: (Instant, u64),
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.reactor.alarms.borrow_mut().remove(&self.at);
    }
}

/// An operation under way. It ends with its result, and with what it used.
pub(super) struct Pending<T: Unpin + 'static> {
    reactor: Rc<Reactor>,
    key: usize,
    /// `None` when the result has been taken.
    uses: Option<T>,
}

impl<T: Unpin + 'static> Pending<T> {
    pub(super) fn key(&self) -> usize {
        self.key
    }
}

impl<T: Unpin + 'static> Future for Pending<T> {
    type Output = (io::Result<usize>, T);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let reactor = self.reactor.clone();
        let mut operations = reactor.operations.borrow_mut();
        match &mut operations[self.key] {
            State::Done(result) => {
                let result = *result;
                operations.remove(self.key);
                let uses = self.uses.take().expect("a future is not polled after its end");
                let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                Poll::Ready((result, uses))
            }
            State::Waiting(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            State::Abandoned { .. } => unreachable!("only a dropped future abandons its operation"),
        }
    }
}

impl<T: Unpin + 'static> Drop for Pending<T> {
    fn drop(&mut self) {
        let Some(uses) = self.uses.take() else { return };
        let mut operations = self.reactor.operations.borrow_mut();
        if matches!(operations[self.key], State::Done(_)) {
            operations.remove(self.key);
        } else {
            operations[self.key] = State::Abandoned { _uses: Box::new(uses) };
        }
    }
}
