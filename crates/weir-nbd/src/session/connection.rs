//! One client, from its greeting to its end.

use super::context::Context;
use super::handshake::Handshake;
use super::transmission::Session;
use crate::base::shares::Shares;
use crate::buffers::ConnectionPool;
use crate::transport::{Input, Stream};
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tracing::{debug, info};

/// Serves a client until it has gone.
pub async fn serve(stream: &Rc<Stream>, context: &Arc<Context>, memory: &Rc<Shares>) {
    let peer = stream.peer();
    debug!("{peer}: connected");
    let shaken = async {
        let mut input = Input::new(stream.clone())?;
        let _alarm = stream.watch(context.limits.handshake);
        // In a box of its own: an idle session does not keep the room that its handshake needed.
        let agreed = Box::pin(Handshake::new(stream, &mut input, context).run()).await?;
        Ok::<_, std::io::Error>(agreed.map(|agreed| (agreed, input)))
    };
    let (agreed, input) = match shaken.await {
        Ok(Some(agreed)) => agreed,
        Ok(None) => return debug!("{peer}: left in the handshake"),
        Err(why) => {
            context.statistics.failed_handshakes.fetch_add(1, Relaxed);
            let why = if stream.has_stalled() { ErrorKind::TimedOut.into() } else { why };
            return info!("{peer}: the handshake failed: {why}");
        }
    };
    let export = agreed.export.clone();
    let name = &export.definition.name;
    let tls = if stream.has_tls() { ", TLS" } else { "" };
    info!("{peer}: uses export '{name}' ({:?} replies{tls})", agreed.terms.style);
    export.counters.connect();
    let pool = ConnectionPool::new(&context.pools, name);
    let member = memory.join(stream.clone());
    let session = Session::new(stream.clone(), agreed, context.limits.client_memory, member, pool);
    let result = session.run(input).await;
    export.counters.disconnect();
    match result {
        _ if stream.has_stalled() => info!("{peer}: disconnected, as it has not read or written, or too slowly"),
        Ok(()) => info!("{peer}: left export '{name}'"),
        Err(why) => info!("{peer}: lost: {why}"),
    }
}
