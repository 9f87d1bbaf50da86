//! Certificates.

use crate::base::Failure;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files that TLS needs, in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TlsFiles {
    /// The server's certificate, and those between it and the authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Clients need a certificate of this authority.
    pub client_ca: Option<PathBuf>,
    /// Whether clients without TLS are refused, if it is written.
    pub required: Option<bool>,
}

impl TlsFiles {
    /// Clients without TLS are refused. An authority for their certificates is of no use without that, unless it is written that
    /// both kinds of client may come.
    pub fn is_required(&self) -> bool {
        self.required.unwrap_or(self.client_ca.is_some())
    }
}

/// Loads them. TLS 1.2 and 1.3 are spoken. `ring` is the library that does the arithmetic.
pub fn load(files: &TlsFiles) -> Result<Arc<ServerConfig>, Failure> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(Failure::because("TLS"))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(Failure::because(path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(Failure::because(path.display()))?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|why| match why {
        pem::Error::NoItemsFound => "no private key in it, or one with a password: write it without".into(),
        why => why.to_string(),
    });
    let key = key.map_err(Failure::because(files.key.display()))?;
    let config = builder.with_single_cert(certificates(&files.certificate)?, key);
    config.map(Arc::new).map_err(Failure::because(files.certificate.display()))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let read = || CertificateDer::pem_file_iter(path)?.collect::<Result<Vec<_>, _>>();
    let found = read().map_err(Failure::because(path.display()))?;
    if found.is_empty() { Err(Failure::new(format!("{}: no certificate in it", path.display()))) } else { Ok(found) }
}
