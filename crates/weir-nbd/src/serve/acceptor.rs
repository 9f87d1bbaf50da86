//! Accepting clients, and handing each to the worker that has fewest.

use super::workers::Seat;
use crate::session::{Context, Guest, Home};
use rustix::net::{SocketFlags, accept_with};
use std::cell::Cell;
use std::io::{Error, Result};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Time until the next try when there are no descriptors or no memory left, or for another reason.
const PAUSE: Duration = Duration::from_millis(100);

/// The workers that get clients, and how many there may be.
pub struct Welcome {
    pub context: Arc<Context>,
    pub seats: Vec<Seat>,
    pub max_connections: usize,
    /// The last client was refused, which is told once until there is room again.
    pub is_full: Cell<bool>,
}

/// Accepts from a listening socket for as long as it works.
pub async fn accept(listener: OwnedFd, welcome: Rc<Welcome>) {
    if let Err(why) = accept_all(listener, &welcome).await {
        tracing::error!("a listening socket failed: {why}");
    }
}

async fn accept_all(listener: OwnedFd, welcome: &Welcome) -> Result<()> {
    rustix::io::ioctl_fionbio(&listener, true)?;
    // SAFETY: the descriptor is owned, and one and the same as long as it is registered.
    let listener = unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) }?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        match listener.async_io(Interest::READABLE, |listener| Ok(accept_with(listener, flags)?)).await {
            Ok(socket) => {
                if let Some(guest) = Guest::admit(&welcome.context, welcome.max_connections) {
                    welcome.is_full.set(false);
                    welcome.seat(socket, guest);
                } else if !welcome.is_full.replace(true) {
                    tracing::warn!("{} clients are connected: more are refused", welcome.max_connections);
                }
            }
            // Of this one client, which has gone again.
            Err(why) if is_of_client(&why) => {}
            Err(why) if is_of_socket(&why) => return Err(why),
            // Most often no descriptors or no memory are left. What it is may pass, and a closed listener would stay so.
            Err(why) => {
                if !welcome.is_full.replace(true) {
                    tracing::warn!("no more clients can be accepted for now: {why}");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Welcome {
    fn seat(&self, socket: OwnedFd, guest: Guest) {
        let seat = self.seats.iter().min_by_key(|seat| seat.load.load(Relaxed)).expect("there is a worker");
        let load = seat.load.clone();
        load.fetch_add(1, Relaxed);
        seat.remote.run(move || Home::welcome(socket, guest, load));
    }
}

/// The descriptor is no socket that listens, and never will be.
fn is_of_socket(why: &Error) -> bool {
    matches!(why.raw_os_error(), Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK))
}

/// Network errors of a connection that was waiting, as `accept` reports them; and interruptions.
fn is_of_client(why: &Error) -> bool {
    use libc::{EAGAIN, ECONNABORTED, EHOSTDOWN, EHOSTUNREACH, EINTR, ENETDOWN, ENETUNREACH, ENONET, ENOPROTOOPT};
    use libc::{EOPNOTSUPP, EPERM, EPROTO};
    let local = [EINTR, EAGAIN, ECONNABORTED, EPROTO, ENOPROTOOPT, EOPNOTSUPP, EPERM];
    let network = [ENETDOWN, EHOSTDOWN, ENONET, EHOSTUNREACH, ENETUNREACH];
    why.raw_os_error().is_some_and(|error| local.contains(&error) || network.contains(&error))
}
