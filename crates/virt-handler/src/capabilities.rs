//! The node's capabilities, detected once by `virt-launcher probe-node`.
//!
//! The probe writes `node.json` and libvirt's capability cache to a directory that only root can
//! write. The cache is copied to each pod before its guest is defined, so that libvirt does not probe
//! QEMU in each pod.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Deserialize;

use crate::node::ObsoleteModels;

/// `node.json` and the cache beside it.
#[derive(Debug, Clone)]
pub struct Capabilities {
    facts: Arc<NodeFacts>,
    cache: Option<Arc<Vec<u8>>>,
}

/// The probe's result.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// A guest ran under KVM during the probe.
    pub kvm: bool,
    /// Why it did not.
    #[serde(default)]
    pub kvm_reason: String,
    #[serde(default)]
    pub machine_types: Vec<String>,
    #[serde(default)]
    pub cpu_models: Vec<String>,
    #[serde(default)]
    pub host_model: Option<String>,
    /// CPU features available to guests.
    #[serde(default)]
    pub cpu_features: Vec<String>,
    #[serde(default)]
    pub host_model_required_features: Vec<String>,
    #[serde(default)]
    pub cpu_vendor: Option<String>,
    #[serde(default)]
    pub hyperv: Vec<String>,
    #[serde(default)]
    pub tsc: Option<Tsc>,
    /// Name of the cache file in libvirt's cache directory; `None` without a cache: then libvirt
    /// probes QEMU in each pod.
    pub capabilities_cache_file: Option<String>,
}

/// The time stamp counter of the host's CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tsc {
    /// In Hz.
    pub frequency: u64,
    /// Guests can have another frequency.
    pub scalable: bool,
}

/// Why the probe's result cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CapabilitiesError {
    #[error("read {path}: run `virt-launcher probe-node` on this node first")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("parse {path}: remove it and probe the node again")]
    Malformed {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
}

impl Capabilities {
    pub fn load(dir: &Path) -> Result<Self, CapabilitiesError> {
        let read = |name: &str| {
            let path = dir.join(name);
            std::fs::read(&path).map_err(|source| CapabilitiesError::Read { path, source })
        };
        let facts: NodeFacts = serde_json::from_slice(&read("node.json")?).map_err(|source| {
            CapabilitiesError::Malformed {
                path: dir.join("node.json"),
                source,
            }
        })?;
        let cache = match &facts.capabilities_cache_file {
            Some(_) => Some(Arc::new(read("capabilities.xml")?)),
            None => None,
        };
        Ok(Self {
            facts: Arc::new(facts),
            cache,
        })
    }

    pub fn facts(&self) -> &NodeFacts {
        &self.facts
    }

    /// Whether the CPU model of this host is obsolete, so that no other node offers it.
    pub(crate) fn host_model_is_obsolete(&self, obsolete: ObsoleteModels<'_>) -> bool {
        let model = self.facts.host_model.as_deref();
        model.is_some_and(|model| obsolete.contains(model))
    }

    /// The cache's path below `/var/run/kubevirt-private`, and its content.
    pub(crate) fn cache(&self) -> Option<(String, &[u8])> {
        let name = self.facts.capabilities_cache_file.as_ref()?;
        let path = format!("libvirt/qemu/cache/capabilities/{name}");
        Some((path, self.cache.as_ref()?))
    }
}
