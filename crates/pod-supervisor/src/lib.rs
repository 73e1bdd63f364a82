//! The process that owns one pod's containers.
