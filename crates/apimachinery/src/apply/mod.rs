//! Server-side apply and the tracking of field ownership.
//!
//! Invariants: a field that a manager applied and later omits is removed, unless another manager
//! owns it; a field that another manager owns changes only with `Conflicts::TakeOver`; system
//! fields (uid, resourceVersion, timestamps) are never taken from a client.

mod compare;
mod field_set;
mod items;
mod managers;
mod path;
mod writer;

pub mod managed;

#[cfg(test)]
mod tests;

use serde_json::Value;

use self::compare::{merge, remove_items};
use self::managers::{Entry, Fields, Managers, Operation};
use self::writer::{empty_object, reset_set, stripped};
use crate::shape::Type;
use crate::status::Cause;
use crate::{Reason, Status, meta};

pub use field_set::FieldSet;
pub use path::PathElement;
pub use writer::Writer;

/// How to treat fields that other managers own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflicts {
    Refuse,
    /// `force=true`
    TakeOver,
}

/// Merges an applied configuration into the live object (`None`: it will be created). The result
/// has its managed fields; if nothing changed it equals `live`.
///
/// The caller first compares a resourceVersion or uid in `config` with the live one, and checks for
/// unknown fields. A 409 names the other managers and their fields.
pub fn apply(
    writer: &Writer<'_>,
    live: Option<&Value>,
    config: &Value,
    conflicts: Conflicts,
) -> Result<Value, Status> {
    if config["metadata"]["managedFields"]
        .as_array()
        .is_some_and(|list| !list.is_empty())
    {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let config = reset(config.clone(), None, writer.reset);
    if let Some(path) = compare::ambiguous(&config, writer.ty) {
        return Err(untyped(&config, writer.api_version, &path));
    }
    let mut managers = live.map(Managers::read).unwrap_or_default();
    let base = live.map_or_else(|| empty_object(&config), stripped);
    if let Some(live) = live.filter(|_| managers.is_empty()) {
        managed::before_first_apply(writer, live, &mut managers);
    }
    let before = managers.clone();

    let mut merged = merge(&base, &config, writer.ty);
    let set = FieldSet::of(&config, writer.ty).recursive_difference(&reset_set(writer.reset));
    let entry = Entry::new(writer, Operation::Apply);
    let last = managers.replace(&entry, set);
    managers.set_version(&entry, writer.api_version);
    if let Some(last) = last {
        merged = prune(&merged, &managers, &last, writer.ty);
    }
    let mut merged = keep_system_fields(merged, live);
    if let Some(live) = live {
        merged = reset(merged, Some(live), writer.reset);
    }
    let lost = managers.update(&base, &merged, &entry, writer);
    if conflicts == Conflicts::Refuse && !lost.is_empty() {
        return Err(conflict(&lost));
    }
    managers.strip();
    let changed = live.is_none() || merged != base;
    // As in kube-apiserver, an apply that changes no value leaves the time alone, even if it takes
    // fields over: a manager that has changed nothing yet has no time.
    let fields = if changed {
        Fields::Changed
    } else {
        Fields::Unchanged
    };
    managers.touch(&entry, fields, writer.now);
    managers.write(&mut merged);
    match live {
        Some(live) if !changed && managers == before => Ok(live.clone()),
        _ => Ok(merged),
    }
}

/// A configuration that does not match its type; `why` begins with the path of the faulty field.
pub fn untyped(config: &Value, api_version: &str, why: &str) -> Status {
    // For the core group, only the slash is shown.
    let slash = if api_version.contains('/') { "" } else { "/" };
    // The submitted configuration usually has no namespace, and kube-apiserver shows it as
    // submitted.
    Status::new(
        Reason::Unknown,
        format!(
            "failed to create typed patch object (/{}; {slash}{api_version}, Kind={}): {why}",
            meta::name(config),
            meta::kind(config)
        ),
    )
}

/// Removes fields that the manager applied last time, does not apply now, and no other manager
/// owns.
fn prune(merged: &Value, managers: &Managers, last: &FieldSet, ty: Type<'_>) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    let named = |value: &Value| FieldSet::of(value, ty).with_named_fields(ty);
    let last = last.with_named_fields(ty);
    let pruned = remove_items(merged, &last, ty);
    let all = named(merged);
    // Restore fields owned by any manager ...
    let owned = managers.owned().with_named_fields(ty);
    let removed = all.difference(&named(&pruned)).difference(&owned);
    let pruned = remove_items(merged, &removed, ty);
    // ... and unowned fields that this manager did not apply before either.
    let removed = all.difference(&named(&pruned)).intersection(&last);
    remove_items(merged, &removed, ty)
}

const SYSTEM_FIELDS: [&str; 7] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
];

fn keep_system_fields(mut merged: Value, live: Option<&Value>) -> Value {
    for field in SYSTEM_FIELDS {
        let stored = live.and_then(|live| live["metadata"].get(field));
        if merged["metadata"].get(field) != stored {
            meta::set(&mut merged, field, stored.cloned().unwrap_or_default());
        }
    }
    merged
}

/// Resets the fields to their values in `live`; without it they are removed. Of `metadata`, only
/// the identifying fields stay.
fn reset(mut object: Value, live: Option<&Value>, fields: &[&str]) -> Value {
    let naming = |key: &str| matches!(key, "name" | "namespace" | "resourceVersion" | "uid");
    for field in fields {
        if let Some(value) = live.and_then(|live| live.get(*field)) {
            meta::object_mut(&mut object).insert((*field).to_owned(), value.clone());
        } else if live.is_none() && *field == "metadata" {
            meta::metadata_mut(&mut object).retain(|key, _| naming(key));
        } else {
            meta::object_mut(&mut object).shift_remove(*field);
        }
    }
    if live.is_some() {
        stripped(&object)
    } else {
        object
    }
}

fn conflict(lost: &[(Entry, FieldSet)]) -> Status {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for (entry, fields) in lost {
        lines.push(format!("conflicts with {entry}:"));
        for path in fields.paths() {
            lines.push(format!("- {path}"));
            causes.push(Cause {
                reason: "FieldManagerConflict".to_owned(),
                message: format!("conflict with {entry}"),
                field: path,
            });
        }
    }
    let message = match causes.as_slice() {
        [one] => format!(
            "Apply failed with 1 conflict: {}: {}",
            one.message, one.field
        ),
        many => format!(
            "Apply failed with {} conflicts: {}",
            many.len(),
            lines.join("\n")
        ),
    };
    Status::apply_conflict(causes, message)
}
