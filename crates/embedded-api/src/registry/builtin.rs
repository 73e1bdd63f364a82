//! The kinds that are always there, as a table.
//!
//! Storing a kind does not mean that anything acts on it.

mod table;

use apimachinery::Subresource;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as extensions;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

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
    /// Where the objects are, when not under the own group and name.
    pub stored_as: Option<Alias>,
    /// Kinds whose `metadata.generation` counts changes of the wanted state.
    pub generation: bool,
    /// The schema, written out or with references.
    pub schema: fn(References) -> Value,
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

/// How a schema names the types inside it.
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

/// A CRD's schema holds schemas of schemas, so it cannot be written out.
fn crd_schema(references: References) -> Value {
    match references {
        References::Inlined => Value::Null,
        References::Kept => schema::<extensions::CustomResourceDefinition>(References::Kept),
    }
}

fn no_schema(_: References) -> Value {
    Value::Null
}
