//! Taint keys.

/// On nodes: guests must leave. The key can be set otherwise for the whole cluster.
pub const DRAIN: &str = "kubevirt.io/drain";
