//! The control socket: each connection is sent a report, as one line of JSON.

use super::report::Reporter;
use super::settings::Control;
use crate::base::Failure;
use crate::session::Context;
use crate::transport::control_socket;
use std::io::Result;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

/// Time for a reader of a report.
const PATIENCE: Duration = Duration::from_secs(5);

/// A bound socket, and its file, which is removed when that is dropped.
type Bound<F> = (std::os::unix::net::UnixListener, F);

/// Binds the socket. That may hang: one that is there is asked whether somebody listens.
pub fn bind(control: &Control) -> std::result::Result<Option<Bound<impl Send + use<>>>, Failure> {
    match control_socket(&control.path) {
        Ok(bound) => Ok(Some(bound)),
        Err(why) if control.is_chosen => Err(why),
        Err(why) => {
            tracing::warn!("'weir-nbd stat' will not find this server: {why} (--control PATH)");
            Ok(None)
        }
    }
}

/// Serves the socket. Returns what keeps its file.
pub fn serve<F>(
    (listener, file): Bound<F>,
    context: Arc<Context>,
    reporter: Reporter,
) -> std::result::Result<F, Failure> {
    let open = || {
        listener.set_nonblocking(true)?;
        UnixListener::from_std(listener)
    };
    let listener = open().map_err(Failure::because("the control socket"))?;
    tokio::task::spawn_local(async move {
        loop {
            let sent = async { send(listener.accept().await?.0, &context, &reporter).await };
            if let Err(why) = sent.await {
                tracing::debug!("control socket: {why}");
                // Out of descriptors, for example: not again at once.
                sleep(Duration::from_millis(100)).await;
            }
        }
    });
    Ok(file)
}

async fn send(mut socket: UnixStream, context: &Context, reporter: &Reporter) -> Result<()> {
    let mut line = serde_json::to_vec(&reporter.report(context))?;
    line.push(b'\n');
    timeout(PATIENCE, socket.write_all(&line)).await?
}
