//! How long an API server waits for an answer: 10,000 requests over TLS on one HTTP/2 connection, as it keeps it, one after
//! the other and by 16 at once. Times are of the client, in this process and on the same CPUs.
//!
//!     cargo run --release -p weir-webhook --example latency

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{Webhook, body, pod, post, review};

const REQUESTS: usize = 10_000;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let webhook = Webhook::start().await;
    let request = review(&pod()).to_string();
    println!("a request is {} bytes", request.len());
    for at_once in [1, 16] {
        let client = webhook.client().await;
        let workers: Vec<_> = (0..at_once)
            .map(|_| {
                let (mut client, request) = (client.clone(), request.clone());
                tokio::spawn(async move {
                    let mut times = Vec::new();
                    for _ in 0..REQUESTS / at_once {
                        let began = Instant::now();
                        let answer = client.send_request(post("/mutate/pod", request.clone())).await.unwrap();
                        assert!(!body(answer).await.is_empty());
                        times.push(began.elapsed());
                    }
                    times
                })
            })
            .collect();
        let mut times: Vec<Duration> = Vec::new();
        for worker in workers {
            times.extend(worker.await.unwrap());
        }
        times.sort();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!(
            "{at_once:2} at once: p50 {:?}, p99 {:?}, p99.9 {:?}, longest {:?} of {}",
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
            times.len()
        );
    }
}
