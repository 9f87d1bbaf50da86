//! Certificates of one's own, under a clock of the test's.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Result, bail};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use time::{Duration, OffsetDateTime};
use weir_webhook::certificates::Served;
use weir_webhook::certificates::issue::{Facts, Issued};
use weir_webhook::certificates::rotation::{Kept, Store, Written, look, renewed};

/// A Secret with its version, and what API servers trust.
#[derive(Default, Clone)]
struct Cluster(Arc<State>);

#[derive(Default)]
struct State {
    secret: Mutex<(Kept, u64)>,
    bundle: Mutex<String>,
    away: AtomicBool,
    writes: Mutex<u32>,
}

impl Store for Cluster {
    type Version = u64;

    async fn read(&self) -> Result<(Kept, u64)> {
        if self.0.away.load(Ordering::Relaxed) {
            bail!("out of reach");
        }
        let read = self.0.secret.lock().unwrap().clone();
        tokio::task::yield_now().await; // others read the same
        Ok(read)
    }

    async fn write(&self, kept: &Kept, version: u64) -> Result<Written> {
        let mut secret = self.0.secret.lock().unwrap();
        if secret.1 != version {
            return Ok(Written::TooLate);
        }
        *secret = (kept.clone(), version + 1);
        *self.0.writes.lock().unwrap() += 1;
        Ok(Written::Yes)
    }

    async fn publish(&self, bundle: &str) -> Result<()> {
        *self.0.bundle.lock().unwrap() = bundle.to_owned();
        Ok(())
    }
}

fn names() -> Vec<String> {
    vec![common::NAME.to_owned(), "127.0.0.1".to_owned()]
}

fn start() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
}

/// Whether someone who trusts the bundle takes the certificate at this time.
fn trusted(bundle: &str, served: &Served, now: OffsetDateTime) -> Result<()> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.unix_timestamp().unsigned_abs()));
    let served = served.current().unwrap();
    verifier.verify_server_cert(&served.cert[0], &[], &ServerName::try_from(common::NAME)?, &[], now)?;
    Ok(())
}

#[tokio::test]
async fn for_long_what_replicas_serve_is_trusted_by_who_heard_late() {
    let cluster = Cluster::default();
    let replicas = [(); 3].map(|()| Served::default());
    let mut heard = String::new(); // the bundle of a step ago
    let mut certificates = std::collections::HashSet::new();
    // Once a day is rarer than any real look.
    for step in 0..520 {
        let now = start() + Duration::days(1) * step;
        for (index, served) in replicas.iter().enumerate() {
            // One replica is stuck four times of five.
            if index != 2 || step % 5 == 0 {
                look(&cluster, served, &names(), now).await.unwrap();
            }
            let bundle = cluster.0.bundle.lock().unwrap().clone();
            trusted(&bundle, served, now).unwrap_or_else(|error| panic!("step {step}, replica {index}: {error}"));
            if step > 0 {
                trusted(&heard, served, now).unwrap_or_else(|error| panic!("step {step}, {index}, late: {error}"));
            }
            certificates.insert(served.current().unwrap().cert[0].clone());
        }
        heard = cluster.0.bundle.lock().unwrap().clone();
        assert!(heard.matches("BEGIN").count() <= 2, "authorities that have ended stay in the bundle");
    }
    // A certificate is served for 20 days, and an authority signs for 244.
    assert_eq!(certificates.len(), 26);
    assert_eq!(*cluster.0.writes.lock().unwrap(), 26 + 2);
}

#[tokio::test]
async fn replicas_that_start_at_once_agree() {
    let cluster = Cluster::default();
    let replicas = [(); 5].map(|()| Arc::new(Served::default()));
    let looks = replicas.clone().map(|served| {
        let cluster = cluster.clone();
        tokio::spawn(async move { look(&cluster, &served, &names(), start()).await })
    });
    for look in looks {
        look.await.unwrap().unwrap();
    }
    let bundle = cluster.0.bundle.lock().unwrap().clone();
    for served in &replicas {
        trusted(&bundle, served, start()).unwrap();
        assert_eq!(served.current().unwrap().cert, replicas[0].current().unwrap().cert);
    }
    assert_eq!(*cluster.0.writes.lock().unwrap(), 1);
}

