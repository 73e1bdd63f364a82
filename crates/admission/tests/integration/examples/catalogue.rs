//! The example files: their header comments and objects.

use std::{fs, path::PathBuf};

use serde_json::Value;

/// A file of `examples/`.
#[derive(Debug)]
pub(crate) struct Example {
    pub(crate) file: String,
    /// The first line after "Shows".
    pub(crate) shows: String,
    pub(crate) gates: Vec<String>,
    /// Parts of the expected warnings.
    pub(crate) warns: Vec<String>,
    pub(crate) objects: Vec<Value>,
}

/// Maximum length of the first line without its comment mark.
const MAX_SENTENCE: usize = 98;

pub(crate) fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// All files, sorted by name.
pub(crate) fn examples() -> Vec<Example> {
    let mut examples: Vec<Example> = fs::read_dir(directory())
        .expect("examples")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .map(|path| {
            let file = path.file_name().expect("name").to_string_lossy();
            let text = fs::read_to_string(&path).expect("readable");
            read(&file, &text)
                .map_err(|problem| format!("{file}: {problem}"))
                .expect("an example")
        })
        .collect();
    examples.sort_by(|left, right| left.file.cmp(&right.file));
    examples
}

fn read(file: &str, text: &str) -> Result<Example, String> {
    let mut header = text.lines().map_while(|line| line.strip_prefix("# "));
    let shows = header
        .next()
        .filter(|line| line.ends_with('.') && line.len() <= MAX_SENTENCE)
        .and_then(|line| line.strip_prefix("Shows "))
        .ok_or(
            "must begin with a sentence on one line of at most 100 characters: # Shows a secret.",
        )?;
    let mut gates = Vec::new();
    let mut warns = Vec::new();
    for line in header {
        if let Some(names) = line.strip_prefix("gates: ") {
            gates.extend(names.split(", ").map(str::to_owned));
        }
        if let Some(part) = line.strip_prefix("warns: ") {
            warns.push(part.to_owned());
        }
    }
    let objects: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
    if objects.is_empty() {
        return Err("holds no object".to_owned());
    }
    Ok(Example {
        file: file.to_owned(),
        shows: shows.to_owned(),
        gates,
        warns,
        objects,
    })
}

/// Group and version; the core group of Kubernetes is empty.
pub(crate) fn group_and_version(object: &Value) -> (&str, &str) {
    let api_version = object["apiVersion"].as_str().expect("apiVersion");
    api_version.split_once('/').unwrap_or(("", api_version))
}

pub(crate) fn kind(object: &Value) -> &str {
    object["kind"].as_str().expect("kind")
}

/// Whether an object is of an API group that Ferrovirt serves.
pub(crate) fn is_ours(object: &Value) -> bool {
    let (group, _) = group_and_version(object);
    !group.starts_with("cdi.") && (group == "kubevirt.io" || group.ends_with(".kubevirt.io"))
}

#[test]
fn example_without_description_is_refused() {
    let object = "apiVersion: v1\nkind: Secret\n";
    assert!(read("a.yaml", &format!("# Shows a secret.\n{object}")).is_ok());
    assert!(read("a.yaml", object).is_err());
    assert!(
        read(
            "a.yaml",
            &format!("# Shows a secret\n# of two lines.\n{object}")
        )
        .is_err()
    );
    assert!(read("a.yaml", "# Shows nothing.\n").is_err());
}
