//! Certificates that somebody else renews, such as cert-manager: two files of a folder, read again when they change.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Served;

/// How often the files are looked at. They are some KiB, and renewed days before they end.
const LOOK: Duration = Duration::from_secs(10);

/// The two files as they were served last.
#[derive(Debug)]
pub struct Files {
    folder: PathBuf,
    last: Option<(String, String)>,
}

impl Files {
    /// `tls.crt` and `tls.key` of a folder.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, last: None }
    }

    /// Serves them if they are others than before. What does not fit together, as while they are being replaced, is left.
    pub async fn look(&mut self, served: &Served) -> Result<bool> {
        let read = async |name: &str| {
            let path = self.folder.join(name);
            tokio::fs::read_to_string(&path).await.with_context(|| format!("cannot read {}", path.display()))
        };
        let now = (read("tls.crt").await?, read("tls.key").await?);
        if self.last.as_ref() == Some(&now) {
            return Ok(false);
        }
        served.serve(&now.0, &now.1).with_context(|| format!("{}: tls.crt, tls.key", self.folder.display()))?;
        self.last = Some(now);
        Ok(true)
    }
}

/// Looks for ever.
pub async fn keep(mut files: Files, served: Arc<Served>) {
    loop {
        match files.look(&served).await {
            Ok(true) => eprintln!("weir-webhook: certificates: serving those of {}", files.folder.display()),
            Ok(false) => {}
            Err(error) => eprintln!("weir-webhook: certificates: {error:#}"),
        }
        tokio::time::sleep(LOOK).await;
    }
}
