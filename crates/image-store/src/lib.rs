//! OCI images: layouts, registries, unpacked trees.
//!
//! An [`ImageStore`] turns an image reference into a directory that holds the image's merged file
//! tree, ready to be the root of a container or the source of an image volume. Images come from
//! OCI layout directories and archives registered by [`ImageStore::add_layouts`], otherwise from
//! registries. A [`LayoutWriter`] makes such layouts reproducibly; a [`Package`] is pushed from a
//! layout to a registry.
//!
//! **Invariants**: a tree gets its final name only when it is complete, so a process killed at any
//! instruction leaves no partial image. Every byte is checked against its digest before a tree gets
//! its name. No image can make the store write outside its tree: the kernel resolves paths inside
//! the tree's root.
//!
//! The store knows nothing of pods, back-off or events; its callers decide when to retry.

mod catalog;
mod config;
mod credentials;
mod digest;
mod error;
mod layout;
mod manifest;
mod metrics;
mod name;
mod push;
mod references;
mod registry;
mod store;
mod tree;
mod unpack;
mod verified;
mod writer;

pub use self::metrics::METRICS;
pub use config::{ImageConfig, ImageUser};
pub use credentials::{Credentials, CredentialsError};
pub use digest::{Digest, DigestError};
pub use error::{ImageError, LayoutError, PushError, RegistryError, StoreError, UnpackError};
pub use name::NameError;
pub use push::{Package, Progress, ProgressListener, Push, Transport};
pub use store::{Image, ImageStore, InUse, PullPolicy};
pub use unpack::Limits;
pub use writer::{Compression, Content, Entry, Layer, LayoutWriter, Owner, write_layer};
