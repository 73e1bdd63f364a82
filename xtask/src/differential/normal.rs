//! Removes from a response what differs between any two servers: identities, versions, times.

use jiff::Timestamp;
use serde_json::Value;

use super::ask::Variables;

/// The number of every warning in a response's header.
const WARNING: &str = "299";

/// The answer, comparable.
pub(super) fn normalise(mut answer: Value, variables: &Variables) -> Value {
    walk(&mut answer, "", variables);
    for pointer in ["/body", "/body/object"] {
        if let Some(body) = answer.pointer_mut(pointer) {
            without_order(body);
        }
    }
    if let Some(Value::Array(events)) = answer.get_mut("body") {
        for event in events {
            without_order(&mut event["object"]);
        }
    }
    answer
}

/// Puts into one order what the original takes from unordered maps, and drops prose.
fn without_order(body: &mut Value) {
    match body["kind"].as_str() {
        Some("Status") => sort_causes(body),
        Some("APIResourceList") => {
            if let Some(Value::Array(resources)) = body.get_mut("resources") {
                resources.sort_by_key(|resource| resource["name"].to_string());
            }
        }
        Some("Table") => {
            for column in body["columnDefinitions"]
                .as_array_mut()
                .into_iter()
                .flatten()
            {
                column["description"] = "<prose>".into();
            }
        }
        _ => {}
    }
}

/// Causes are listed in the message, too.
fn sort_causes(status: &mut Value) {
    let Some(Value::Array(causes)) = status.pointer_mut("/details/causes") else {
        return;
    };
    let text = |cause: &Value| {
        let part = |key: &str| cause[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", part("field"), part("message"))
    };
    let all: Vec<String> = causes.iter().map(text).collect();
    causes.sort_by_key(text);
    let listed = format!("[{}]", all.join(", "));
    if let Some(message) = status["message"].as_str() {
        status["message"] = message.replace(&listed, "[<causes>]").into();
    }
}

fn walk(value: &mut Value, key: &str, variables: &Variables) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                walk(value, key, variables);
                if let ("managedFields", Value::Array(entries)) = (key.as_str(), value) {
                    // Their order follows from times, which differ.
                    entries.sort_by_key(|entry| {
                        ["manager", "operation", "subresource", "apiVersion"]
                            .map(|part| entry[part].to_string())
                    });
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                walk(item, key, variables);
            }
        }
        Value::String(text) => {
            let shown = plain(text, key, variables);
            *text = shown;
        }
        _ => {}
    }
}

fn plain(text: &str, key: &str, variables: &Variables) -> String {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match key {
        "resourceVersion" if is_number => return "<version>".to_owned(),
        // Opaque, and made otherwise.
        "storageVersionHash" => return "<hash>".to_owned(),
        "continue" if !text.is_empty() => return "<token>".to_owned(),
        "cells" if is_age(text) => return "<age>".to_owned(),
        _ => {}
    }
    if text.len() >= 20 && text.ends_with('Z') && text.parse::<Timestamp>().is_ok() {
        return if text.contains('.') {
            "<time with fraction>".to_owned()
        } else {
            "<time>".to_owned()
        };
    }
    let mut out = without_uids(&without_objects(text));
    for (name, value) in variables.kept() {
        // A revision may be the number of this error or of a warning.
        if text.starts_with(&format!("{value}: Not Acceptable"))
            || (value == WARNING && text.starts_with(&format!("{WARNING} - \"")))
        {
            continue;
        }
        out = replaced(&out, value, &format!("<{name}>"));
    }
    out
}

/// Replaces a whole object that an error repeats: its times, revisions and order of fields differ.
fn without_objects(text: &str) -> String {
    const BEGIN: &str = "Invalid value: \"{";
    const END: &str = "}\": ";
    match (text.split_once(BEGIN), text.rsplit_once(END)) {
        (Some((before, _)), Some((_, after))) => format!("{before}{BEGIN}…{END}{after}"),
        _ => text.to_owned(),
    }
}

/// Replaces every `from` that is not part of a longer word or number by `to`.
fn replaced(text: &str, from: &str, to: &str) -> String {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(from).filter(|_| !from.is_empty()) {
        out.push_str(before);
        let is_part = is_word(out.chars().next_back()) || is_word(after.chars().next());
        out.push_str(if is_part { from } else { to });
        rest = after;
    }
    out.push_str(rest);
    out
}

/// `3s`, `2m5s`: how old something is.
fn is_age(text: &str) -> bool {
    text.len() <= 6
        && text.ends_with(['s', 'm', 'h'])
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text
            .chars()
            .all(|c| c.is_ascii_digit() || "smh".contains(c))
}

fn without_uids(text: &str) -> String {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let bytes = text.as_bytes();
    let length = 36;
    let is_uid = |at: usize| {
        let Some(candidate) = bytes.get(at..at + length) else {
            return false;
        };
        let mut position = 0;
        GROUPS.iter().enumerate().all(|(number, size)| {
            let dash = number == 0 || candidate.get(position - 1) == Some(&b'-');
            let group = candidate.get(position..position + size);
            position += size + 1;
            dash && group.is_some_and(|group| group.iter().all(u8::is_ascii_hexdigit))
        })
    };
    let mut out = String::new();
    let mut at = 0;
    while at < text.len() {
        if is_uid(at) {
            out.push_str("<uid>");
            at += length;
        } else {
            let Some(next) = text.get(at..).and_then(|rest| rest.chars().next()) else {
                break;
            };
            out.push(next);
            at += next.len_utf8();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use serde_json::json;

    #[test]
    fn what_differs_by_nature_goes_and_the_rest_stays() {
        let answer = json!({
            "uid": "6f1c1d51-5a3c-4b0e-9a55-0f1f7c0a7b11",
            "message": "uid ä 6f1c1d51-5a3c-4b0e-9a55-0f1f7c0a7b11!",
            "resourceVersion": "12", "at": "2026-01-02T03:04:05Z",
            "when": "2026-01-02T03:04:05.000001Z", "cells": ["2m5s", "x", 3],
        });
        assert_eq!(
            normalise(answer, &Variables::new(1)),
            json!({
                "uid": "<uid>", "message": "uid ä <uid>!", "resourceVersion": "<version>",
                "at": "<time>", "when": "<time with fraction>", "cells": ["<age>", "x", 3],
            })
        );
    }

    #[test]
    fn number_of_a_warning_is_not_a_revision() {
        let mut variables = Variables::new(1);
        let kept = BTreeMap::from([("version".to_owned(), "/version".to_owned())]);
        variables.keep(&kept, &json!({"version": "299"}));
        let answer = json!({"warnings": ["299 - \"old\""], "message": "at 299"});
        let expected = json!({"warnings": ["299 - \"old\""], "message": "at <version>"});
        assert_eq!(normalise(answer, &variables), expected);
    }
}
