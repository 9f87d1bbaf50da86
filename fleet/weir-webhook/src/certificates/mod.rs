//! The certificate that is served. It changes while the server runs, as its files change or its time comes.

pub mod files;
pub mod issue;
pub mod kubernetes;
pub mod rotation;

use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, Result};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// What every handshake takes its certificate from.
#[derive(Debug)]
pub struct Served {
    current: RwLock<Option<Arc<CertifiedKey>>>,
    provider: Arc<CryptoProvider>,
}

impl Default for Served {
    fn default() -> Self {
        Self { current: RwLock::default(), provider: Arc::new(rustls::crypto::ring::default_provider()) }
    }
}

impl Served {
    /// Serves this certificate and its chain from now on. The one before stays if these do not belong together.
    pub fn serve(&self, certificates: &str, key: &str) -> Result<()> {
        let chain = CertificateDer::pem_slice_iter(certificates.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("the certificate is not PEM")?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).context("the key is not PEM")?;
        let certified =
            CertifiedKey::from_der(chain, key, &self.provider).context("the certificate and its key do not fit")?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(certified));
        Ok(())
    }

    /// What is served now, if there is one.
    pub fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The settings of a TLS server that serves it. Clients show no certificate: an API server has none by default.
    pub fn tls(self: &Arc<Self>) -> Result<Arc<ServerConfig>> {
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(self.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}
