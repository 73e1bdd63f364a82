//! `--instancetype` and `--preference`: `[KIND/]NAME`.

use serde_json::{Value, json};

use crate::failure::Usage;

/// The reference; `kinds` are those that may stand before the name.
pub(crate) fn reference(
    flag: &'static str,
    text: &str,
    kinds: [&'static str; 2],
) -> Result<Value, Usage> {
    let [namespaced, cluster] = kinds;
    let form = || format!("write NAME, {namespaced}/NAME or {cluster}/NAME");
    let (kind, name) = match text.split_once('/') {
        None => (None, text),
        Some((kind, name)) => (Some(kind.to_ascii_lowercase()), name),
    };
    let known = kind
        .as_ref()
        .is_none_or(|kind| kinds.contains(&kind.as_str()));
    if !known || name.is_empty() || name.contains('/') {
        return Err(Usage::new(format!("{flag} {text}: {}", form())));
    }
    Ok(match kind {
        None => json!({"name": name}),
        Some(kind) => json!({"kind": kind, "name": name}),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_parse() {
        let parse = |text| reference("--flag", text, ["a", "clustera"]);
        assert_eq!(parse("x").unwrap(), json!({"name": "x"}));
        assert_eq!(parse("A/x").unwrap(), json!({"kind": "a", "name": "x"}));
        for wrong in ["", "a/", "b/x", "a/x/y"] {
            let error = parse(wrong).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("--flag {wrong}: write NAME, a/NAME or clustera/NAME")
            );
        }
    }
}
