//! As much of a Kubernetes deployment (`apps/v1`) as the manifest in docs/deploy uses. A field that is not here is refused:
//! the types of all of Kubernetes, which would know it, take minutes to compile.

use serde::Deserialize;
use std::collections::BTreeMap;

type Map = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[expect(dead_code, reason = "read for its type alone")]
pub struct Deployment {
    api_version: String,
    kind: String,
    metadata: Metadata,
    pub spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(default)]
    pub labels: Map,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    #[serde(rename = "replicas")]
    _replicas: u32,
    pub selector: Selector,
    pub template: Template,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Selector {
    pub match_labels: Map,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    pub metadata: Metadata,
    pub spec: Pod,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Pod {
    pub volumes: Vec<Volume>,
    pub init_containers: Vec<Container>,
    pub containers: Vec<Container>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Volume {
    pub name: String,
    #[serde(rename = "emptyDir")]
    _empty_dir: EmptyDir,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EmptyDir {
    #[serde(rename = "sizeLimit")]
    _size_limit: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Container {
    #[serde(rename = "name")]
    _name: String,
    #[serde(rename = "image")]
    _image: String,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default, rename = "args")]
    _args: Vec<String>,
    #[serde(default)]
    pub env: Vec<Variable>,
    pub volume_mounts: Vec<Mount>,
    pub resources: Option<Resources>,
    pub security_context: Option<SecurityContext>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SecurityContext {
    pub run_as_non_root: bool,
    pub run_as_user: u32,
    pub allow_privilege_escalation: bool,
    #[serde(default, rename = "readOnlyRootFilesystem")]
    _read_only_root_filesystem: bool,
    pub capabilities: Capabilities,
    pub seccomp_profile: SeccompProfile,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    pub drop: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeccompProfile {
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Mount {
    pub name: String,
    pub mount_path: String,
    #[serde(default, rename = "readOnly")]
    _read_only: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    #[serde(rename = "requests")]
    _requests: Map,
    pub limits: Map,
}
