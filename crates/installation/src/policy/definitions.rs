//! The policy for virt-controller: which kinds and which aggregated API its credentials may define.

use kubevirt_api::{crds, upload};
use serde_json::{Value, json};

use crate::CONTROLLER_ACCOUNT;

const DEFINITIONS: &str = "ferrovirt-definitions";

/// Refuses creations of other names than those of data volumes and of the tokens of uploads.
pub(super) fn definitions() -> Value {
    let rule = |group: &str, resource: &str| {
        json!({
            "apiGroups": [group], "apiVersions": ["*"], "resources": [resource],
            "operations": ["CREATE"], "scope": "*",
        })
    };
    let registration = format!("{}.{}", upload::VERSION, upload::GROUP);
    let names = crds::IMPORTER.iter().map(|(name, _)| *name);
    let names: Vec<String> = names
        .chain([registration.as_str()])
        .map(|name| format!("'{name}'"))
        .collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": DEFINITIONS},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                rule("apiextensions.k8s.io", "customresourcedefinitions"),
                rule("apiregistration.k8s.io", "apiservices"),
            ]},
            "matchConditions": [{
                "name": "virt-controller",
                "expression": format!(
                    "request.userInfo.username.startsWith('system:serviceaccount:') && \
                     request.userInfo.username.endsWith(':{CONTROLLER_ACCOUNT}')"
                ),
            }],
            "validations": [{
                "expression": format!("object.metadata.?name.orValue('') in [{}]", names.join(", ")),
                "message": "virt-controller defines data volumes and the API for uploads only",
                "reason": "Forbidden",
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virt_controller_defines_data_volumes_only() {
        let policy = definitions();
        let rule = policy["spec"]["validations"][0]["expression"].to_string();
        for name in [
            "'datavolumes.cdi.kubevirt.io'",
            "'v1beta1.upload.cdi.kubevirt.io'",
        ] {
            assert!(rule.contains(name), "{rule}");
        }
        // CDI's own kinds are never ours.
        assert!(!rule.contains("'cdis.cdi.kubevirt.io'"), "{rule}");
    }
}
