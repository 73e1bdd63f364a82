//! Sets of field paths and their serialized form, `FieldsV1`.
//!
//! Invariant: every node of a set is a member or has members below it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::items::items_by_id;
use super::path::PathElement;
use crate::shape::Type;

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: BTreeMap<PathElement, Node>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Node {
    member: bool,
    below: FieldSet,
}

impl FieldSet {
    /// All fields set in a value.
    pub(super) fn of(value: &Value, ty: Type<'_>) -> Self {
        let mut out = Self::default();
        collect(value, ty, &mut Vec::new(), &mut out);
        out
    }

    /// Parses `fieldsV1`; `None` if it is malformed.
    pub fn from_value(raw: &Value) -> Option<Self> {
        let mut out = Self::default();
        for (key, below) in raw.as_object()? {
            if key == "." {
                continue;
            }
            let member = below.as_object()?;
            let member = member.is_empty() || member.contains_key(".");
            let below = Self::from_value(below)?;
            out.nodes
                .insert(PathElement::parse(key)?, Node { member, below });
        }
        Some(out)
    }

    /// Serializes to `fieldsV1`.
    pub fn to_value(&self) -> Value {
        let nodes = self.nodes.iter().map(|(element, node)| {
            let mut below = Map::new();
            if node.member && !node.below.is_empty() {
                below.insert(".".to_owned(), Value::Object(Map::new()));
            }
            if let Value::Object(members) = node.below.to_value() {
                below.extend(members);
            }
            (element.wire(), Value::Object(below))
        });
        Value::Object(nodes.collect())
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else {
            return;
        };
        let node = self.nodes.entry(first.clone()).or_default();
        if rest.is_empty() {
            node.member = true;
        } else {
            node.below.insert(rest);
        }
    }

    pub fn has(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else {
            return false;
        };
        self.nodes.get(first).is_some_and(|node| {
            if rest.is_empty() {
                node.member
            } else {
                node.below.has(rest)
            }
        })
    }

    pub(super) fn is_member(&self, element: &PathElement) -> bool {
        self.nodes.get(element).is_some_and(|node| node.member)
    }

    pub(super) fn below(&self, element: &PathElement) -> Option<&Self> {
        self.nodes
            .get(element)
            .map(|node| &node.below)
            .filter(|set| !set.is_empty())
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        for (element, node) in &other.nodes {
            let into = out.nodes.entry(element.clone()).or_default();
            into.member |= node.member;
            into.below = into.below.union(&node.below);
        }
        out
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| {
            theirs.map(|theirs| Node {
                member: mine.member && theirs.member,
                below: mine.below.intersection(&theirs.below),
            })
        })
    }

    /// The set without the members of the other set; members below them stay.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| match theirs {
            None => Some(mine.clone()),
            Some(theirs) => Some(Node {
                member: mine.member && !theirs.member,
                below: mine.below.difference(&theirs.below),
            }),
        })
    }

    /// The set without the members of the other set and everything below them.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| match theirs {
            None => Some(mine.clone()),
            Some(theirs) if theirs.member => None,
            Some(theirs) => Some(Node {
                member: mine.member,
                below: mine.below.recursive_difference(&theirs.below),
            }),
        })
    }

    fn combine(&self, other: &Self, keep: impl Fn(&Node, Option<&Node>) -> Option<Node>) -> Self {
        let nodes = self.nodes.iter().filter_map(|(element, node)| {
            let kept = keep(node, other.nodes.get(element))?;
            (kept.member || !kept.below.is_empty()).then(|| (element.clone(), kept))
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// The set extended by every declared field on the path to a member.
    pub(super) fn with_named_fields(&self, ty: Type<'_>) -> Self {
        let nodes = self.nodes.iter().map(|(element, node)| {
            let (below_type, declared) = match element {
                PathElement::Field(name) => (ty.field(name), ty.declares(name)),
                _ => (ty.item(), false),
            };
            let below = node.below.with_named_fields(below_type);
            let member = node.member || (declared && !below.is_empty());
            (element.clone(), Node { member, below })
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// Every member as text: `.spec.containers[name="a"].image`.
    pub fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.list_paths("", &mut out);
        out
    }

    fn list_paths(&self, prefix: &str, out: &mut Vec<String>) {
        for (element, node) in &self.nodes {
            let path = format!("{prefix}{element}");
            if node.member {
                out.push(path);
            }
        }
        // Members at this level come before deeper ones.
        for (element, node) in &self.nodes {
            node.below.list_paths(&format!("{prefix}{element}"), out);
        }
    }
}

fn collect(value: &Value, ty: Type<'_>, path: &mut Vec<PathElement>, out: &mut FieldSet) {
    match value {
        Value::Object(fields) if !ty.is_atomic_map() => {
            for (name, value) in fields {
                path.push(PathElement::Field(name.clone()));
                collect(value, ty.field(name), path, out);
                let empty = match value {
                    Value::Object(fields) => fields.is_empty(),
                    // An atomic list was inserted; of others, each item is owned.
                    Value::Array(_) => false,
                    value => value.is_null(),
                };
                if empty || !ty.declares(name) {
                    out.insert(path);
                }
                path.pop();
            }
        }
        Value::Array(items) => match items_by_id(items, ty) {
            Some(items) => {
                for (id, item) in items {
                    path.push(id);
                    collect(item, ty.item(), path, out);
                    out.insert(path);
                    path.pop();
                }
            }
            None => out.insert(path),
        },
        _ => out.insert(path),
    }
}
