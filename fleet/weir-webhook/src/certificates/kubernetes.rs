//! The Secret that certificates are kept in, and the webhook's configuration that says whom to trust.

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::issue::Issued;
use super::rotation::{Kept, Store, Written};

const BUNDLE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// Both objects. They exist: the right to create them is not needed.
pub struct Objects {
    secrets: Api<Secret>,
    secret: String,
    configurations: Api<MutatingWebhookConfiguration>,
    configuration: String,
}

impl Objects {
    /// The Secret of this namespace and name, and the configuration of this name.
    pub fn new(client: Client, namespace: &str, secret: &str, configuration: &str) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            secret: secret.to_owned(),
            configurations: Api::all(client),
            configuration: configuration.to_owned(),
        }
    }
}

impl Store for Objects {
    type Version = Secret;

    async fn read(&self) -> Result<(Kept, Secret)> {
        let read = self.secrets.get(&self.secret).await;
        let mut secret = read.with_context(|| format!("cannot read the Secret {}", self.secret))?;
        let data = &*secret.data.get_or_insert_default();
        let text = |key| data.get(key).map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default();
        let serving = Issued { certificate: text(CERTIFICATE), key: text(KEY) };
        let kept = Kept { bundle: text(BUNDLE), authority_key: text(AUTHORITY_KEY), serving };
        Ok((kept, secret))
    }

    async fn write(&self, kept: &Kept, mut secret: Secret) -> Result<Written> {
        let data = secret.data.get_or_insert_default();
        for (key, text) in [
            (BUNDLE, &kept.bundle),
            (AUTHORITY_KEY, &kept.authority_key),
            (CERTIFICATE, &kept.serving.certificate),
            (KEY, &kept.serving.key),
        ] {
            data.insert(key.to_owned(), ByteString(text.clone().into_bytes()));
        }
        match self.secrets.replace(&self.secret, &PostParams::default(), &secret).await {
            Ok(_) => Ok(Written::Yes),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(Written::TooLate),
            Err(error) => Err(error).with_context(|| format!("cannot write the Secret {}", self.secret)),
        }
    }

    async fn publish(&self, bundle: &str) -> Result<()> {
        let name = &self.configuration;
        let unreadable = || format!("cannot read the MutatingWebhookConfiguration {name}");
        let configuration = self.configurations.get(name).await.with_context(unreadable)?;
        let bytes = ByteString(bundle.as_bytes().to_vec());
        let webhooks = configuration.webhooks.unwrap_or_default();
        let untold = webhooks.iter().filter(|webhook| webhook.client_config.ca_bundle.as_ref() != Some(&bytes));
        let told: Vec<Value> =
            untold.map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bytes}})).collect();
        if told.is_empty() {
            return Ok(());
        }
        let patch = Patch::Strategic(json!({"webhooks": told}));
        let patched = self.configurations.patch(name, &PatchParams::default(), &patch).await;
        patched.map(drop).with_context(|| format!("cannot tell the MutatingWebhookConfiguration {name} whom to trust"))
    }
}
