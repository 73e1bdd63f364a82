//! How fields merge: which lists are keyed and by which fields, which values are atomic.
//!
//! Two sources: the `x-kubernetes-*` extensions of a CRD's schema, and one table for the built-in
//! kinds, which serves strategic merge patches and server-side apply alike. Fields that neither
//! describes merge as apply merges unknown data: objects by field, lists atomically.

mod rule;
mod table;

use serde_json::Value;

use self::rule::Merge;
use self::table::{OBJECT_META, rule_of, shape_rule};
use crate::schema::{ListType, Schema};

pub use self::rule::Rule;

/// The type at one position of an object.
#[derive(Debug, Clone, Copy)]
pub enum Type<'a> {
    /// A position in a CRD's schema.
    Schema(&'a Schema),
    /// The root of a custom object (or of one embedded in another): the schema, with `metadata` as
    /// the API defines it.
    Custom(&'a Schema),
    /// A position in a built-in kind.
    BuiltIn(&'static Rule),
    Unknown,
}

/// How a list merges in server-side apply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ListMerge<'a> {
    Atomic,
    Set,
    /// By these fields, each with its default when absent.
    Map(Vec<(&'a str, Option<Value>)>),
}

impl<'a> Type<'a> {
    /// The root of a built-in kind.
    pub fn built_in(group: &str, kind: &str) -> Type<'static> {
        Type::BuiltIn(table::root(group, kind))
    }

    pub(crate) fn is_built_in(self) -> bool {
        matches!(self, Self::BuiltIn(_))
    }

    /// The type of a field's value.
    pub(crate) fn field(self, name: &str) -> Type<'a> {
        match self {
            Self::Custom(_) if name == "metadata" => Type::BuiltIn(&OBJECT_META),
            Self::Custom(schema) | Self::Schema(schema) => match schema.child(name) {
                Some(child) if child.is_embedded() => Type::Custom(child),
                Some(child) => Type::Schema(child),
                None => Type::Unknown,
            },
            Self::BuiltIn(rule) => Type::BuiltIn(rule_of(rule.shape, name)),
            Self::Unknown => Type::Unknown,
        }
    }

    /// The type of a list's items.
    pub(crate) fn item(self) -> Type<'a> {
        match self {
            Self::Custom(schema) | Self::Schema(schema) => match schema.items() {
                Some(items) if items.is_embedded() => Type::Custom(items),
                Some(items) => Type::Schema(items),
                None => Type::Unknown,
            },
            Self::BuiltIn(rule) => Type::BuiltIn(shape_rule(rule.shape)),
            Self::Unknown => Type::Unknown,
        }
    }

    /// Whether the type declares the field, as opposed to a key of a map.
    pub(crate) fn declares(self, name: &str) -> bool {
        match self {
            Self::Custom(_) if matches!(name, "metadata" | "apiVersion" | "kind") => true,
            Self::Custom(schema) | Self::Schema(schema) => schema.has_property(name),
            Self::BuiltIn(_) => true,
            Self::Unknown => false,
        }
    }

    pub(crate) fn is_atomic_map(self) -> bool {
        match self {
            Self::Custom(schema) | Self::Schema(schema) => schema.is_atomic_map(),
            Self::BuiltIn(rule) => matches!(rule.merge, Merge::Whole),
            Self::Unknown => false,
        }
    }

    pub(crate) fn list(self) -> ListMerge<'a> {
        match self {
            Self::Custom(schema) | Self::Schema(schema) => match schema.list_type() {
                ListType::Atomic => ListMerge::Atomic,
                ListType::Set => ListMerge::Set,
                ListType::Map(keys) => {
                    let default = |key: &str| schema.items()?.child(key)?.default_value().cloned();
                    ListMerge::Map(keys.iter().map(|k| (k.as_str(), default(k))).collect())
                }
            },
            Self::BuiltIn(Rule {
                merge: Merge::Set, ..
            }) => ListMerge::Set,
            Self::BuiltIn(Rule {
                merge: Merge::Keyed { keys, .. },
                ..
            }) if !keys.is_empty() => {
                let default = |key: &str| (key == "protocol").then(|| "TCP".into());
                ListMerge::Map(keys.iter().map(|key| (*key, default(key))).collect())
            }
            Self::BuiltIn(_) | Self::Unknown => ListMerge::Atomic,
        }
    }

    /// The merge key of a list in strategic merge patches.
    pub(crate) fn patch_key(self) -> Option<&'static str> {
        match self {
            Self::BuiltIn(Rule {
                merge: Merge::Keyed { patch, .. },
                ..
            }) => Some(patch),
            _ => None,
        }
    }

    /// The `OpenAPI` schema extensions that describe the merge to clients.
    pub(crate) fn marks(self) -> Vec<(&'static str, Value)> {
        let Self::BuiltIn(rule) = self else {
            return Vec::new();
        };
        match &rule.merge {
            Merge::Plain => Vec::new(),
            Merge::Whole => vec![("x-kubernetes-map-type", "atomic".into())],
            Merge::Set => vec![
                ("x-kubernetes-list-type", "set".into()),
                ("x-kubernetes-patch-strategy", "merge".into()),
            ],
            Merge::Keyed { patch, keys } => {
                // A volume that changes its source must drop the old one.
                let strategy = if rule.shape == "Volume" {
                    "merge,retainKeys"
                } else {
                    "merge"
                };
                let mut out = vec![
                    ("x-kubernetes-patch-merge-key", (*patch).into()),
                    ("x-kubernetes-patch-strategy", strategy.into()),
                ];
                if keys.is_empty() {
                    out.push(("x-kubernetes-list-type", "atomic".into()));
                } else {
                    out.push(("x-kubernetes-list-type", "map".into()));
                    out.push(("x-kubernetes-list-map-keys", keys.to_vec().into()));
                }
                out
            }
        }
    }

    /// Whether the list is a set in strategic merge patches.
    pub(crate) fn is_patch_set(self) -> bool {
        matches!(
            self,
            Self::BuiltIn(Rule {
                merge: Merge::Set,
                ..
            })
        )
    }
}
