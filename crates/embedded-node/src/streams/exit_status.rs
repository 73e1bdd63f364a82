//! The `Status` object that ends a session.

use std::io;

use pod_supervisor::exec::Outcome;
use serde_json::{Value, json};

pub(super) fn success() -> Value {
    json!({"metadata": {}, "status": "Success"})
}

/// The `Status` object where clients find the exit code.
pub(super) fn exit_status(outcome: io::Result<Outcome>) -> Value {
    match outcome {
        Ok(Outcome::Exited { code: 0 }) => success(),
        Ok(Outcome::Exited { code }) => json!({
            "metadata": {},
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: {code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Ok(Outcome::Failed { message }) => internal_error(&message),
        Err(error) => internal_error(&error.to_string()),
    }
}

fn internal_error(error: &str) -> Value {
    let message = format!("error executing command in container: {error}");
    json!({
        "metadata": {},
        "status": "Failure",
        "reason": "InternalError",
        "message": format!("Internal error occurred: {message}"),
        "details": {"causes": [{"message": message}]},
        "code": 500,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_in_the_status() {
        let code = |code| exit_status(Ok(Outcome::Exited { code }));
        assert_eq!(code(0)["status"], "Success");
        let failed = code(7);
        assert_eq!(failed["reason"], "NonZeroExitCode");
        assert_eq!(
            failed["details"]["causes"][0],
            json!({"reason": "ExitCode", "message": "7"})
        );
        let message = "no such program".to_owned();
        let never = exit_status(Ok(Outcome::Failed { message }));
        assert_eq!(never["reason"], "InternalError");
    }
}
