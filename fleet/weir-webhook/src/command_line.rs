//! What the program is told.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};

use crate::inject::library::{Library, Way};

/// Brings Weir into the pods that ask for it: a mutating admission webhook. It refuses nothing.
#[derive(Debug, Parser)]
#[command(name = "weir-webhook", version)]
pub struct Options {
    /// Where the API server calls, by HTTPS
    #[arg(long, default_value = "[::]:8443", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Where /healthz, /readyz and /metrics are, by HTTP
    #[arg(long, default_value = "[::]:8080", value_name = "ADDRESS")]
    pub observe: SocketAddr,
    /// Seconds for which requests are still taken after SIGTERM, until every API server knows
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    pub drain: Duration,
    /// Where pods get the library from
    #[command(flatten)]
    pub library: LibraryOptions,
    /// Whose certificate is served
    #[command(flatten)]
    pub certificates: CertificateOptions,
}

/// Where pods get the library from.
#[derive(Debug, Args)]
pub struct LibraryOptions {
    /// The image that has the library in its folder /library
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// When that image is pulled
    #[arg(long, default_value = "IfNotPresent", value_parser = ["Always", "IfNotPresent", "Never"], value_name = "POLICY")]
    image_pull_policy: String,
    /// How the library comes into a pod
    #[arg(long, value_enum, default_value = "init-container")]
    way: Way,
    /// The user of the init container; `image` leaves it to the image
    #[arg(long, default_value = "65534", value_parser = user, value_name = "UID")]
    run_as_user: User,
}

/// Certificates are files that somebody else renews, or are kept in a Secret and renewed here.
#[derive(Debug, Args)]
pub struct CertificateOptions {
    /// A folder with tls.crt and tls.key, read again when they change
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["secret", "service"])]
    pub certificates: Option<PathBuf>,
    /// The Secret, which exists, for an authority and a certificate of one's own
    #[arg(long, value_name = "NAME", required_unless_present = "certificates", requires = "service")]
    pub secret: Option<String>,
    /// The Service by which the API server calls
    #[arg(long, value_name = "NAME", requires = "secret")]
    pub service: Option<String>,
    /// A further name or address by which the API server calls
    #[arg(long, value_name = "NAME")]
    pub name: Vec<String>,
    /// The MutatingWebhookConfiguration that is told the authority
    #[arg(long, default_value = "weir-webhook", value_name = "NAME")]
    pub configuration: String,
    /// The namespace of the Secret and the Service
    #[arg(long, env = "POD_NAMESPACE", default_value = "weir-system", value_name = "NAMESPACE")]
    pub namespace: String,
}

impl LibraryOptions {
    /// The same, as the mutation wants it.
    pub fn library(&self) -> Library {
        Library {
            image: self.image.clone(),
            pull_policy: self.image_pull_policy.clone(),
            way: self.way,
            run_as_user: self.run_as_user.0,
        }
    }
}

impl CertificateOptions {
    /// The names that a certificate of one's own is for.
    pub fn names(&self) -> Vec<String> {
        let service = self.service.as_deref().unwrap_or_default();
        let of_service = ["", ".cluster.local"].map(|end| format!("{service}.{}.svc{end}", self.namespace));
        of_service.into_iter().chain(self.name.iter().cloned()).collect()
    }
}

/// The API refuses a pod with a user above this.
const MOST_USER: i64 = i32::MAX as i64;

/// A user of the init container, if it is not the image's.
#[derive(Debug, Clone, Copy)]
struct User(Option<i64>);

fn user(text: &str) -> Result<User, String> {
    if text == "image" {
        return Ok(User(None));
    }
    match text.parse() {
        Ok(id) if (1..=MOST_USER).contains(&id) => Ok(User(Some(id))),
        _ => Err(format!("a number from 1 to {MOST_USER}, or `image`")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse().map(Duration::from_secs).map_err(|_| "a whole number of seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(["weir-webhook", "--image", "weir:1"].iter().chain(arguments))
    }

    #[test]
    fn certificates_are_files_or_a_secret() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--secret", "s"]).is_err());
        assert!(parse(&["--certificates", "/tls", "--secret", "s", "--service", "w"]).is_err());
        assert!(parse(&["--certificates", "/tls"]).is_ok());
        let own = parse(&["--secret", "s", "--service", "w", "--namespace", "n", "--name", "127.0.0.1"]).unwrap();
        assert_eq!(own.certificates.names(), ["w.n.svc", "w.n.svc.cluster.local", "127.0.0.1"]);
    }

    #[test]
    fn the_init_container_is_never_root() {
        // Nor one that the API would refuse.
        for (user, is_taken) in [("0", false), ("-1", false), ("2147483647", true), ("2147483648", false)] {
            let parsed = parse(&["--certificates", "/tls", "--run-as-user", user]);
            assert_eq!(parsed.is_ok(), is_taken, "{user}");
        }
        let options = parse(&["--certificates", "/tls", "--run-as-user", "image"]).unwrap();
        assert_eq!(options.library.library().run_as_user, None);
    }
}
