//! Takes out of an answer what differs between any two servers: identities, versions, times.

use jiff::Timestamp;
use serde_json::Value;

use super::ask::Variables;

/// The answer, comparable.
pub(super) fn normalise(mut answer: Value, variables: &Variables) -> Value {
    walk(&mut answer, "", variables);
    answer
}

fn walk(value: &mut Value, key: &str, variables: &Variables) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                walk(value, key, variables);
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
    let mut out = without_uids(text);
    for (name, value) in variables.kept() {
        // Short values would hit by chance.
        if value.len() >= 2 {
            out = out.replace(value, &format!("<{name}>"));
        }
    }
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
}
