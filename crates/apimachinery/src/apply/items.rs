//! The identities of the items of a list.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::path::PathElement;
use crate::shape::{ListMerge, Type};

/// The items with their identities; `None` for an atomic list, be it by its type or because its
/// items do not have distinct keys.
pub(super) fn items_by_id<'a>(
    items: &'a [Value],
    ty: Type<'_>,
) -> Option<Vec<(PathElement, &'a Value)>> {
    let list = ty.list();
    if list == ListMerge::Atomic {
        return None;
    }
    let out: Option<Vec<_>> = items
        .iter()
        .map(|item| Some((id(item, &list)?, item)))
        .collect();
    let out = out?;
    let distinct: BTreeSet<&PathElement> = out.iter().map(|(id, _)| id).collect();
    (distinct.len() == out.len()).then_some(out)
}

pub(super) fn id(item: &Value, list: &ListMerge<'_>) -> Option<PathElement> {
    match list {
        ListMerge::Atomic => None,
        ListMerge::Set => Some(PathElement::Value(item.to_string())),
        ListMerge::Map(keys) => {
            let fields = item.as_object()?;
            let found: BTreeMap<String, Value> = keys
                .iter()
                .filter_map(|(key, default)| {
                    Some((
                        (*key).to_owned(),
                        fields.get(*key).or(default.as_ref())?.clone(),
                    ))
                })
                .collect();
            (!found.is_empty()).then(|| PathElement::key(found))
        }
    }
}
