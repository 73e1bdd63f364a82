//! `metadata.managedFields` for ordinary writes.
//!
//! An object whose managed fields were cleared has none until the next apply, which then assigns
//! all existing fields to `before-first-apply`.

use serde_json::{Value, json};

use super::managers::{Entry, Managers, Operation};
use super::writer::{Writer, empty_object, stripped};
use crate::meta;

/// Sets the managed fields of `new`, which is about to replace `live` (`None`: to be created) by a
/// create, update or patch. Call it last, after defaults and admission.
pub fn update(writer: &Writer<'_>, live: Option<&Value>, new: &mut Value) {
    if asks_for_reset(new) {
        meta::set(new, "managedFields", Value::Null);
        return;
    }
    // Entries sent by the client take effect, so that it may drop some; an absent list means
    // "unchanged".
    let sent = Managers::read(new);
    let mut managers = match live {
        Some(live) if sent.is_empty() => Managers::read(live),
        _ => sent,
    };
    let stripped_new = stripped(new);
    if live.is_some() && managers.is_empty() {
        meta::set(new, "managedFields", Value::Null);
        return;
    }
    let base = live.map_or_else(|| before_creation(writer, new), stripped);
    let entry = Entry::new(writer, Operation::Update);
    let changed = managers.give(&base, &stripped_new, &entry, writer);
    managers.touch(&entry, changed, writer.now);
    managers.write(new);
}

/// The manager's name when the request gives no `fieldManager`: the user agent up to the first
/// slash.
pub fn manager_of_user_agent(user_agent: &str) -> &str {
    user_agent.split('/').next().unwrap_or_default()
}

/// Checks a `fieldManager` parameter: at most 128 printable characters.
pub fn check_manager(name: &str) -> Result<(), String> {
    if name.len() > 128 {
        return Err("may not be more than 128 bytes".to_owned());
    }
    match name.chars().find(|c| c.is_control()) {
        Some(_) => Err("should only contain printable characters".to_owned()),
        None => Ok(()),
    }
}

/// Assigns all fields of an object without managed fields to the earlier, unknown managers.
pub(super) fn before_first_apply(writer: &Writer<'_>, live: &Value, managers: &mut Managers) {
    let writer = Writer {
        manager: "before-first-apply",
        subresource: "",
        reset: &[],
        ..*writer
    };
    let entry = Entry::new(&writer, Operation::Update);
    let changed = managers.give(
        &before_creation(&writer, live),
        &stripped(live),
        &entry,
        &writer,
    );
    managers.touch(&entry, changed, writer.now);
}

/// Clients clear the managed fields with a list of one empty entry.
fn asks_for_reset(object: &Value) -> bool {
    match object["metadata"]["managedFields"]
        .as_array()
        .map(Vec::as_slice)
    {
        Some([only]) => only.as_object().is_some_and(serde_json::Map::is_empty),
        _ => false,
    }
}

/// Built-in kinds start as structs whose (empty) parts exist; custom kinds start empty.
fn before_creation(writer: &Writer<'_>, object: &Value) -> Value {
    let mut out = empty_object(object);
    if !writer.ty.is_built_in() {
        return out;
    }
    let parts = [
        ("metadata", json!({})),
        ("spec", json!({"containers": null})),
        ("status", json!({})),
    ];
    for (part, empty) in parts {
        if object[part].is_object() {
            out[part] = if object[part].get("containers").is_some() || part != "spec" {
                empty
            } else {
                json!({})
            };
        }
    }
    out
}
