//! Makes an authority and certificates that it signs, and reads what is in them.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// An authority lives for a year, a certificate for a month. A certificate is renewed after 20 days, an authority after
/// 243: what an old one has signed ends long before it does.
const AUTHORITY_LIFE: Duration = Duration::days(365);
const SERVING_LIFE: Duration = Duration::days(30);
/// Clocks of API servers may be behind ours by this much.
const SKEW: Duration = Duration::minutes(5);

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// A new authority, signed by itself.
pub fn authority(now: OffsetDateTime) -> Result<Issued> {
    let key = KeyPair::generate()?;
    let mut parameters = parameters(Vec::new(), "weir-webhook authority", now, AUTHORITY_LIFE)?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(Issued { certificate: parameters.self_signed(&key)?.pem(), key: key.serialize_pem() })
}

/// A new certificate of a server with these names, signed by `authority`.
pub fn serving(authority: &Issued, names: &[String], now: OffsetDateTime) -> Result<Issued> {
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, KeyPair::from_pem(&authority.key)?)?;
    let key = KeyPair::generate()?;
    let mut parameters = parameters(names.to_vec(), "weir-webhook", now, SERVING_LIFE)?;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    Ok(Issued { certificate: parameters.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
}

fn parameters(names: Vec<String>, subject: &str, now: OffsetDateTime, life: Duration) -> Result<CertificateParams> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name.push(DnType::CommonName, subject);
    parameters.not_before = now - SKEW;
    parameters.not_after = now + life;
    Ok(parameters)
}

/// What is in a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// When it was made.
    pub made: OffsetDateTime,
    /// When it ends.
    pub ends: OffsetDateTime,
    /// The names that it is for, sorted.
    pub names: Vec<String>,
}

impl Facts {
    /// Of the first certificate in a PEM text.
    pub fn read(pem: &str) -> Result<Self> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).context("the certificate is not PEM")?;
        let (_, certificate) = X509Certificate::from_der(&der).context("the certificate is not X.509")?;
        let validity = certificate.validity();
        let alternative = certificate.subject_alternative_name()?;
        let mut names: Vec<String> =
            alternative.iter().flat_map(|names| &names.value.general_names).filter_map(text).collect();
        names.sort();
        Ok(Self { made: validity.not_before.to_datetime() + SKEW, ends: validity.not_after.to_datetime(), names })
    }

    /// Whether two thirds of its life are over.
    pub fn is_old(&self, now: OffsetDateTime) -> bool {
        now >= self.made + (self.ends - self.made) * 2 / 3
    }

    /// Whether it is of this time: it has not ended, nor was it made by a clock that was ahead, so that nobody takes it yet.
    pub fn is_valid(&self, now: OffsetDateTime) -> bool {
        (self.made - SKEW..self.ends).contains(&now)
    }
}

fn text(name: &GeneralName<'_>) -> Option<String> {
    match *name {
        GeneralName::DNSName(name) => Some(name.to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
            let v6 = <[u8; 16]>::try_from(bytes).map(|bytes| std::net::IpAddr::from(bytes).to_string());
            v4.or(v6).ok()
        }
        _ => None,
    }
}
