//! Serves the volumes of an export, read-only, over HTTPS to clients that know its token.
//!
//! [`main`] is the program `disk-export`, which runs in a pod of its own. A volume is a disk, offered as raw
//! bytes and compressed, or a directory, offered as files and as an archive. The layout of addresses is that of
//! `KubeVirt`'s export server ([`route`]).
//!
//! - [`token`] decides who may download;
//! - [`range`] parses which part of a file a client wants;
//! - [`disk`] and [`archive`] produce bytes on threads of their own, [`body`] carries them to clients;
//! - [`view`] reads disks of a running guest from QEMU, by [`nbd`];
//! - [`server`] ties them together.
//!
//! **Invariants**: nothing is written; nothing is read outside of a volume, whatever links it contains; nothing of a
//! volume is shown without the token; memory does not grow with the size of a volume; a response that could not be
//! completed never looks complete.
//!
//! It must not know Kubernetes: it gets paths, names and a time.

mod archive;
mod body;
mod disk;
mod manifest;
mod nbd;
mod program;
mod range;
mod route;
mod server;
mod token;
mod view;
mod volume;

#[cfg(test)]
mod nbd_server;
#[cfg(test)]
mod tests;

pub use program::{NAME, main};
