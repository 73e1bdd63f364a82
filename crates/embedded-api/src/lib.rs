//! The Kubernetes API on SQLite.
