//! The control socket: each connection is sent a report, as one line of JSON.

use super::report::Reporter;
use super::settings::Control;
use crate::base::Failure;
use crate::session::Context;
use crate::transport::control_socket;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

/// Time for a reader of a report.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the socket and serves it on a thread of its own. The socket's file is removed when what is returned is
/// dropped.
pub fn open(
    control: &Control,
    context: Arc<Context>,
    reporter: Reporter,
) -> Result<Option<impl Send + 'static>, Failure> {
    let (listener, file) = match control_socket(&control.path) {
        Ok(opened) => opened,
        Err(why) if control.is_chosen => return Err(why),
        Err(why) => {
            tracing::warn!("'weir-nbd stat' will not find this server: {why} (--control PATH)");
            return Ok(None);
        }
    };
    let thread = std::thread::Builder::new().name("weir-nbd control".into()).stack_size(256 << 10);
    let work = move || serve(&listener, &context, &reporter);
    thread.spawn(work).map_err(Failure::because("the thread of the control socket"))?;
    Ok(Some(file))
}

fn serve(listener: &UnixListener, context: &Context, reporter: &Reporter) {
    loop {
        let sent = listener.accept().and_then(|(socket, _)| send(socket, context, reporter));
        if let Err(why) = sent {
            tracing::debug!("control socket: {why}");
            // Out of descriptors, for example: not again at once.
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn send(mut socket: UnixStream, context: &Context, reporter: &Reporter) -> std::io::Result<()> {
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(&reporter.report(context))?;
    line.push(b'\n');
    socket.write_all(&line)
}
