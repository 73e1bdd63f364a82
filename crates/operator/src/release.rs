//! What is installed: the versions, the registry, and an identifier of all of it.

use kubevirt_api::COMPATIBLE_VERSION;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Our own version.
pub(crate) const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));
/// As long as the identifiers of `KubeVirt`.
const ID_LENGTH: usize = 40;

/// The installed software, as the status of the `KubeVirt` object reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Release {
    /// Changes whenever one of the others does.
    pub(crate) id: String,
    pub(crate) registry: String,
    /// The settings as JSON, with the identifier.
    pub(crate) config: String,
}

impl Release {
    pub(crate) fn new(namespace: &str, launcher_image: &str) -> Self {
        let registry = launcher_image.rsplit_once('/').map_or("", |(head, _)| head);
        let mut config = json!({
            "namespace": namespace,
            "registry": registry,
            "kubeVirtVersion": COMPATIBLE_VERSION,
            "ferrovirtVersion": VERSION,
            "virtLauncherImage": launcher_image,
        });
        let mut id = hex::encode(Sha256::digest(config.to_string()));
        id.truncate(ID_LENGTH);
        config["id"] = Value::from(id.as_str());
        Self {
            id,
            registry: registry.to_owned(),
            config: config.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifier_changes_with_the_images_only() {
        let release = |image: &str| Release::new("kubevirt", image);
        let first = release("quay.example/ferrovirt/virt-launcher:v1");
        assert_eq!(first, release("quay.example/ferrovirt/virt-launcher:v1"));
        assert_eq!(first.registry, "quay.example/ferrovirt");
        assert_eq!(first.id.len(), ID_LENGTH);
        let config: Value = serde_json::from_str(&first.config).expect("JSON");
        assert_eq!(config["id"], first.id.as_str());
        assert_ne!(
            first.id,
            release("quay.example/ferrovirt/virt-launcher:v2").id
        );
        assert_eq!(release("virt-launcher").registry, "");
    }
}
