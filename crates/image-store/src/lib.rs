//! OCI images: layouts, registries, unpacked trees.
//!
//! An [`ImageStore`] turns an image reference into a directory that holds the image's merged file
//! tree, ready to be the root of a container or the source of an image volume. Images come from
//! OCI layout directories and OCI archives that were made known by [`ImageStore::add_layouts`], and
//! else from registries. A [`LayoutWriter`] makes such layouts, bit for bit the same from the same
//! input; a [`Package`] is taken from one to a registry.
//!
//! **Invariants**: a tree stands under its final name only when it is complete, so a process that
//! dies at any instruction leaves nothing that could be mistaken for an image. Every byte is
//! checked against the digest that names it before a tree gets its name. Nothing an image holds can
//! make the store write outside the tree: paths are resolved by the kernel inside the tree's root.
//!
//! The store knows nothing of pods, back-off or events; its callers decide when to try again.

mod catalog;
mod config;
mod credentials;
mod digest;
mod error;
mod layout;
mod manifest;
mod name;
mod push;
mod references;
mod registry;
mod store;
mod tree;
mod unpack;
mod verified;
mod writer;

pub use config::{ImageConfig, ImageUser};
pub use credentials::{Credentials, CredentialsError};
pub use digest::{Digest, DigestError};
pub use error::{
    ImageError, LayoutError, PushError, RegistryError, Retry, StoreError, UnpackError,
};
pub use name::NameError;
pub use push::{Listener, Package, Progress, Push, Transport};
pub use store::{Image, ImageStore, PullPolicy};
pub use unpack::Limits;
pub use writer::{Compression, Content, Entry, Layer, LayoutWriter, Owner, write_layer};
