//! The definitions of volume snapshots, which a single host serves as the CSI snapshot controller's.

/// Names and YAML texts.
pub const VOLUME_SNAPSHOT_DEFINITIONS: [(&str, &str); 3] = [
    (
        "volumesnapshotclasses.snapshot.storage.k8s.io",
        include_str!("volumesnapshotclasses.yaml"),
    ),
    (
        "volumesnapshotcontents.snapshot.storage.k8s.io",
        include_str!("volumesnapshotcontents.yaml"),
    ),
    (
        "volumesnapshots.snapshot.storage.k8s.io",
        include_str!("volumesnapshots.yaml"),
    ),
];
