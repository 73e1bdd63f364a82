//! The strategy of a kind: its behaviour beyond its schema.

use apimachinery::{Violation, names};
use serde_json::Value;

/// The functions and facts that differ between built-in kinds. The functions are pure: they depend
/// on the objects at hand alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strategy {
    /// Validates names; returns messages.
    pub check_name: fn(&str) -> Vec<String>,
    /// Fills in absent fields.
    pub default: fn(&mut Value),
    /// Sets fields of a new object after field ownership was recorded, at the given time.
    pub populate: fn(&mut Value, &str),
    /// Sets the status of an object written through its main endpoint, at the given time.
    pub accept: fn(&mut Value, &str),
    /// Validates a new object, or the update of a live one, beyond the schema.
    pub validate: fn(Option<&Value>, &Value) -> Vec<Violation>,
    /// Fields without an owner that are visible as null when unset.
    pub null_fields: &'static [&'static str],
    pub nulls: Nulls,
    pub initial_status: InitialStatus,
    pub status_metadata: StatusMetadata,
    pub deletion: DeletionResponse,
    /// Finalizers of a new object.
    pub finalizers: &'static [&'static str],
}

/// The meaning of nulls and empty lists in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// The field is not set.
    Unset,
    /// They are data.
    Kept,
}

/// The treatment of a status that the client sends on creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialStatus {
    Kept,
    Dropped,
}

/// What a write of the status does to labels, annotations and the rest of the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StatusMetadata {
    Written,
    Kept,
}

/// The body of the response to a delete that removed the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeletionResponse {
    Status,
    /// The final state of the object.
    Object,
}

impl Strategy {
    /// A kind without special behaviour.
    pub(crate) const PLAIN: Self = Self {
        check_name: names::dns_subdomain,
        default: |_| {},
        populate: |_, _| {},
        accept: |_, _| {},
        validate: |_, _| Vec::new(),
        null_fields: &[],
        nulls: Nulls::Unset,
        initial_status: InitialStatus::Kept,
        status_metadata: StatusMetadata::Written,
        deletion: DeletionResponse::Status,
        finalizers: &[],
    };
}
