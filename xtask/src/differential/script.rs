//! Scenarios: requests as data.
//!
//! `scenarios/*.yaml` are lists of scenarios, each a list of requests. `objects/*.yaml` are tables
//! of objects made from a base by setting and dropping fields; each row becomes one request.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

/// Requests that go one after the other, in a namespace of their own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
}

/// One request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Step {
    /// `METHOD path`, with `$variables`.
    pub(super) ask: String,
    /// The language of the body, by a short name: `merge`, `json`, `strategic`, `apply`, or in full.
    #[serde(rename = "as", default)]
    pub(super) language: Option<String>,
    #[serde(default)]
    pub(super) accept: Option<String>,
    #[serde(default)]
    pub(super) agent: Option<String>,
    /// The user to impersonate.
    #[serde(default)]
    pub(super) user: Option<String>,
    #[serde(default)]
    pub(super) groups: Vec<String>,
    /// Sent as JSON, with `$variables` in its texts.
    #[serde(default)]
    pub(super) body: Option<Value>,
    /// A raw body, for bodies that are not JSON.
    #[serde(default)]
    pub(super) text: Option<String>,
    /// Variables to take from the answer, by JSON pointers.
    #[serde(default)]
    pub(super) keep: BTreeMap<String, String>,
    /// The answer is a watch: read so many events. With zero, read until the server ends it.
    #[serde(default)]
    pub(super) events: Option<usize>,
    /// The request changes nothing, and is sent until its response has what this JSON pointer names: the caches from
    /// which a server answers may follow a write after a while.
    #[serde(default)]
    pub(super) until: Option<String>,
    /// JSON pointers to ignored parts of the response.
    #[serde(default)]
    pub(super) ignore: Vec<String>,
}

/// A table of objects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// Where objects of these kinds are made.
    paths: BTreeMap<String, String>,
    bases: BTreeMap<String, Value>,
    cases: Vec<Case>,
}

/// A row.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    say: String,
    base: String,
    #[serde(default)]
    set: BTreeMap<String, Value>,
    #[serde(default)]
    drop: Vec<String>,
    /// Sent with the request, as `fieldValidation=Strict`.
    #[serde(default)]
    query: Option<String>,
}

/// All scenarios under `directory`, in the order of file names.
pub(super) fn read(directory: &Path) -> Result<Vec<Scenario>> {
    let mut out = Vec::new();
    for path in files(&directory.join("scenarios"))? {
        out.extend(parsed::<Vec<Scenario>>(&path)?);
    }
    for path in files(&directory.join("objects"))? {
        let table: Table = parsed(&path)?;
        let name = path
            .file_stem()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        out.extend(scenarios(name, table)?);
    }
    let mut names: Vec<&str> = out.iter().map(|scenario| scenario.name.as_str()).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        ensure!(pair[0] != pair[1], "two scenarios are called {:?}", pair[0]);
    }
    Ok(out)
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut out = fs::read_dir(directory)
        .with_context(|| format!("read {}", directory.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    out.sort();
    Ok(out)
}

fn parsed<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    // A letter `y` is a letter.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options)
        .with_context(|| format!("read {}", path.display()))
}

/// Each row is a separate scenario, so that rows cannot affect each other.
fn scenarios(table_name: &str, table: Table) -> Result<Vec<Scenario>> {
    let Table {
        paths,
        bases,
        cases,
    } = table;
    cases
        .into_iter()
        .map(|case| {
            let base = bases
                .get(&case.base)
                .with_context(|| format!("there is no base {:?}", case.base))?;
            let kind = base["kind"].as_str().unwrap_or_default();
            let version = base["apiVersion"].as_str().unwrap_or_default();
            let path = paths
                .get(&format!("{version} {kind}"))
                .with_context(|| format!("there is no path for {version} {kind}"))?;
            let query = case.query.map(|query| format!("?{query}"));
            let mut body = base.clone();
            for pointer in &case.drop {
                drop_at(&mut body, pointer).with_context(|| case.say.clone())?;
            }
            for (pointer, value) in case.set {
                set_at(&mut body, &pointer, value).with_context(|| case.say.clone())?;
            }
            Ok(Scenario {
                name: format!("{table_name}: {}", case.say),
                steps: vec![Step {
                    ask: format!("POST {path}{}", query.unwrap_or_default()),
                    body: Some(body),
                    ..Step::default()
                }],
            })
        })
        .collect()
}

/// Sets what a JSON pointer names, making objects on the way; `-` appends to a list.
fn set_at(object: &mut Value, pointer: &str, value: Value) -> Result<()> {
    let mut at = object;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        if !at.is_array() && !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = match at {
            Value::Array(items) => {
                let index = if token == "-" {
                    items.push(Value::Null);
                    items.len() - 1
                } else {
                    token.parse().with_context(|| pointer.to_owned())?
                };
                items.get_mut(index).with_context(|| pointer.to_owned())?
            }
            Value::Object(fields) => fields.entry(token).or_insert(Value::Null),
            _ => bail!("{pointer}: no object"),
        };
    }
    *at = value;
    Ok(())
}

fn drop_at(object: &mut Value, pointer: &str) -> Result<()> {
    let (parent, last) = pointer.rsplit_once('/').context("not a pointer")?;
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            ensure!(
                fields.shift_remove(last).is_some(),
                "{pointer}: nothing there"
            );
        }
        Some(Value::Array(items)) => {
            let index: usize = last.parse().with_context(|| pointer.to_owned())?;
            ensure!(index < items.len(), "{pointer}: nothing there");
            items.remove(index);
        }
        _ => bail!("{pointer}: nothing there"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_change_their_base() {
        let mut object = json!({"a": {"b": [1]}, "c": 2});
        set_at(&mut object, "/a/b/-", json!(3)).unwrap();
        set_at(&mut object, "/x/y~1z", json!(4)).unwrap();
        drop_at(&mut object, "/c").unwrap();
        drop_at(&mut object, "/a/b/0").unwrap();
        assert_eq!(object, json!({"a": {"b": [3]}, "x": {"y/z": 4}}));
        assert!(drop_at(&mut object, "/c").is_err());
    }

    #[test]
    fn everything_that_is_checked_in_can_be_read() {
        let all = read(&crate::workspace::root().join("xtask/differential")).unwrap();
        assert!(all.iter().all(|scenario| !scenario.steps.is_empty()));
    }
}
