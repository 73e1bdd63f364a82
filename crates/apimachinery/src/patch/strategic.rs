//! Strategic merge patches: merge patches with keyed lists.
//!
//! Directives: `$patch` (`merge`, `replace`, `delete`), `$retainKeys`,
//! `$deleteFromPrimitiveList/<list>` and `$setElementOrder/<list>`.

use serde_json::{Map, Value};

use super::PatchError;
use crate::shape::Type;

/// Applies `patch` to `target` of type `ty`, normally `Type::built_in(group, kind)`.
pub fn apply(target: &Value, patch: &Value, ty: Type<'_>) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed(
            "a strategic merge patch is an object".to_owned(),
        ));
    };
    let mut out = target.as_object().cloned().unwrap_or_default();
    merge_object(&mut out, patch, ty)?;
    Ok(Value::Object(out))
}

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

fn merge_object(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
    ty: Type<'_>,
) -> Result<(), PatchError> {
    match directive(patch)? {
        Directive::Merge => {}
        Directive::Replace => {
            *target = clean_object(patch, ty);
            return Ok(());
        }
        Directive::Delete => {
            target.clear();
            return Ok(());
        }
    }
    retain_keys(target, patch)?;
    delete_from_lists(target, patch);
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        let field = ty.field(key);
        if value.is_null() {
            target.shift_remove(key);
            continue;
        }
        match (target.get_mut(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => merge_object(old, new, field)?,
            (Some(Value::Array(old)), Value::Array(new)) => {
                merge_list(old, new, order_of(patch, key), field)?;
            }
            // A directive on an absent value creates nothing.
            (None, Value::Object(new)) if new.contains_key(PATCH) => {}
            _ => drop(target.insert(key.clone(), clean(value, field))),
        }
    }
    // An order may be given without a change of the list itself.
    for (key, order) in patch
        .iter()
        .filter_map(|(k, v)| Some((k.strip_prefix(ORDER)?, v)))
    {
        if let (None, Some(Value::Array(list)), Value::Array(order)) =
            (patch.get(key), target.get_mut(key), order)
        {
            let live = list.clone();
            sort(list, &live, order, ty.field(key).patch_key());
        }
    }
    Ok(())
}

enum Directive {
    Merge,
    Replace,
    Delete,
}

fn directive(patch: &Map<String, Value>) -> Result<Directive, PatchError> {
    match patch.get(PATCH) {
        None => Ok(Directive::Merge),
        Some(Value::String(name)) => match name.as_str() {
            "merge" => Ok(Directive::Merge),
            "replace" => Ok(Directive::Replace),
            "delete" => Ok(Directive::Delete),
            other => Err(unknown_directive(&Value::from(other))),
        },
        Some(other) => Err(unknown_directive(other)),
    }
}

fn unknown_directive(found: &Value) -> PatchError {
    PatchError::Malformed(format!("unknown patch type found: {found}"))
}

fn retain_keys(
    target: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), PatchError> {
    let Some(raw) = patch.get(RETAIN) else {
        return Ok(());
    };
    let Value::Array(keys) = raw else {
        return Err(PatchError::Malformed(format!(
            "invalid patch format of {RETAIN}"
        )));
    };
    let retained = |key: &str| keys.iter().any(|kept| kept == key);
    let stray = patch
        .iter()
        .find(|(k, v)| !k.starts_with('$') && !v.is_null() && !retained(k));
    if let Some((key, _)) = stray {
        let why = format!("{RETAIN} list doesn't contain the key {key} of the patch");
        return Err(PatchError::Malformed(why));
    }
    target.retain(|key, _| retained(key));
    Ok(())
}

fn delete_from_lists(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, deleted) in patch {
        let Some(key) = key.strip_prefix(DELETE_FROM) else {
            continue;
        };
        if let (Some(Value::Array(list)), Value::Array(deleted)) = (target.get_mut(key), deleted) {
            list.retain(|item| !deleted.contains(item));
        }
    }
}

fn order_of<'a>(patch: &'a Map<String, Value>, key: &str) -> Option<&'a [Value]> {
    Some(patch.get(&format!("{ORDER}{key}"))?.as_array()?.as_slice())
}

