//! The clients of one worker, each from its greeting to its end.

use super::context::{Context, Guest};
use super::handshake::{Agreed, Handshake};
use super::transmission::Session;
use crate::base::shares::Shares;
use crate::buffers::ConnectionPool;
use crate::io::spawn;
use crate::transport::{Connection, Input, Reader, Writer};
use rustix::net::Shutdown;
use slab::Slab;
use std::cell::{OnceCell, RefCell};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::time::timeout;
use tracing::{debug, info};

thread_local! {
    static HOME: OnceCell<Rc<Home>> = const { OnceCell::new() };
}

/// One worker's sessions.
pub struct Home {
    context: Arc<Context>,
    memory: Rc<Shares>,
    connections: RefCell<Slab<Rc<Connection>>>,
}

impl Home {
    /// Makes this thread, a worker's, the home of sessions.
    pub fn settle(context: Arc<Context>) {
        let memory = Shares::new(context.limits.worker_memory);
        let home = Rc::new(Self { context, memory, connections: RefCell::default() });
        HOME.with(|cell| drop(cell.set(home)));
    }

    /// Starts the session of a client on this thread; its socket does not block. `load` counts the worker's clients.
    pub fn welcome(socket: OwnedFd, guest: Guest, load: Arc<AtomicUsize>) {
        let Some(home) = HOME.with(|cell| cell.get().cloned()) else { return };
        spawn(async move {
            match Connection::open(socket, home.context.limits.patience) {
                Ok((connection, reader, writer)) => {
                    let place = home.connections.borrow_mut().insert(connection.clone());
                    // A stop that came before this task has not found it among the others.
                    if home.context.is_stopping() {
                        connection.stop();
                    }
                    home.serve(&connection, reader, writer).await;
                    connection.socket.shut_down(Shutdown::Both);
                    home.connections.borrow_mut().remove(place);
                }
                Err(why) => info!("a client cannot be served: {why}"),
            }
            load.fetch_sub(1, Relaxed);
            drop(guest);
        });
    }

    /// Serves a client until it has gone.
    async fn serve(&self, connection: &Rc<Connection>, reader: Reader, writer: Writer) {
        let (peer, context) = (&connection.peer, &self.context);
        debug!("{peer}: connected");
        let shaken = async {
            let input = Input::new(connection.clone(), reader)?;
            // In a box of its own: an idle session does not keep the room that its handshake needed.
            let handshake = Box::pin(Handshake::new(connection, input, writer, context).run());
            timeout(context.limits.handshake, handshake).await?
        };
        let agreed = match shaken.await {
            Ok(Some(agreed)) => agreed,
            Ok(None) => return debug!("{peer}: left in the handshake"),
            Err(why) => {
                context.statistics.failed_handshakes.fetch_add(1, Relaxed);
                return info!("{peer}: the handshake failed: {why}");
            }
        };
        connection.set_terms();
        let Agreed { export, terms, input, writer } = agreed;
        let name = &export.definition.name;
        let tls = if connection.has_tls() { ", TLS" } else { "" };
        info!("{peer}: uses export '{name}' ({:?} replies{tls})", terms.style);
        export.counters.connections.fetch_add(1, Relaxed);
        let pool = ConnectionPool::new(&context.pools, name);
        let member = self.memory.join(connection.clone());
        let session =
            Session::new(connection, export.clone(), terms, writer, context.limits.client_memory, member, pool);
        let result = session.run(input).await;
        export.counters.connections.fetch_sub(1, Relaxed);
        match result {
            _ if connection.has_stalled() => {
                info!("{peer}: disconnected, as it has not read or written, or too slowly")
            }
            Ok(()) => info!("{peer}: left export '{name}'"),
            // Its socket is closed for what it sends, so that no end of its TLS comes.
            Err(why) if context.is_stopping() && why.kind() == ErrorKind::UnexpectedEof => {
                info!("{peer}: disconnected, as the server stops")
            }
            Err(why) => info!("{peer}: lost: {why}"),
        }
    }

    /// Lets this thread's sessions end: they serve what has been received, and then find their clients' ends. Handshakes end
    /// as they are.
    pub fn stop() {
        Self::for_each(Connection::stop);
    }

    /// Ends this thread's sessions, whatever they are at.
    pub fn abort() {
        Self::for_each(|connection| connection.socket.shut_down(Shutdown::Both));
    }

    fn for_each(what: impl Fn(&Connection)) {
        let Some(home) = HOME.with(|cell| cell.get().cloned()) else { return };
        home.connections.borrow().iter().for_each(|(_, connection)| what(connection));
    }
}
