//! An authority and a certificate of one's own: when they are renewed, and how several replicas agree.
//!
//! All of it is in one Secret. Who finds something due renews it there. Of several that do so at once the API server takes
//! one, by the Secret's version; the others read again. A new authority signs nothing until API servers have had time to
//! hear of it; the old one stays in the bundle until it ends. So at no time is a certificate served that nobody trusts.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Result, bail};
use time::{Duration, OffsetDateTime};
use tokio::time::timeout;

use super::Served;
use super::issue::{Facts, Issued, authority, serving};

/// How often the Secret is looked at, and for how long at least a new authority is in the bundle before it signs. The
/// second is many times the first: each replica has repaired the bundle by then.
const LOOK: std::time::Duration = std::time::Duration::from_secs(60);
const SETTLED: Duration = Duration::minutes(10);
/// After something failed.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(5);
/// A look takes no longer: an answer that never comes would end all renewal.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// How often somebody else may be faster in one look.
const RACES: u32 = 8;

/// What the Secret holds, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// All authorities that are trusted, the newest first.
    pub bundle: String,
    /// The key of the newest.
    pub authority_key: String,
    /// What is served.
    pub serving: Issued,
}

/// Whether a write was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It was.
    Yes,
    /// Somebody else wrote since it was read.
    TooLate,
}

/// Where it is kept, and who is told.
pub trait Store: Send + Sync {
    /// What was read, with its version.
    type Version: Send;
    /// Reads it.
    fn read(&self) -> impl Future<Output = Result<(Kept, Self::Version)>> + Send;
    /// Writes it, if it is still of this version.
    fn write(&self, kept: &Kept, version: Self::Version) -> impl Future<Output = Result<Written>> + Send;
    /// Tells API servers whom to trust, unless they know.
    fn publish(&self, bundle: &str) -> impl Future<Output = Result<()>> + Send;
}

/// What is to be kept instead, if anything is due. What cannot be read is due as well.
pub fn renewed(kept: &Kept, names: &[String], now: OffsetDateTime) -> Result<Option<Kept>> {
    let mut next = kept.clone();
    let facts = Facts::read(&kept.bundle).and_then(|newest| Ok((newest, Facts::read(&kept.serving.certificate)?)));
    let usable = Served::default().serve(&kept.serving.certificate, &kept.serving.key).is_ok();
    let Ok((newest, served)) = facts else { return fresh(names, now).map(Some) };
    if !newest.is_valid(now) || !usable {
        return fresh(names, now).map(Some);
    }
    let mut settled = now >= newest.made + SETTLED;
    if newest.is_old(now) {
        let authority = authority(now)?;
        let still = certificates(&kept.bundle).filter(|pem| Facts::read(pem).is_ok_and(|facts| facts.is_valid(now)));
        next.bundle = std::iter::once(authority.certificate.clone()).chain(still).collect();
        next.authority_key = authority.key;
        settled = false;
    }
    // Addresses as they are read from a certificate: an IPv6 address has many forms.
    let as_read = |name: &String| name.parse::<IpAddr>().map_or_else(|_| name.clone(), |address| address.to_string());
    let mut names: Vec<String> = names.iter().map(as_read).collect();
    names.sort();
    if (served.is_old(now) && settled) || !served.is_valid(now) || served.names != names {
        let newest = certificates(&next.bundle).next().unwrap_or_default();
        match serving(&Issued { certificate: newest, key: next.authority_key.clone() }, &names, now) {
            Ok(issued) => next.serving = issued,
            Err(_) => return fresh(&names, now).map(Some), // the authority's key is not one
        }
    }
    Ok((next != *kept).then_some(next))
}

fn fresh(names: &[String], now: OffsetDateTime) -> Result<Kept> {
    let authority = authority(now)?;
    let serving = serving(&authority, names, now)?;
    Ok(Kept { bundle: authority.certificate, authority_key: authority.key, serving })
}

/// The certificates of a PEM text.
fn certificates(bundle: &str) -> impl Iterator<Item = String> {
    bundle
        .split_inclusive("-----END CERTIFICATE-----")
        .filter(|text| text.contains("BEGIN"))
        .map(|text| format!("{}\n", text.trim()))
}

/// One look: renews what is due, tells API servers, and serves it.
pub async fn look(store: &impl Store, served: &Served, names: &[String], now: OffsetDateTime) -> Result<()> {
    for _ in 0..RACES {
        let (kept, version) = store.read().await?;
        let kept = match renewed(&kept, names, now)? {
            None => kept,
            Some(next) => {
                if store.write(&next, version).await? == Written::TooLate {
                    continue;
                }
                next
            }
        };
        let told = store.publish(&kept.bundle).await;
        served.serve(&kept.serving.certificate, &kept.serving.key)?;
        return told;
    }
    bail!("somebody else changes the Secret all the time; nothing was renewed")
}

async fn within(bound: std::time::Duration, looking: impl Future<Output = Result<()>>) -> Result<()> {
    match timeout(bound, looking).await {
        Ok(looked) => looked,
        Err(_) => bail!("the API server has not answered within {} s", bound.as_secs()),
    }
}

/// Looks for ever. While API servers are out of reach, what is served stays.
pub async fn keep(store: impl Store, served: Arc<Served>, names: Vec<String>) {
    loop {
        let looking = look(&store, &served, &names, OffsetDateTime::now_utc());
        let pause = match within(PATIENCE, looking).await {
            Ok(()) => LOOK,
            Err(error) => {
                eprintln!("weir-webhook: certificates: {error:#}; trying again in {} s", AGAIN.as_secs());
                AGAIN
            }
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_without_an_answer_ends() {
        let bound = std::time::Duration::from_millis(10);
        let why = within(bound, std::future::pending()).await.unwrap_err().to_string();
        assert!(why.contains("has not answered"), "{why}");
        within(std::time::Duration::from_secs(600), async { Ok(()) }).await.unwrap();
    }
}
