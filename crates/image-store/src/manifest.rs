//! The members of OCI and Docker manifests and indexes needed to get from a name to layers.
//!
//! Parsing ignores unknown members. Sizes come from the image's author: they bound what is read,
//! but do not replace the digest check.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::ImageConfig;
use crate::digest::Digest;

/// Manifests, indexes and configurations larger than this are refused.
pub(crate) const MAX_DOCUMENT: u64 = 4 << 20;

pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
pub(crate) const DOCKER_INDEX_TYPE: &str =
    "application/vnd.docker.distribution.manifest.list.v2+json";
pub(crate) const DOCKER_MANIFEST_TYPE: &str =
    "application/vnd.docker.distribution.manifest.v2+json";

/// The annotation that names an image within a layout.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Platform {
    pub(crate) architecture: String,
    pub(crate) os: String,
}

/// The document behind an image name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Document {
    Index(Index),
    Manifest(Manifest),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    #[serde(default)]
    pub(crate) schema_version: u32,
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) manifests: Vec<Descriptor>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    #[serde(default)]
    pub(crate) schema_version: u32,
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// The image configuration document; readers need only `config`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ConfigDocument {
    #[serde(default)]
    pub(crate) config: Option<ImageConfig>,
}

impl Index {
    /// The entry for this host's platform. An entry without a platform matches every host.
    pub(crate) fn for_this_host(&self) -> Option<&Descriptor> {
        let fits = |descriptor: &&Descriptor| {
            descriptor.platform.as_ref().is_none_or(|platform| {
                platform.os == "linux" && platform.architecture == architecture()
            })
        };
        self.manifests.iter().find(fits)
    }
}

/// This host's architecture in OCI notation.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// This host's platform in OCI notation, for messages.
pub(crate) fn platform_name() -> String {
    format!("linux/{}", architecture())
}