#[tokio::test]
async fn what_is_served_stays_while_the_api_server_is_away() {
    let (cluster, served) = (Cluster::default(), Served::default());
    look(&cluster, &served, &names(), start()).await.unwrap();
    let before = served.current().unwrap();
    cluster.0.away.store(true, Ordering::Relaxed);
    assert!(look(&cluster, &served, &names(), start() + Duration::days(21)).await.is_err());
    assert_eq!(served.current().unwrap().cert, before.cert);
    cluster.0.away.store(false, Ordering::Relaxed);
    look(&cluster, &served, &names(), start() + Duration::days(21)).await.unwrap();
    assert_ne!(served.current().unwrap().cert, before.cert);
}

#[test]
fn an_authority_is_heard_of_before_it_signs() {
    let first = renewed(&Kept::default(), &names(), start()).unwrap().unwrap();
    let mut kept = first.clone();
    // Both are due at once, but neither is over.
    let serving_late = weir_webhook::certificates::issue::serving(
        &Issued { certificate: first.bundle.clone(), key: first.authority_key.clone() },
        &names(),
        start() + Duration::days(224),
    );
    kept.serving = serving_late.unwrap();
    let now = start() + Duration::days(245);
    let next = renewed(&kept, &names(), now).unwrap().unwrap();
    assert_eq!(next.serving, kept.serving);
    assert!(next.bundle.ends_with(&first.bundle) && next.bundle.len() > first.bundle.len());
    assert_eq!(renewed(&next, &names(), now + Duration::minutes(9)).unwrap(), None);
    let later = renewed(&next, &names(), now + Duration::minutes(10)).unwrap().unwrap();
    assert_ne!(later.serving, kept.serving);
    assert_eq!(later.bundle, next.bundle);
}

#[test]
fn what_cannot_be_used_is_made_anew() {
    let good = renewed(&Kept::default(), &names(), start()).unwrap().unwrap();
    assert_eq!(renewed(&good, &names(), start()).unwrap(), None);
    assert_eq!(renewed(&good, &names(), start() + Duration::days(19)).unwrap(), None);
    let usable = |kept: &Kept, now| {
        let served = Served::default();
        served.serve(&kept.serving.certificate, &kept.serving.key).unwrap();
        trusted(&kept.bundle, &served, now).unwrap();
    };
    let other = renewed(&Kept::default(), &names(), start()).unwrap().unwrap();
    for broken in [
        Kept { bundle: String::new(), ..good.clone() },
        Kept { bundle: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(), ..good.clone() },
        Kept { serving: Issued::default(), ..good.clone() },
        Kept { serving: Issued { key: other.serving.key.clone(), ..good.serving.clone() }, ..good.clone() },
    ] {
        usable(&renewed(&broken, &names(), start()).unwrap().unwrap(), start());
    }
    // A key that signs nothing is found when it is to sign.
    let keyless = Kept { authority_key: String::new(), ..good.clone() };
    usable(&renewed(&keyless, &names(), start() + Duration::days(20)).unwrap().unwrap(), start() + Duration::days(20));
    // All replicas were away until the end of the certificate, of the authority's youth, of the authority.
    for days in [31, 300, 366, 4000] {
        let now = start() + Duration::days(days);
        usable(&renewed(&good, &names(), now).unwrap().unwrap(), now);
    }
    // A clock that was ahead has made them: API servers take them in a day.
    assert_eq!(renewed(&good, &names(), start() - Duration::minutes(4)).unwrap(), None);
    let now = start() - Duration::days(1);
    usable(&renewed(&good, &names(), now).unwrap().unwrap(), now);
    // The Service has another name.
    let renamed = renewed(&good, &[common::NAME.to_owned()], start()).unwrap().unwrap();
    assert_eq!(renamed.bundle, good.bundle);
    assert_eq!(Facts::read(&renamed.serving.certificate).unwrap().names, [common::NAME]);
}

#[test]
fn an_address_of_any_form_is_one_name() {
    for address in ["2001:DB8:0:0:0:0:0:1", "::ffff:10.0.0.1", "10.0.0.1"] {
        let names = [common::NAME.to_owned(), address.to_owned()];
        let kept = renewed(&Kept::default(), &names, start()).unwrap().unwrap();
        assert_eq!(renewed(&kept, &names, start()).unwrap(), None, "{address}");
    }
}
