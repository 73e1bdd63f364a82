//! Deserialization of the objects of an admission request.

use serde::de::DeserializeOwned;
use serde_json::Value;
use validation::Violation;

/// Reads `object` or `oldObject` of a request.
pub(crate) fn read_object<T: DeserializeOwned>(
    request: &Value,
    name: &str,
) -> Result<T, Violation> {
    serde_path_to_error::deserialize(&request[name]).map_err(|error| {
        let field = match error.path().to_string() {
            path if path == "." => name.to_owned(),
            path => path,
        };
        Violation::invalid(field, error.inner())
    })
}