fn merge_list(
    target: &mut Vec<Value>,
    patch: &[Value],
    order: Option<&[Value]>,
    ty: Type<'_>,
) -> Result<(), PatchError> {
    let live = target.clone();
    if let Some(key) = ty.patch_key() {
        merge_keyed(target, patch, key, ty)?;
    } else if ty.is_patch_set() {
        for item in patch {
            if !target.contains(item) {
                target.push(item.clone());
            }
        }
    } else {
        *target = patch.iter().map(|item| clean(item, ty.item())).collect();
        return Ok(());
    }
    if let Some(order) = order {
        sort(target, &live, order, ty.patch_key());
    }
    Ok(())
}

fn merge_keyed(
    target: &mut Vec<Value>,
    patch: &[Value],
    key: &str,
    ty: Type<'_>,
) -> Result<(), PatchError> {
    let replaces = |item: &Value| {
        item.get(PATCH)
            .is_some_and(|directive| directive == "replace")
    };
    if patch
        .iter()
        .any(|item| replaces(item) && item.get(key).is_none())
    {
        let keep = patch.iter().filter(|item| !replaces(item));
        *target = keep.map(|item| clean(item, ty.item())).collect();
        return Ok(());
    }
    for item in patch {
        let Value::Object(fields) = item else {
            let why = format!("an item of a list merged by {key} is not an object: {item}");
            return Err(PatchError::Malformed(why));
        };
        let Some(id) = fields.get(key) else {
            let shown: Vec<String> = fields
                .iter()
                .map(|(name, value)| {
                    let text = value
                        .as_str()
                        .map_or_else(|| value.to_string(), str::to_owned);
                    format!("{name}:{text}")
                })
                .collect();
            let why = format!(
                "map: map[{}] does not contain declared merge key: {key}",
                shown.join(" ")
            );
            return Err(PatchError::Keyless(why));
        };
        let known = target.iter_mut().find(|old| old.get(key) == Some(id));
        match (directive(fields)?, known) {
            (Directive::Delete, _) => target.retain(|old| old.get(key) != Some(id)),
            (_, Some(Value::Object(old))) => merge_object(old, fields, ty.item())?,
            (_, _) => target.push(clean(item, ty.item())),
        }
    }
    Ok(())
}

/// Listed items follow the order; the others stay before the listed item they preceded.
fn sort(list: &mut Vec<Value>, live: &[Value], order: &[Value], key: Option<&str>) {
    let same = |a: &Value, b: &Value| match key {
        Some(key) => a.get(key).is_some() && a.get(key) == b.get(key),
        None => a == b,
    };
    let place = |item: &Value| order.iter().position(|listed| same(listed, item));
    let age = |item: &Value| live.iter().position(|old| same(old, item));
    let (mut listed, others): (Vec<Value>, Vec<Value>) = std::mem::take(list)
        .into_iter()
        .partition(|item| place(item).is_some());
    listed.sort_by_key(|item| place(item));
    let mut others = others.into_iter().peekable();
    for item in listed {
        if let Some(limit) = age(&item) {
            while let Some(other) = others.next_if(|o| age(o).is_some_and(|at| at < limit)) {
                list.push(other);
            }
        }
        list.push(item);
    }
    list.extend(others);
}

/// The part of a patch that is added to an absent value: without directives, nulls and deletions.
fn clean(value: &Value, ty: Type<'_>) -> Value {
    match value {
        Value::Object(fields) => Value::Object(clean_object(fields, ty)),
        Value::Array(items) => {
            let is_directive = |item: &&Value| {
                item.get(PATCH)
                    .is_some_and(|directive| directive == "delete" || directive == "replace")
                    && (ty.patch_key().is_some() || item.as_object().is_some_and(|o| o.len() == 1))
            };
            let item_type = ty.item();
            items
                .iter()
                .filter(|item| !is_directive(item))
                .map(|item| {
                    if item.is_object() {
                        clean(item, item_type)
                    } else {
                        item.clone()
                    }
                })
                .collect()
        }
        scalar => scalar.clone(),
    }
}

