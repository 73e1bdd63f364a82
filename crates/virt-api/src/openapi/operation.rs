//! One path of a document, from the entry of its verb.

use apimachinery::openapi::Dialect;
use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::name_of;
use crate::verbs::{Answer, Entry, Level, Verb};

/// The path with its operation and the parameters that stand in it.
pub(super) fn path_item(entry: &Entry, version: &str, path: &str, dialect: Dialect) -> Value {
    let method = match entry.verb {
        Verb::Get => "get",
        Verb::Update => "put",
        Verb::Create => "post",
    };
    let names: Vec<&str> = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .collect();
    let parameters: Vec<Value> = names
        .iter()
        .map(|name| parameter(name, "path", "string", dialect))
        .collect();
    let operation = operation(entry, version, &names, dialect);
    json!({ method: operation, "parameters": parameters })
}

fn operation(entry: &Entry, version: &str, names: &[&str], dialect: Dialect) -> Value {
    let contract = &entry.contract;
    let query = contract.query.iter();
    let mut parameters: Vec<Value> = query
        .map(|(name, kind)| parameter(name, "query", kind, dialect))
        .collect();
    let mut out = json!({
        "description": description(entry),
        "operationId": id(entry, version, names),
        "responses": responses(entry, dialect),
    });
    if let Some(body) = contract.body {
        let schema = dialect.reference(&name_of(body));
        match dialect {
            Dialect::V2 => {
                let body = json!({"name": "body", "in": "body", "schema": schema});
                parameters.insert(0, body);
                out["consumes"] = json!(["application/json", "application/yaml"]);
            }
            Dialect::V3 => {
                let content = json!({"application/json": {"schema": schema}});
                out["requestBody"] = json!({ "content": content });
            }
        }
    }
    if dialect == Dialect::V2
        && let Some(media_type) = contract.answer.media_type()
    {
        out["produces"] = json!([media_type]);
    }
    if !parameters.is_empty() {
        out["parameters"] = parameters.into();
    }
    out
}

fn description(entry: &Entry) -> String {
    let resource = entry.resource();
    match entry.instead() {
        None => format!("{} {resource}", entry.verb.name()),
        Some(instead) => format!(
            "{} {resource}: not implemented. {instead}.",
            entry.verb.name()
        ),
    }
}

/// `getV1NamespacedVirtualmachinePortforwardPort`
fn id(entry: &Entry, version: &str, names: &[&str]) -> String {
    let ends = names
        .iter()
        .filter(|name| !matches!(**name, "namespace" | "name"));
    let words = [entry.verb.name(), version]
        .into_iter()
        .chain(names.contains(&"namespace").then_some("namespaced"))
        .chain([entry.object.singular()])
        .chain(entry.name.split(['/', '-']))
        .chain(ends.copied());
    let mut out = "subresources".to_owned();
    for word in words {
        let mut letters = word.chars();
        out.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        out.extend(letters);
    }
    out
}

/// A verb that is not built has no success.
fn responses(entry: &Entry, dialect: Dialect) -> Value {
    let contract = &entry.contract;
    let mut out = Map::new();
    let mut add = |code: u16, content: Map<String, Value>| {
        let status = StatusCode::from_u16(code).ok();
        let reason = status.and_then(|status| status.canonical_reason());
        let mut response = content;
        response.insert("description".to_owned(), reason.unwrap_or_default().into());
        out.insert(code.to_string(), response.into());
    };
    if entry.is_built() {
        add(contract.answer.code(), content(contract.answer, dialect));
    } else {
        add(501, Map::new());
    }
    if entry.level != Level::Everyone {
        add(401, Map::new());
    }
    for code in contract.refusals {
        add(*code, Map::new());
    }
    out.sort_keys();
    out.into()
}

fn content(answer: Answer, dialect: Dialect) -> Map<String, Value> {
    let Some(media_type) = answer.media_type() else {
        return Map::new();
    };
    let schema = match answer {
        Answer::Object(name) => dialect.reference(&name_of(name)),
        Answer::Png => json!({"type": "string", "format": "binary"}),
        _ => json!({"type": "object"}),
    };
    let content = match dialect {
        Dialect::V2 => json!({ "schema": schema }),
        Dialect::V3 => json!({"content": {media_type: {"schema": schema}}}),
    };
    match content {
        Value::Object(content) => content,
        _ => Map::new(),
    }
}

fn parameter(name: &str, place: &str, kind: &str, dialect: Dialect) -> Value {
    let mut out = json!({"name": name, "in": place});
    if place == "path" {
        out["required"] = true.into();
    }
    match dialect {
        Dialect::V2 => out["type"] = kind.into(),
        Dialect::V3 => out["schema"] = json!({ "type": kind }),
    }
    out
}
