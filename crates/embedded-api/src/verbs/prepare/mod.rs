//! Turns the object of a request into the object to be stored: identity, defaults, validation.
//!
//! - `identify` checks type, namespace and name against the path;
//! - `decode` drops unknown fields and reports undecodable objects;
//! - `complete` sets the fields that the server owns, and defaults;
//! - `validate` checks the object that would be stored, and its namespace and version.
//!
//! Invariant: fields of `metadata` that belong to the server are never taken from a client.

mod complete;
mod decode;
mod identify;
mod validate;

pub(crate) use self::{
    complete::{
        accept, carry_over, default, drop_nulls, generate_name, initialize, populate,
        writes_metadata,
    },
    decode::{check_decodable, check_fields, decoding_error, prune, strict_error},
    identify::identify,
    validate::{check_namespace, check_version, finalizer_warnings, validate},
};
