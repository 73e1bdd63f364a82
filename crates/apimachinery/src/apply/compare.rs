//! Type-aware comparison, merge and removal of values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::FieldSet;
use super::items::{id, items_by_id};
use super::path::PathElement;
use crate::shape::{ListMerge, Type};

/// The differences between two values.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    pub(super) fn of(old: &Value, new: &Value, ty: Type<'_>) -> Self {
        let mut out = Self::default();
        out.walk(Some(old), Some(new), ty, &mut Vec::new());
        out
    }

    pub(super) fn without(self, ignored: &FieldSet) -> Self {
        Self {
            removed: self.removed.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            added: self.added.recursive_difference(ignored),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    fn walk(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        ty: Type<'_>,
        path: &mut Vec<PathElement>,
    ) {
        if old == new {
            return;
        }
        if let Some((old_fields, new_fields)) = both_maps(old, new, ty) {
            let fresh = new_fields
                .keys()
                .filter(|name| !old_fields.contains_key(*name));
            for name in old_fields.keys().chain(fresh) {
                path.push(PathElement::Field(name.clone()));
                self.walk(
                    old_fields.get(name),
                    new_fields.get(name),
                    ty.field(name),
                    path,
                );
                path.pop();
            }
        } else if let Some((old_items, new_items)) = both_lists(old, new, ty) {
            let fresh = new_items.keys().filter(|id| !old_items.contains_key(*id));
            for id in old_items.keys().chain(fresh) {
                path.push(id.clone());
                let (old, new) = (old_items.get(id).copied(), new_items.get(id).copied());
                self.walk(old, new, ty.item(), path);
                path.pop();
            }
        } else if old.is_some() && new.is_some() {
            self.modified.insert(path);
        }
        if old.is_none() {
            self.added.insert(path);
        } else if new.is_none() {
            self.removed.insert(path);
        }
    }
}

type Fields<'a> = &'a Map<String, Value>;

/// Both sides as maps for comparison by field; an absent or null side is an empty map.
fn both_maps<'a>(
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    ty: Type<'_>,
) -> Option<(Fields<'a>, Fields<'a>)> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    let side = |value: Option<&'a Value>| match value {
        None | Some(Value::Null) => Some(&*EMPTY),
        Some(Value::Object(fields)) => Some(fields),
        Some(_) => None,
    };
    let (old, new) = (side(old)?, side(new)?);
    let whole = ty.is_atomic_map() || (old.is_empty() && new.is_empty());
    (!whole).then_some((old, new))
}

type Items<'a> = BTreeMap<PathElement, &'a Value>;

fn both_lists<'a>(
    old: Option<&'a Value>,
    new: Option<&'a Value>,
    ty: Type<'_>,
) -> Option<(Items<'a>, Items<'a>)> {
    let side = |value: Option<&'a Value>| match value {
        None | Some(Value::Null) => Some(Items::new()),
        Some(Value::Array(items)) => Some(items_by_id(items, ty)?.into_iter().collect()),
        Some(_) => None,
    };
    let (old, new) = (side(old)?, side(new)?);
    (!(old.is_empty() && new.is_empty())).then_some((old, new))
}

/// An error message for the first keyed list or set with duplicate or keyless items.
pub(super) fn ambiguous(value: &Value, ty: Type<'_>) -> Option<String> {
    fn search(value: &Value, ty: Type<'_>, path: &str) -> Option<String> {
        match value {
            Value::Object(fields) if !ty.is_atomic_map() => fields
                .iter()
                .find_map(|(name, value)| search(value, ty.field(name), &format!("{path}.{name}"))),
            Value::Array(items) => {
                let list = ty.list();
                if let Some((index, key)) = keyless(items, &list) {
                    let why = "associative list with keys has an element that omits key field";
                    return Some(format!(
                        "{path}: element {index}: {why} \"{key}\" (and doesn't have default value)"
                    ));
                }
                let mut seen = BTreeSet::new();
                for item in items {
                    let Some(id) = id(item, &list) else { continue };
                    let here = format!("{path}{id}");
                    if !seen.insert(id.clone()) {
                        return Some(format!("{path}: duplicate entries for key {id}"));
                    }
                    if let Some(found) = search(item, ty.item(), &here) {
                        return Some(found);
                    }
                }
                None
            }
            _ => None,
        }
    }
    search(value, ty, "")
}

