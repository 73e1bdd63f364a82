//! Commands to QEMU's monitor for what libvirt has no call for, and their answers. Pure.

use serde_json::{Value, json};

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum QmpError {
    #[error("QEMU refuses {command}: {why}")]
    Refused { command: &'static str, why: String },
    #[error("QEMU's answer to {0} is not the expected one")]
    Malformed(&'static str),
}

pub(super) fn command(name: &str, arguments: &Value) -> String {
    json!({"execute": name, "arguments": arguments}).to_string()
}

/// The result of a command.
pub(super) fn result(command: &'static str, answer: &str) -> Result<Value, QmpError> {
    let mut answer: Value =
        serde_json::from_str(answer).map_err(|_| QmpError::Malformed(command))?;
    if let Some(error) = answer.get("error") {
        let why = error["desc"].as_str().unwrap_or("no reason").to_owned();
        return Err(QmpError::Refused { command, why });
    }
    match answer.get_mut("return") {
        Some(result) => Ok(result.take()),
        None => Err(QmpError::Malformed(command)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_a_result_or_an_error() {
        for (answer, expected) in [
            (r#"{"return": [1], "id": "libvirt-3"}"#, Ok(json!([1]))),
            (
                r#"{"error": {"class": "GenericError", "desc": "no node"}}"#,
                Err("QEMU refuses query-block: no node"),
            ),
            (
                "{}",
                Err("QEMU's answer to query-block is not the expected one"),
            ),
            (
                "",
                Err("QEMU's answer to query-block is not the expected one"),
            ),
        ] {
            let found = result("query-block", answer).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        }
    }

    #[test]
    fn command_has_its_arguments() {
        let found: Value = serde_json::from_str(&command("x", &json!({"a": "\"b"}))).unwrap();
        assert_eq!(found, json!({"execute": "x", "arguments": {"a": "\"b"}}));
    }
}
