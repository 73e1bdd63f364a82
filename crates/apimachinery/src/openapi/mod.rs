//! `OpenAPI` documents made from the list of resources.

use serde_json::Value;

use crate::Resource;

/// `/openapi/v2`.
pub fn v2(resources: &[Resource], server_version: &str) -> Value {
    drop((resources, server_version));
    Value::Null
}

/// `/openapi/v3`: where the document of each group and version is.
pub fn v3_index(resources: &[Resource]) -> Value {
    let _ = resources;
    Value::Null
}

/// `/openapi/v3/api/v1` and `/openapi/v3/apis/<group>/<version>`.
pub fn v3(
    resources: &[Resource],
    group: &str,
    version: &str,
    server_version: &str,
) -> Option<Value> {
    drop((resources, group, version, server_version));
    None
}
