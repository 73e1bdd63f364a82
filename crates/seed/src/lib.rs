//! Seed images for cloud-init.
