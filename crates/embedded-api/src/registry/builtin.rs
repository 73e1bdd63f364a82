//! The built-in kinds, as a table.
//!
//! A served kind is stored and validated; not all of them have a controller here.

mod table;

#[cfg(test)]
mod tests;

use apimachinery::Subresource;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

use crate::kinds::Strategy;
pub(crate) use table::KINDS;

/// One row of the table.
#[derive(Debug)]
pub(crate) struct BuiltIn {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub namespaced: bool,
    pub verbs: &'static [&'static str],
    pub subresources: &'static [Sub],
    /// The collection of the objects, if not under the kind's own group and name.
    pub stored_as: Option<Alias>,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub generation: bool,
    /// The schema, with inlined or referenced types.
    pub schema: fn(References) -> Value,
    pub strategy: Strategy,
}

/// A kind that shares its objects with another one.
#[derive(Debug)]
pub(crate) struct Alias {
    pub group: &'static str,
    pub plural: &'static str,
    pub api_version: &'static str,
}

/// A subresource of a built-in kind.
#[derive(Debug)]
pub(crate) struct Sub {
    pub name: &'static str,
    pub kind: &'static str,
    pub api_version: Option<&'static str>,
    pub verbs: &'static [&'static str],
}

impl Sub {
    pub(crate) fn to_subresource(&self) -> Subresource {
        Subresource {
            name: self.name.to_owned(),
            kind: self.kind.to_owned(),
            api_version: self.api_version.map(ToOwned::to_owned),
            verbs: self.verbs.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The representation of nested types in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum References {
    Inlined,
    Kept,
}

fn schema<T: JsonSchema>(references: References) -> Value {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = references == References::Inlined);
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// A CRD's schema is recursive, so it cannot be inlined.
fn crd_schema(references: References) -> Value {
    match references {
        References::Inlined => Value::Null,
        References::Kept => schema::<extensions::CustomResourceDefinition>(References::Kept),
    }
}

fn no_schema(_: References) -> Value {
    Value::Null
}
