//! Reads files of templates and of their parameters.

use std::{collections::BTreeMap, io::Read, path::Path};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// API servers take no larger objects.
const MAX_SIZE: u64 = 3 << 20;

/// An object in a file or, for `-`, of standard input.
pub(super) fn read(file: &Path) -> Result<Value> {
    parsed(file, "--file")
}

/// Values of parameters. Numbers and truth values are texts, too, as with `--param`.
pub(super) fn parameters(file: &Path) -> Result<BTreeMap<String, String>> {
    let values: BTreeMap<String, Value> = parsed(file, "--params-file")?;
    let text = |(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
        _ => bail!(
            "--params-file {}: {name}: write a text, a number, true or false",
            file.display()
        ),
    };
    values.into_iter().map(text).collect()
}

fn parsed<T: DeserializeOwned>(file: &Path, flag: &str) -> Result<T> {
    let name = file.display();
    let read = || format!("read {flag} {name}");
    let mut text = String::new();
    if file == Path::new("-") {
        let input = std::io::stdin().lock();
        input
            .take(MAX_SIZE + 1)
            .read_to_string(&mut text)
            .with_context(read)?;
    } else {
        let input = std::fs::File::open(file).with_context(read)?;
        input
            .take(MAX_SIZE + 1)
            .read_to_string(&mut text)
            .with_context(read)?;
    }
    if u64::try_from(text.len()).is_ok_and(|length| length > MAX_SIZE) {
        bail!("{flag} {name} has more than {} MiB", MAX_SIZE >> 20);
    }
    serde_saphyr::from_str(&text).with_context(|| format!("parse {flag} {name} as YAML or JSON"))
}
