//! The objects of an export.

use serde_json::{Value, json};

use super::cli::{Settings, Source};
use crate::{failure::Usage, key_values, objects};

/// The export and its reference to the Secret with the token.
pub(super) fn export(name: &str, source: &Source, settings: &Settings) -> Result<Value, Usage> {
    let Some((group, kind, source)) = source.reference() else {
        return Err(Usage::new(
            "name what to export with --vm, --snapshot, --pvc or --vmtemplate",
        ));
    };
    let mut metadata = json!({"name": name});
    for (field, pairs) in [
        ("labels", &settings.labels),
        ("annotations", &settings.annotations),
    ] {
        if !pairs.is_empty() {
            metadata[field] = key_values::object(pairs);
        }
    }
    let mut spec = json!({
        "source": {"apiGroup": group, "kind": kind, "name": source},
        "tokenSecretRef": secret_name(name),
    });
    if let Some(ttl) = &settings.ttl {
        spec["ttlDuration"] = ttl.as_str().into();
    }
    Ok(json!({
        "apiVersion": "export.kubevirt.io/v1",
        "kind": "VirtualMachineExport",
        "metadata": metadata,
        "spec": spec,
    }))
}

/// The Secret with the token; it goes with the export.
pub(super) fn secret(export: &Value, name: &str, token: &str) -> anyhow::Result<Value> {
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": secret_name(name), "ownerReferences": [objects::owner(export)?]},
        "stringData": {"token": token},
    }))
}

fn secret_name(export: &str) -> String {
    format!("secret-{export}")
}
