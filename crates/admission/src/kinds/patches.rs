//! JSON patch operations that users write as a list of strings.

use json_patch::PatchOperation;
use validation::Violation;

use super::kind::Problem;

const EXAMPLE: &str = r#"{"op": "replace", "path": "/spec/runStrategy", "value": "Halted"}"#;

/// Problems of strings that are not JSON patch operations.
pub(super) fn are_operations(field: &str, patches: &[String]) -> Vec<Problem> {
    let texts = patches.iter().enumerate();
    let problems = texts.filter_map(|(i, text)| {
        let error = read(text).err()?;
        let detail = format!("not a JSON patch operation ({error}); use the form {EXAMPLE}");
        Some(Violation::invalid(format!("{field}[{i}]"), detail).into())
    });
    problems.collect()
}

/// Problems of operations outside the permitted prefixes. Malformed operations are skipped; another
/// rule reports them.
pub(super) fn stay_below(field: &str, patches: &[String], prefixes: &[&str]) -> Vec<Problem> {
    let operations = patches.iter().enumerate();
    let problems = operations.filter_map(|(i, text)| {
        let operation = read(text).ok()?;
        let path = operation.path().as_str();
        let is_below = prefixes.iter().any(|prefix| path.starts_with(prefix));
        let detail = format!(
            "{path:?} cannot be patched; use a path below {}",
            prefixes.join(", ")
        );
        (!is_below).then(|| Violation::invalid(format!("{field}[{i}]"), detail).into())
    });
    problems.collect()
}

fn read(text: &str) -> Result<PatchOperation, serde_json::Error> {
    serde_json::from_str(text)
}
