//! Documents embedded in strings of the manifests: cloud-init data, JSON in annotations and network
//! definitions. Mistakes there would only be noticed in a guest.

use serde_json::Value;

use super::catalogue::examples;

/// Keys of embedded documents, and their language.
const EMBEDDED: &[(&str, Language)] = &[
    ("userData", Language::UserData),
    ("userdata", Language::UserData),
    ("networkData", Language::Yaml),
    ("networkdata", Language::Yaml),
    ("hooks.kubevirt.io/hookSidecars", Language::Json),
    ("config", Language::Json),
    ("patches", Language::Json),
];

#[derive(Clone, Copy)]
enum Language {
    Json,
    UserData,
    Yaml,
}

#[test]
fn embedded_documents_parse() {
    let mut read = 0;
    for example in examples() {
        for object in &example.objects {
            visit("", object, &mut |language, text| {
                read += 1;
                if let Err(problem) = check(language, text) {
                    panic!("{}: {problem} in\n{text}", example.file);
                }
            });
        }
    }
    assert!(read > 20, "only {read} documents were found");
}

#[test]
fn malformed_documents_are_reported() {
    assert!(check(Language::Json, "[{]").is_err());
    assert!(check(Language::Yaml, "a: b: c").is_err());
    assert!(check(Language::UserData, "echo hello").is_err());
    assert!(check(Language::UserData, "#cloud-config\n- a\n").is_err());
}

fn visit(key: &str, value: &Value, found: &mut impl FnMut(Language, &str)) {
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, value)| visit(key, value, found)),
        Value::Array(items) => items.iter().for_each(|item| visit(key, item, found)),
        Value::String(text) => {
            if let Some((_, language)) = EMBEDDED.iter().find(|(name, _)| *name == key) {
                found(*language, text);
            }
        }
        _ => {}
    }
}

fn check(language: Language, text: &str) -> Result<(), String> {
    match language {
        Language::Json => serde_json::from_str::<Value>(text)
            .map(drop)
            .map_err(|error| error.to_string()),
        Language::Yaml => mapping(text),
        Language::UserData if text.starts_with("#!/bin/sh\n") => Ok(()),
        Language::UserData if text.starts_with("#cloud-config\n") => mapping(text),
        Language::UserData => Err("neither a script nor #cloud-config".to_owned()),
    }
}

fn mapping(text: &str) -> Result<(), String> {
    match serde_saphyr::from_str::<Value>(text) {
        Ok(Value::Object(_)) => Ok(()),
        Ok(other) => Err(format!("not a mapping: {other}")),
        Err(error) => Err(error.to_string()),
    }
}
