//! `create`: manifests from flags, printed and not sent anywhere.
//!
//! Everything but reading the password file is pure: flags to a JSON object. **Invariant**: the object
//! equals that of the original `virtctl` for the same flags; only the random parts of names differ.

mod command;
mod object;
mod parameters;

mod access;
mod cloud_init;
mod imports;
mod inference;
mod matcher;
mod vm;
mod volumes;

mod clone;
mod instancetype;
mod preference;

#[cfg(test)]
mod tests;

pub(crate) use command::{Create, create};
pub(crate) use matcher::reference;
