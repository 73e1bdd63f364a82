//! The definition of secondary networks, which a single host serves as Multus does on a cluster.

/// Names and YAML texts.
pub const NETWORK_DEFINITIONS: [(&str, &str); 1] = [(
    "network-attachment-definitions.k8s.cni.cncf.io",
    include_str!("networkattachmentdefinitions.yaml"),
)];
