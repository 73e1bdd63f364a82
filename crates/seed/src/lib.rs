//! Seed images for cloud-init: the files of a seed, and an ISO 9660 image of them.
//!
//! Everything here is pure: bytes in, bytes out. The same input gives the same image, bit for bit, so
//! an image can be rendered again at any time and compared.
//!
//! It must not know Kubernetes types (the launcher uses this crate and has none), nor paths in the
//! pod; the caller passes the directory of a secret, which only the launcher reads.

mod cloud_init;
mod directory;
mod error;
mod iso9660;

pub use cloud_init::{
    CloudInit, CloudInitError, Data, Device, DeviceBus, DeviceKind, Flavour, cloud_init_files,
};
pub use error::SeedError;
pub use iso9660::iso9660;
