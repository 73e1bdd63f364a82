//! Compares the rows of kinds with the definitions.

use serde_json::Value;

use super::facts::{Definition, Version};

/// The differences of a CRD; `None` if there is no CRD.
pub(super) fn differences(kind: &Definition, definition: Option<&Value>) -> Vec<String> {
    let Some(definition) = definition else {
        return vec!["missing".to_owned()];
    };
    let spec = &definition["spec"];
    let names = &spec["names"];
    let mut gaps = Vec::new();
    for (what, wanted, found) in [
        ("group", &kind.group, &spec["group"]),
        ("kind", &kind.kind, &names["kind"]),
        ("list kind", &kind.list_kind, &names["listKind"]),
        ("plural", &kind.plural, &names["plural"]),
        ("singular", &kind.singular, &names["singular"]),
        ("scope", &kind.scope, &spec["scope"]),
    ] {
        if found.as_str() != Some(wanted) {
            gaps.push(format!("{what} is {found}, not {wanted:?}"));
        }
    }
    let conversion = spec["conversion"]["strategy"].as_str().unwrap_or("None");
    if conversion != kind.conversion {
        gaps.push(format!(
            "conversion is {conversion}, not {}",
            kind.conversion
        ));
    }
    for (what, wanted, found) in [
        ("short names", &kind.short_names, &names["shortNames"]),
        ("categories", &kind.categories, &names["categories"]),
    ] {
        let found = texts(found);
        if found != *wanted {
            gaps.push(format!("{what} are {found:?}, not {wanted:?}"));
        }
    }
    let labels = &definition["metadata"]["labels"];
    if !kind.label.is_empty() && labels[&kind.label].is_null() {
        gaps.push(format!("lacks the label {}", kind.label));
    }
    gaps.extend(versions(kind, &spec["versions"]));
    gaps
}

fn versions(kind: &Definition, versions: &Value) -> Vec<String> {
    let found = versions.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut gaps: Vec<String> = found
        .iter()
        .filter(|one| {
            !kind
                .versions
                .iter()
                .any(|wanted| one["name"] == *wanted.name)
        })
        .map(|one| format!("version {} is not in the table", one["name"]))
        .collect();
    for wanted in &kind.versions {
        match found.iter().find(|one| one["name"] == *wanted.name) {
            Some(version) => gaps.extend(
                of_version(kind, wanted, version)
                    .into_iter()
                    .map(|gap| format!("version {}: {gap}", wanted.name)),
            ),
            None => gaps.push(format!("version {} is missing", wanted.name)),
        }
    }
    gaps
}

fn of_version(kind: &Definition, wanted: &Version, version: &Value) -> Vec<String> {
    let mut gaps = Vec::new();
    for (what, wanted, found) in [
        ("served", true, &version["served"]),
        ("storage", wanted.is_stored, &version["storage"]),
        ("deprecated", wanted.is_deprecated, &version["deprecated"]),
    ] {
        if found.as_bool().unwrap_or(false) != wanted {
            gaps.push(format!("{what} is {found}, not {wanted}"));
        }
    }
    let subresources = &version["subresources"];
    if subresources["status"].is_object() != kind.has_status {
        gaps.push(format!(
            "subresource status should{} be",
            if kind.has_status { "" } else { " not" }
        ));
    }
    let scale = &subresources["scale"];
    let paths = scale.is_object().then(|| {
        [
            "specReplicasPath",
            "statusReplicasPath",
            "labelSelectorPath",
        ]
        .map(|key| scale[key].as_str().unwrap_or_default().to_owned())
    });
    if paths != kind.scale {
        gaps.push(format!("scale is {paths:?}, not {:?}", kind.scale));
    }
    let columns: Vec<String> = version["additionalPrinterColumns"]
        .as_array()
        .into_iter()
        .flatten()
        .map(column)
        .collect();
    if columns != kind.columns {
        gaps.push(format!("columns are {columns:?}, not {:?}", kind.columns));
    }
    gaps
}

fn column(column: &Value) -> String {
    let text = |key: &str| column[key].as_str().unwrap_or_default().to_owned();
    let priority = column["priority"].as_i64().unwrap_or(0);
    format!(
        "{}|{}|{}|{priority}",
        text("name"),
        text("jsonPath"),
        text("type")
    )
}

fn texts(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
