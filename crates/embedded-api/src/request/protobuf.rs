//! The few request bodies that `kubectl` always sends as protobuf.
//!
//! Only simple kinds, each as a table of fields. Invariant: a body with a field outside the tables
//! is rejected, never parsed in part. Depth is bounded by the tables, work by the body.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

/// The type of a field.
#[derive(Clone, Copy)]
enum Field {
    Text,
    Texts,
    Number,
    Flag,
    Message(Table),
    /// A map from strings to strings.
    TextMap,
    /// A map from strings to bytes.
    BytesMap,
    /// Set by the server only; skipped.
    Ignored,
}

type Table = &'static [(u64, &'static str, Field)];

const META: Table = &[
    (1, "name", Field::Text),
    (2, "generateName", Field::Text),
    (3, "namespace", Field::Text),
    (4, "selfLink", Field::Ignored),
    (5, "uid", Field::Text),
    (6, "resourceVersion", Field::Text),
    (7, "generation", Field::Ignored),
    (8, "creationTimestamp", Field::Ignored),
    (11, "labels", Field::TextMap),
    (12, "annotations", Field::TextMap),
    (14, "finalizers", Field::Texts),
];

const DELETE_OPTIONS: Table = &[
    (1, "gracePeriodSeconds", Field::Number),
    (
        2,
        "preconditions",
        Field::Message(&[(1, "uid", Field::Text), (2, "resourceVersion", Field::Text)]),
    ),
    (3, "orphanDependents", Field::Flag),
    (4, "propagationPolicy", Field::Text),
    (5, "dryRun", Field::Texts),
];

const RESOURCE: Table = &[
    (1, "namespace", Field::Text),
    (2, "verb", Field::Text),
    (3, "group", Field::Text),
    (4, "version", Field::Text),
    (5, "resource", Field::Text),
    (6, "subresource", Field::Text),
    (7, "name", Field::Text),
];
const PATH: Table = &[(1, "path", Field::Text), (2, "verb", Field::Text)];
const ABOUT: Table = &[
    (1, "resourceAttributes", Field::Message(RESOURCE)),
    (2, "nonResourceAttributes", Field::Message(PATH)),
    (3, "user", Field::Text),
    (4, "groups", Field::Texts),
    (6, "uid", Field::Text),
];
const TOKEN: Table = &[
    (1, "audiences", Field::Texts),
    (
        3,
        "boundObjectRef",
        Field::Message(&[
            (1, "kind", Field::Text),
            (2, "apiVersion", Field::Text),
            (3, "name", Field::Text),
            (4, "uid", Field::Text),
        ]),
    ),
    (4, "expirationSeconds", Field::Number),
];

const KINDS: &[(&str, Table)] = &[
    (
        "Namespace",
        &[
            (1, "metadata", Field::Message(META)),
            (
                2,
                "spec",
                Field::Message(&[(1, "finalizers", Field::Texts)]),
            ),
            (3, "status", Field::Message(&[(1, "phase", Field::Text)])),
        ],
    ),
    (
        "ConfigMap",
        &[
            (1, "metadata", Field::Message(META)),
            (2, "data", Field::TextMap),
            (3, "binaryData", Field::BytesMap),
            (4, "immutable", Field::Flag),
        ],
    ),
    (
        "Secret",
        &[
            (1, "metadata", Field::Message(META)),
            (2, "data", Field::BytesMap),
            (3, "type", Field::Text),
            (4, "stringData", Field::TextMap),
            (5, "immutable", Field::Flag),
        ],
    ),
    ("ServiceAccount", &[(1, "metadata", Field::Message(META))]),
    (
        "Eviction",
        &[
            (1, "metadata", Field::Message(META)),
            (2, "deleteOptions", Field::Message(DELETE_OPTIONS)),
        ],
    ),
    ("DeleteOptions", DELETE_OPTIONS),
    (
        "SelfSubjectReview",
        &[
            (1, "metadata", Field::Message(META)),
            (2, "status", Field::Ignored),
        ],
    ),
    (
        "SelfSubjectAccessReview",
        &[
            (1, "metadata", Field::Message(META)),
            (2, "spec", Field::Message(ABOUT)),
            (3, "status", Field::Ignored),
        ],
    ),
    (
        "SubjectAccessReview",
        &[
            (1, "metadata", Field::Message(META)),
            (2, "spec", Field::Message(ABOUT)),
            (3, "status", Field::Ignored),
        ],
    ),
    (
        "LocalSubjectAccessReview",
        &[
            (1, "metadata", Field::Message(META)),
            (2, "spec", Field::Message(ABOUT)),
            (3, "status", Field::Ignored),
        ],
    ),
    (
        "SelfSubjectRulesReview",
        &[
            (1, "metadata", Field::Message(META)),
            (2, "spec", Field::Message(&[(1, "namespace", Field::Text)])),
            (3, "status", Field::Ignored),
        ],
    ),
    (
        "TokenRequest",
        &[
            (1, "metadata", Field::Message(META)),
            (2, "spec", Field::Message(TOKEN)),
            (3, "status", Field::Ignored),
        ],
    ),
    (
        "TokenReview",
        &[
            (1, "metadata", Field::Message(META)),
            (
                2,
                "spec",
                Field::Message(&[(1, "token", Field::Text), (2, "audiences", Field::Texts)]),
            ),
            (3, "status", Field::Ignored),
        ],
    ),
];

