//! See the library of this package.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use clap::Parser;
use kube::Client;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use weir_webhook::certificates::files::{self, Files};
use weir_webhook::certificates::kubernetes::Objects;
use weir_webhook::certificates::{Served, rotation};
use weir_webhook::command_line::{CertificateOptions, Options};
use weir_webhook::events::Events;
use weir_webhook::metrics::Metrics;
use weir_webhook::serve::admission::Admission;
use weir_webhook::serve::connections::serve;
use weir_webhook::serve::observe::Observe;
use weir_webhook::serve::room::Room;

#[tokio::main(worker_threads = 2)]
async fn main() {
    if let Err(error) = run(Options::parse()).await {
        eprintln!("weir-webhook: {error:#}");
        std::process::exit(1);
    }
}

/// Listens on an address; `[::]` is every address, of IPv4 too, and that of a machine without IPv6.
async fn bind(address: SocketAddr) -> Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.with_context(|| format!("cannot listen on {address}"))
}

async fn run(options: Options) -> Result<()> {
    let (metrics, served) = (Arc::new(Metrics::default()), Arc::new(Served::default()));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (admission_listener, observe_listener) = (bind(options.listen).await?, bind(options.observe).await?);
    let client = Client::try_default().await.context("there is no way to an API server");
    if let Err(error) = &client {
        eprintln!("weir-webhook: no events: {error:#}");
    }
    let events = client.as_ref().ok().map(|client| Events::start(client.clone(), metrics.clone()));
    renew(&options.certificates, client, served.clone())?;

    let (library, room) = (options.library.library(), Room::default());
    let admission = Arc::new(Admission { library, metrics: metrics.clone(), events, room });
    let observe = Arc::new(Observe { metrics, served: served.clone(), ending: AtomicBool::new(false) });
    let (stop, stopped) = watch::channel(false);
    let until = |mut stopped: watch::Receiver<bool>| async move { drop(stopped.wait_for(|stopped| *stopped).await) };
    let admitting = tokio::spawn(serve(admission_listener, Some(served.tls()?), admission, until(stopped.clone())));
    let observing = tokio::spawn(serve(observe_listener, None, observe.clone(), until(stopped)));
    eprintln!("weir-webhook: listening on {}, and on {} for probes", options.listen, options.observe);

    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    observe.ending.store(true, Ordering::Relaxed);
    eprintln!("weir-webhook: ending in {} s", options.drain.as_secs());
    // Again: at once.
    tokio::select! { () = tokio::time::sleep(options.drain) => {}, _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    stop.send_replace(true);
    admitting.await?;
    observing.await?;
    Ok(())
}

/// Starts what keeps certificates new.
fn renew(options: &CertificateOptions, client: Result<Client>, served: Arc<Served>) -> Result<()> {
    match (&options.certificates, &options.secret) {
        (Some(folder), _) => drop(tokio::spawn(files::keep(Files::new(folder.clone()), served))),
        (None, Some(secret)) => {
            let objects = Objects::new(client?, &options.namespace, secret, &options.configuration);
            tokio::spawn(rotation::keep(objects, served, options.names()));
        }
        (None, None) => unreachable!("the command line wants one of the two"),
    }
    Ok(())
}
