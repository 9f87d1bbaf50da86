//! Accepting clients, and handing each to the worker that has fewest.

use super::workers::Seat;
use crate::io::{Acceptor, Reactor};
use crate::session::{Context, Guest, Home};
use std::cell::{Cell, RefCell};
use std::io::Error;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Time until the next try when there are no descriptors or no memory left.
const PAUSE: Duration = Duration::from_millis(100);

thread_local! {
    static ACCEPTORS: RefCell<Vec<Rc<Acceptor>>> = const { RefCell::new(Vec::new()) };
}

/// The workers that get clients, and how many there may be.
pub struct Welcome {
    pub context: Arc<Context>,
    pub seats: Vec<Seat>,
    pub max_connections: usize,
}

/// Starts to accept from all `listeners`, on this thread.
pub fn start(reactor: &Rc<Reactor>, listeners: Vec<OwnedFd>, welcome: Welcome) {
    let (welcome, is_full) = (Rc::new(welcome), Rc::new(Cell::new(false)));
    for listener in listeners {
        let acceptor = Acceptor::new(listener);
        ACCEPTORS.with_borrow_mut(|all| all.push(acceptor.clone()));
        reactor.spawn(accept(reactor.clone(), acceptor, welcome.clone(), is_full.clone()));
    }
}

/// Accepts no more.
pub fn close(reactor: &Rc<Reactor>) {
    ACCEPTORS.with_borrow_mut(|all| all.drain(..).for_each(|acceptor| acceptor.close(reactor)));
}

/// Accepts until it is closed. `is_full`: the last client was refused, which is told once until there is room again.
async fn accept(reactor: Rc<Reactor>, acceptor: Rc<Acceptor>, welcome: Rc<Welcome>, is_full: Rc<Cell<bool>>) {
    loop {
        match reactor.accept(&acceptor).await {
            Ok(socket) => {
                if let Some(guest) = Guest::admit(&welcome.context, welcome.max_connections) {
                    is_full.set(false);
                    seat(&welcome, socket, guest);
                } else if !is_full.replace(true) {
                    tracing::warn!("{} clients are connected: more are refused", welcome.max_connections);
                }
            }
            Err(why) if why.raw_os_error() == Some(libc::ECANCELED) => return,
            Err(why) if is_exhausted(&why) => {
                if !is_full.replace(true) {
                    tracing::warn!("no more clients can be accepted for now: {why}");
                }
                reactor.sleep(PAUSE).await;
            }
            // Of this one client, which has gone again.
            Err(why) if is_of_client(&why) => {}
            Err(why) => return tracing::error!("a listening socket failed: {why}"),
        }
    }
}

fn seat(welcome: &Welcome, socket: OwnedFd, guest: Guest) {
    let seat = welcome.seats.iter().min_by_key(|seat| seat.load.load(Relaxed)).expect("there is a worker");
    let load = seat.load.clone();
    load.fetch_add(1, Relaxed);
    seat.remote.run(move |reactor| Home::welcome(reactor, socket, guest, load));
}

fn is_exhausted(why: &Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// Network errors of a connection that was waiting, as `accept` reports them; and interruptions.
fn is_of_client(why: &Error) -> bool {
    let errors = [
        libc::EINTR,
        libc::EAGAIN,
        libc::ECONNABORTED,
        libc::ENETDOWN,
        libc::EPROTO,
        libc::ENOPROTOOPT,
        libc::EHOSTDOWN,
        libc::ENONET,
        libc::EHOSTUNREACH,
        libc::EOPNOTSUPP,
        libc::ENETUNREACH,
        libc::EPERM,
    ];
    why.raw_os_error().is_some_and(|error| errors.contains(&error))
}