fn clean_object(fields: &Map<String, Value>, ty: Type<'_>) -> Map<String, Value> {
    let kept = fields
        .iter()
        .filter(|(key, value)| !key.starts_with('$') && !value.is_null());
    kept.map(|(key, value)| (key.clone(), clean(value, ty.field(key))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: &Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": spec})
    }

    #[track_caller]
    fn check(spec: &Value, patch: &Value, expected: &Value) {
        let ty = Type::built_in("", "Pod");
        let out = apply(&pod(spec), &json!({"spec": patch}), ty).expect("applies");
        assert_eq!(out, pod(expected), "{spec} with {patch}");
    }

    #[test]
    fn keyed_lists_merge_by_key() {
        check(
            &json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}),
            &json!({"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}),
            &json!({"containers": [{"name": "a", "image": "2"}, {"name": "b"}, {"name": "c"}]}),
        );
        check(
            &json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            &json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            &json!({"containers": [{"name": "b"}]}),
        );
        check(
            &json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            &json!({"containers": [{"$patch": "replace"}, {"name": "c"}]}),
            &json!({"containers": [{"name": "c"}]}),
        );
        check(
            &json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]}),
            &json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}),
            &json!({"containers": [{"name": "a",
                "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}]}),
        );
    }

    #[test]
    fn other_lists_are_replaced() {
        check(
            &json!({"tolerations": [{"key": "a"}]}),
            &json!({"tolerations": [{"key": "b"}]}),
            &json!({"tolerations": [{"key": "b"}]}),
        );
    }

    #[test]
    fn directives_are_applied() {
        check(
            &json!({"securityContext": {"runAsUser": 1, "runAsGroup": 2}}),
            &json!({"securityContext": {"$patch": "replace", "runAsUser": 3}}),
            &json!({"securityContext": {"runAsUser": 3}}),
        );
        check(
            &json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
            &json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}, "$retainKeys": ["name", "hostPath"]}]}),
            &json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}),
        );
        check(
            &json!({"containers": [{"name": "a"}, {"name": "x"}, {"name": "b"}]}),
            &json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                "containers": [{"name": "b", "image": "1"}]}),
            &json!({"containers": [{"name": "x"}, {"name": "b", "image": "1"}, {"name": "a"}]}),
        );
        let object = json!({"metadata": {"finalizers": ["a", "b"]}});
        let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c", "b"]}});
        let out = apply(&object, &patch, Type::built_in("", "Pod")).expect("applies");
        assert_eq!(out, json!({"metadata": {"finalizers": ["b", "c"]}}));
    }

    #[test]
    fn nulls_delete_and_are_not_stored() {
        check(
            &json!({"nodeName": "a"}),
            &json!({"nodeName": null, "x": {"y": null}}),
            &json!({"x": {}}),
        );
    }

    proptest::proptest! {
        #[test]
        fn patching_is_idempotent(
            old in proptest::collection::btree_map("[a-d]", "[xyz]", 0..4),
            new in proptest::collection::btree_map("[a-d]", "[xyz]", 0..4),
            deleted in "[a-d]",
        ) {
            let list = |map: &std::collections::BTreeMap<String, String>| -> Vec<Value> {
                map.iter().map(|(name, image)| json!({"name": name, "image": image})).collect()
            };
            let ty = Type::built_in("", "Pod");
            let mut change = list(&new);
            if !new.contains_key(&deleted) {
                change.push(json!({"name": deleted, "$patch": "delete"}));
            }
            let patch = json!({"spec": {"containers": change}});
            let once = apply(&pod(&json!({"containers": list(&old)})), &patch, ty).expect("applies");
            let twice = apply(&once, &patch, ty).expect("applies");
            proptest::prop_assert_eq!(&once, &twice);
            let names = once["spec"]["containers"].as_array().map_or(0, Vec::len);
            let mut all: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            if !new.contains_key(&deleted) {
                all.remove(&deleted);
            }
            proptest::prop_assert_eq!(names, all.len());
        }
    }

    #[test]
    fn malformed_patches_are_rejected() {
        let ty = Type::built_in("", "Pod");
        for spec in [
            &json!({"containers": [{"image": "1"}]}),
            &json!({"x": {"$patch": "jump"}}),
        ] {
            let target = pod(&json!({"containers": [], "x": {}}));
            assert!(apply(&target, &json!({"spec": spec}), ty).is_err());
        }
    }
}
