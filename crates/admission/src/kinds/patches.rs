//! JSON patch operations that users write as texts in a list.

use json_patch::PatchOperation;

use super::Fault;
use crate::Violation;

const EXAMPLE: &str = r#"{"op": "replace", "path": "/spec/runStrategy", "value": "Halted"}"#;

/// What is wrong with texts that are no operations.
pub(super) fn are_operations(field: &str, patches: &[String]) -> Vec<Fault> {
    let texts = patches.iter().enumerate();
    let faults = texts.filter_map(|(i, text)| {
        let error = read(text).err()?;
        let detail = format!("no JSON patch operation ({error}); write one such as {EXAMPLE}");
        Some(Violation::invalid(format!("{field}[{i}]"), detail).into())
    });
    faults.collect()
}

/// What is wrong with operations that reach beyond the prefixes. Texts that are no operations are
/// passed over.
pub(super) fn stay_below(field: &str, patches: &[String], prefixes: &[&str]) -> Vec<Fault> {
    let operations = patches.iter().enumerate();
    let strays = operations.filter_map(|(i, text)| {
        let operation = read(text).ok()?;
        let path = operation.path().as_str();
        let is_below = prefixes.iter().any(|prefix| path.starts_with(prefix));
        let detail = format!(
            "{path:?} may not be patched; only paths under {} may",
            prefixes.join(", ")
        );
        (!is_below).then(|| Violation::invalid(format!("{field}[{i}]"), detail).into())
    });
    strays.collect()
}

fn read(text: &str) -> Result<PatchOperation, serde_json::Error> {
    serde_json::from_str(text)
}
