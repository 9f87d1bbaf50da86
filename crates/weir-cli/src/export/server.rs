//! Serving the figures until a signal ends it.

use super::listen::Listener;
use super::snapshot::{Extent, Snapshot};
use super::text;
use crate::base::failure::Failure;
use crate::base::listen_address::Address;
use crate::base::output;
use crate::metrics_server;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

/// Time that requests have to end after a signal to stop.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves until SIGTERM or SIGINT.
pub fn serve(address: &Address, extent: Extent) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::of_weir(format!("cannot serve: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    runtime.block_on(async {
        let listener = Listener::bind(address).await?;
        run(listener, extent).await.map_err(failed)
    })
}

async fn run(listener: Listener, extent: Extent) -> std::io::Result<()> {
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    output::say(format_args!("weir: metrics at {}\n", listener.address()?));
    let write = move || text::of(Snapshot::take(extent)).ok();
    let mut open = metrics_server::Open::new();
    tokio::select! {
        never = metrics_server::serve(async || listener.accept().await, write, &mut open) => match never {},
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    // What was begun is ended.
    drop(listener);
    let ends = async {
        for (connection, _) in open {
            let _ = connection.await;
        }
    };
    let _ = timeout(FAREWELL, ends).await;
    Ok(())
}
