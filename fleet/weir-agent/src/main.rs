//! The program: see README.md.

use anyhow::{Context, Result};
use clap::Parser;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};
use weir_agent::agent::Agent;
use weir_agent::machine::rights;
use weir_agent::once;
use weir_agent::options::Options;
use weir_cli::metrics_server;

/// The API may say nothing for so long. A watch in which nothing happens is ended by the server after 290 s.
const SILENCE: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let options = Options::parse();
    let done = if options.once { print(&options) } else { run(options) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("weir-agent: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn print(options: &Options) -> Result<()> {
    std::io::stdout().write_all(once::text(options)?.as_bytes()).context("cannot write to standard output")
}

fn run(options: Options) -> Result<()> {
    weir_cli::use_all_descriptors();
    for why in rights::missing(options.steers()) {
        eprintln!("weir-agent: {why}");
    }
    // One thread, and one more each while it looks and while metrics are written: the agent has little to do.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(serve(options));
    // Processes that were just asked for memory are not waited for.
    runtime.shutdown_background();
    done
}

/// Listens at an address; `[::]` is every address, of IPv4 too, and that of a machine without IPv6.
async fn bind(address: SocketAddr) -> Result<TcpListener> {
    let bound = match TcpListener::bind(address).await {
        Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        bound => bound,
    };
    bound.with_context(|| format!("cannot listen at {address}"))
}

/// An answer that does not come, as its server is gone, ends with an error: else a list would be waited for for ever.
async fn client() -> Result<kube::Client> {
    let mut config = kube::Config::infer().await?;
    (config.read_timeout, config.reset_reader_on_write) = (Some(SILENCE), true);
    Ok(kube::Client::try_from(config)?)
}

/// Looks until a signal ends it. What was asked of processes ends with this process.
async fn serve(options: Options) -> Result<()> {
    let (mut terminated, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let client = match &options.node {
        Some(_) => Some(client().await.context("no API to go by: without --node none is asked")?),
        None => None,
    };
    let listener = bind(options.listen).await?;
    eprintln!("weir-agent: metrics at http://{}/metrics", listener.local_addr()?);
    let due = interval(options.period);
    let mut agent = Agent::new(options, client)?;
    let (metrics, accept) = (agent.metrics.clone(), async || listener.accept().await.map(|(stream, _)| stream));
    let mut open = metrics_server::Open::new();
    tokio::select! {
        failed = look(&mut agent, due) => failed,
        never = metrics_server::serve(accept, move || Some(metrics.text()), &mut open) => match never {},
        _ = terminated.recv() => Ok(()),
        _ = interrupted.recv() => Ok(()),
    }
}

/// Looks for ever, or until it cannot.
async fn look(agent: &mut Agent, mut due: Interval) -> Result<()> {
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        agent.round().await?;
    }
}
