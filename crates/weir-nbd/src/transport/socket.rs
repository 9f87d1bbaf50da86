//! A connected socket, TCP or Unix: bytes as they are on the wire.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, getpeername, recv, sendmsg, shutdown, sockopt};
use std::cell::Cell;
use std::io::{IoSlice, Result};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that the socket of a local client is asked to hold. The kernel makes it at most `net.core.wmem_max`, and then doubles
/// it, as it counts its own records too: 1 MiB, a long read. TCP sizes its buffers itself.
const LOCAL_SEND_BUFFER: usize = 512 << 10;

/// A connected socket. Clones are the same.
#[derive(Clone)]
pub struct Socket(Rc<Shared>);

struct Shared {
    socket: AsyncFd<OwnedFd>,
    /// Reads ask the kernel, whether the runtime has heard of something to read or not.
    is_eager: Cell<bool>,
}

impl Socket {
    /// Takes a connected socket that does not block, on the thread of its worker.
    pub fn new(socket: OwnedFd) -> Result<Self> {
        // SAFETY: the descriptor is owned, and one and the same as long as it is registered.
        let socket = unsafe { AsyncFd::register(socket) }?;
        Ok(Self(Rc::new(Shared { socket, is_eager: Cell::new(false) })))
    }

    /// Sets options of the connection, and names the peer.
    pub fn prepare(&self) -> String {
        let socket = self.0.socket.get_ref();
        match getpeername(socket).ok().flatten().and_then(|peer| std::net::SocketAddr::try_from(peer).ok()) {
            Some(peer) => {
                // A reply is sent whole: waiting for more only delays it. The connection works without either option.
                let _ = sockopt::set_tcp_nodelay(socket, true);
                // Finds out about clients that are gone without a word.
                let _ = sockopt::set_socket_keepalive(socket, true);
                peer.to_string()
            }
            None => {
                // The connection works with the system's size too.
                let _ = sockopt::set_socket_send_buffer_size(socket, LOCAL_SEND_BUFFER);
                "a local client".into()
            }
        }
    }

    /// Whether reads ask the kernel at once from now on: it costs a call where nothing is there.
    pub fn set_eager(&self, is_eager: bool) {
        self.0.is_eager.set(is_eager);
    }

    /// No more requests come than have arrived: the client has gone or ended its side, or reading was ended here. It is
    /// known before all of them have been received.
    pub fn has_ended(&self) -> bool {
        let mut looked = [PollFd::new(self.0.socket.get_ref(), PollFlags::RDHUP)];
        // An error, or the connection's end, is told whatever is asked for. A look that failed says nothing.
        poll(&mut looked, Some(&Timespec::default())).is_ok_and(|found| found > 0)
    }

    /// Ends reading, or all of the connection: who waits for it finds its end. One that is not connected any more needs none
    /// of it.
    pub fn shut_down(&self, how: Shutdown) {
        let _ = shutdown(self.0.socket.get_ref(), how);
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        // SAFETY: what is initialised stays so: the kernel only writes bytes.
        let room = unsafe { buffer.unfilled_mut() };
        let wanted = room.len();
        if self.0.is_eager.get() {
            match retry_on_intr(|| recv(&self.0.socket, &mut *room, RecvFlags::empty()).map(|received| received.1)) {
                Err(Errno::AGAIN) => return Poll::Pending,
                received => {
                    let received = received?;
                    // SAFETY: the kernel has written so many bytes.
                    unsafe { buffer.assume_init(received) };
                    buffer.advance(received);
                    return Poll::Ready(Ok(()));
                }
            }
        }
        loop {
            let mut ready = ready!(self.0.socket.poll_read_ready(cx))?;
            let received = ready.try_io(|socket| Ok(recv(socket, &mut *room, RecvFlags::empty())?.1));
            let Ok(received) = received else { continue };
            let received = received?;
            if 0 < received && received < wanted {
                // It was emptied: the next bytes are an event. (The stream's end is one that stays.)
                ready.clear_ready();
            }
            // SAFETY: the kernel has written so many bytes.
            unsafe { buffer.assume_init(received) };
            buffer.advance(received);
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        loop {
            let mut ready = ready!(self.0.socket.poll_write_ready(cx))?;
            let send = |socket: &AsyncFd<OwnedFd>| {
                Ok(sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
            };
            if let Ok(sent) = ready.try_io(send) {
                return Poll::Ready(sent);
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        self.shut_down(Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::testing::run;
    use std::os::unix::net::UnixStream;

    #[test]
    fn an_end_is_seen_before_all_was_received() {
        run(async {
            let pair = || {
                let (own, client) = UnixStream::pair().expect("a pair");
                own.set_nonblocking(true).expect("a socket");
                (Socket::new(own.into()).expect("a runtime"), client)
            };
            let (socket, mut client) = pair();
            assert!(!socket.has_ended());
            std::io::Write::write_all(&mut client, b"request").expect("it has room");
            assert!(!socket.has_ended());
            drop(client);
            assert!(socket.has_ended());
            let (socket, _client) = pair();
            socket.shut_down(Shutdown::Read);
            assert!(socket.has_ended());
        });
    }
}