/// Decodes a whole body. None if it is malformed or of an unsupported kind.
pub(crate) fn decode(body: &[u8]) -> Option<Value> {
    let (mut type_meta, mut raw) = (&[][..], &[][..]);
    for field in fields(body.strip_prefix(b"k8s\0")?) {
        match field? {
            (1, Wire::Bytes(bytes)) => type_meta = bytes,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let names: Table = &[(1, "apiVersion", Field::Text), (2, "kind", Field::Text)];
    let Value::Object(mut object) = message(type_meta, names)? else {
        return None;
    };
    let kind = object.get("kind")?.as_str()?;
    let (_, table) = KINDS.iter().find(|(name, _)| *name == kind)?;
    let Value::Object(body) = message(raw, table)? else {
        return None;
    };
    object.extend(body);
    Some(Value::Object(object))
}

fn message(body: &[u8], table: Table) -> Option<Value> {
    let mut out = Map::new();
    for field in fields(body) {
        let (number, wire) = field?;
        let (_, name, field) = table.iter().find(|(known, ..)| *known == number)?;
        let slot = |out: &mut Map<String, Value>, value| {
            out.insert((*name).to_owned(), value);
        };
        match (field, wire) {
            // Absent strings are encoded as empty ones.
            (Field::Ignored, _) | (Field::Text, Wire::Bytes([])) => {}
            (Field::Text, Wire::Bytes(bytes)) => slot(&mut out, text(bytes)?),
            (Field::Number, Wire::Number(number)) => slot(&mut out, number.into()),
            (Field::Flag, Wire::Number(number)) => slot(&mut out, (number != 0).into()),
            (Field::Message(table), Wire::Bytes(bytes)) => slot(&mut out, message(bytes, table)?),
            (Field::Texts, Wire::Bytes(bytes)) => {
                let list = out.entry(*name).or_insert_with(|| Value::Array(Vec::new()));
                list.as_array_mut()?.push(text(bytes)?);
            }
            (Field::TextMap | Field::BytesMap, Wire::Bytes(bytes)) => {
                let map = out
                    .entry(*name)
                    .or_insert_with(|| Value::Object(Map::new()));
                let (key, value) = entry(bytes)?;
                let value = match field {
                    Field::TextMap => text(value)?,
                    _ => STANDARD.encode(value).into(),
                };
                map.as_object_mut()?.insert(key, value);
            }
            _ => return None,
        }
    }
    Some(Value::Object(out))
}

fn entry(body: &[u8]) -> Option<(String, &[u8])> {
    let (mut key, mut value) = (String::new(), &[][..]);
    for field in fields(body) {
        match field? {
            (1, Wire::Bytes(bytes)) => std::str::from_utf8(bytes).ok()?.clone_into(&mut key),
            (2, Wire::Bytes(bytes)) => value = bytes,
            _ => return None,
        }
    }
    Some((key, value))
}

fn text(bytes: &[u8]) -> Option<Value> {
    std::str::from_utf8(bytes).ok().map(Value::from)
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message in order; None in place of a malformed field, which is the last.
fn fields(mut body: &[u8]) -> impl Iterator<Item = Option<(u64, Wire<'_>)>> {
    std::iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let field = take_field(&mut body);
        if field.is_none() {
            body = &[];
        }
        Some(field)
    })
}

fn take_field<'a>(body: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let tag = take_number(body)?;
    let wire = match tag & 7 {
        0 => Wire::Number(take_number(body)?),
        2 => {
            let length = usize::try_from(take_number(body)?).ok()?;
            let (bytes, rest) = body.split_at_checked(length)?;
            *body = rest;
            Wire::Bytes(bytes)
        }
        _ => return None,
    };
    Some((tag >> 3, wire))
}

fn take_number(body: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = body.split_first()?;
        *body = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn namespace_body_is_decoded_and_malformed_ones_are_not() {
        let body = b"k8s\0\n\x0f\n\x02v1\x12\tNamespace\x12\x0d\n\x07\n\x01nB\0\x12\0\x12\0\x1a\0";
        let expected = json!({"apiVersion": "v1", "kind": "Namespace",
                              "metadata": {"name": "n"}, "spec": {}, "status": {}});
        assert_eq!(decode(body), Some(expected));
        for end in 0..body.len() {
            // Truncated anywhere: no panic, and never an object with half its name.
            let cut = decode(&body[..end]);
            assert!(cut.is_none_or(|object| object["metadata"]["name"].is_null()));
        }
        assert_eq!(decode(b"k8s\0\n\x09\n\x02v1\x12\x03Pod"), None);
        assert_eq!(decode(b"{}"), None);
    }
}
