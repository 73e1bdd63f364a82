//! Pods as local processes.