/// The first item of a keyed list without a required key.
fn keyless<'a>(items: &[Value], list: &ListMerge<'a>) -> Option<(usize, &'a str)> {
    let ListMerge::Map(keys) = list else {
        return None;
    };
    items.iter().enumerate().find_map(|(index, item)| {
        let is_missing = |key: &str| item.get(key).is_none_or(Value::is_null);
        let key = keys
            .iter()
            .find(|(key, default)| default.is_none() && is_missing(key))?;
        Some((index, key.0))
    })
}

/// The live value overlaid with the configuration.
pub(super) fn merge(live: &Value, config: &Value, ty: Type<'_>) -> Value {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if !ty.is_atomic_map() => {
            let mut out = live.clone();
            for (name, value) in config {
                let merged = match live.get(name) {
                    Some(old) => merge(old, value, ty.field(name)),
                    None => value.clone(),
                };
                out.insert(name.clone(), merged);
            }
            Value::Object(out)
        }
        (Value::Array(live), Value::Array(config)) => {
            match (items_by_id(live, ty), items_by_id(config, ty)) {
                (Some(live), Some(config)) => merge_items(live, config, ty.item()),
                _ => Value::Array(config.clone()),
            }
        }
        // As if it were empty: what others own in it stays.
        (Value::Object(fields), Value::Null) if !ty.is_atomic_map() && !fields.is_empty() => {
            live.clone()
        }
        (Value::Array(items), Value::Null)
            if !items.is_empty() && items_by_id(items, ty).is_some() =>
        {
            live.clone()
        }
        (_, config) => config.clone(),
    }
}

/// Configured items keep the configuration's order; each item of the live list alone comes as early
/// as possible.
fn merge_items(
    live: Vec<(PathElement, &Value)>,
    config: Vec<(PathElement, &Value)>,
    ty: Type<'_>,
) -> Value {
    let named: BTreeSet<PathElement> = config.iter().map(|(id, _)| id.clone()).collect();
    let old: Items<'_> = live.iter().cloned().collect();
    let mut live = live.into_iter().peekable();
    let mut config = config.into_iter().peekable();
    let mut done = BTreeSet::new();
    let mut out = Vec::new();
    loop {
        if live.next_if(|(id, _)| done.contains(id)).is_some() {
            continue;
        }
        if let Some((_, item)) = live.next_if(|(id, _)| !named.contains(id)) {
            out.push(item.clone());
            continue;
        }
        let Some((id, item)) = config.next() else {
            break;
        };
        let before = old.get(&id);
        out.push(before.map_or_else(|| item.clone(), |old| merge(old, item, ty)));
        done.insert(id);
    }
    Value::Array(out)
}

/// The value without the members of the set and everything below them. A map or list that loses all
/// of its members becomes null, as does an atomic one below which members are removed; validation
/// then refuses it where null is not a valid value. This is what kube-apiserver does.
pub(super) fn remove_items(value: &Value, removed: &FieldSet, ty: Type<'_>) -> Value {
    match value {
        Value::Object(fields) if !ty.is_atomic_map() => {
            let kept = fields.iter().filter_map(|(name, value)| {
                let element = PathElement::Field(name.clone());
                let value = cut(value, &element, removed, ty.field(name))?;
                Some((name.clone(), value))
            });
            let kept: Map<String, Value> = kept.collect();
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Object(kept)
            }
        }
        Value::Object(_) => Value::Null,
        Value::Array(items) => {
            let kept: Vec<Value> = items_by_id(items, ty)
                .into_iter()
                .flatten()
                .filter_map(|(id, item)| cut(item, &id, removed, ty.item()))
                .collect();
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Array(kept)
            }
        }
        scalar => scalar.clone(),
    }
}

fn cut(value: &Value, element: &PathElement, removed: &FieldSet, ty: Type<'_>) -> Option<Value> {
    if removed.is_member(element) {
        return None;
    }
    Some(match removed.below(element) {
        Some(below) => remove_items(value, below, ty),
        None => value.clone(),
    })
}
