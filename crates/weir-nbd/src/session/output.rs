//! Replies on their way to the client. A task with a reply, while no other task sends, sends until there are no more.

use super::memory::Charge;
use crate::io::{MAX_PARTS, Part};
use crate::transport::{Stream, shut_down};
use rustix::net::Shutdown;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// A session's replies.
pub struct Output {
    stream: Rc<Stream>,
    waiting: RefCell<VecDeque<(Vec<Part>, Charge)>>,
    is_sending: Cell<bool>,
    /// The client is not there any more: replies are dropped.
    is_broken: Cell<bool>,
}

impl Output {
    /// The output of `stream`.
    pub fn new(stream: Rc<Stream>) -> Self {
        Self { stream, waiting: RefCell::default(), is_sending: Cell::new(false), is_broken: Cell::new(false) }
    }

    /// Sends a reply, or leaves it to the task that is sending.
    pub async fn send(&self, reply: Vec<Part>, charge: Charge) {
        if self.is_broken.get() {
            return;
        }
        self.waiting.borrow_mut().push_back((reply, charge));
        if self.is_sending.replace(true) {
            return;
        }
        // Requests that came together are done together: their replies are sent by one call.
        yield_once().await;
        loop {
            let (parts, _charges) = self.gather();
            if parts.is_empty() {
                break;
            }
            if self.stream.send(parts).await.is_err() {
                self.is_broken.set(true);
                self.waiting.borrow_mut().clear();
                // The session finds its end.
                shut_down(self.stream.descriptor(), Shutdown::Both);
            }
        }
        self.is_sending.set(false);
    }

    /// As many replies as one call sends.
    fn gather(&self) -> (Vec<Part>, Vec<Charge>) {
        let (mut parts, mut charges) = (Vec::new(), Vec::new());
        let mut waiting = self.waiting.borrow_mut();
        while let Some((reply, _)) = waiting.front() {
            if !parts.is_empty() && parts.len() + reply.len() > MAX_PARTS {
                break;
            }
            let (reply, charge) = waiting.pop_front().expect("the front is there");
            parts.extend(reply);
            charges.push(charge);
        }
        (parts, charges)
    }
}

/// Lets the other tasks that can go on do so first.
async fn yield_once() {
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
