//! Seed images for cloud-init: which files a seed holds, and how they become an ISO 9660 image.
//!
//! Everything here is pure: bytes in, bytes out. The same input gives the same image, bit for
//! bit, so an image may be made again at any time and compared.
//!
//! It must not know Kubernetes types (the launcher carries this crate and has none), nor where
//! images are kept; secrets are named by their path in the pod and read by the launcher alone.

mod cloud_init;
mod directory;
mod iso9660;

pub use cloud_init::{CloudInit, CloudInitError, Data, Flavour, cloud_init_files};
pub use iso9660::{SeedError, iso9660};
