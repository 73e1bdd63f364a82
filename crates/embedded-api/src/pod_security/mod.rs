//! Pod Security admission: the published Pod Security Standards, by labels of the namespace.
//!
//! - `policy` reads the labels of a namespace;
//! - `checks` are the rules of the standards, one pure function each;
//! - `namespaces` validates the labels and warns about existing pods.
//!
//! Invariants: a pod is checked in the form in which it is stored, after all webhooks; a label that
//! cannot be read means `restricted`. Exempt are the pods that virt-controller creates and the
//! namespaces of the system. No served kind but the pod has a pod's spec.

mod checks;
mod namespaces;
mod policy;

use apimachinery::{Status, meta};
use serde_json::Value;

use self::{checks::Findings, policy::LevelVersion};
use crate::{api::Api, error::ApiError, store::Collection, verbs::Call};

/// The namespaces of the system and of the installation, in which only administrators create pods.
const EXEMPT_NAMESPACES: [&str; 2] = ["kube-system", "kubevirt"];
/// Creates launcher pods, which have host paths if the VM has host disks. Users cannot choose
/// anything else of such a pod.
const EXEMPT_USER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

/// Checks a new or changed pod against its namespace, and the labels of a namespace.
pub(crate) async fn admit(
    api: &Api,
    call: &Call,
    live: Option<&Value>,
    object: &Value,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    // Other subresources of pods and namespaces change neither spec nor labels.
    if call.subresource.is_some() {
        return Ok(());
    }
    if call.kind.is("", "namespaces") {
        warnings.extend(namespaces::admit(api, live, object).await?);
        return Ok(());
    }
    let is_relevant = live.is_none_or(|live| is_significant(live, object));
    if !call.kind.is("", "pods") || !is_relevant || is_exempt(call) {
        return Ok(());
    }
    let namespace = load_namespace(api, &call.namespace).await?;
    let (policy, _) = policy::of(&namespace);
    let refused = checks::evaluate(policy.enforce, object);
    if !refused.is_empty() {
        let why = violates("violates", policy.enforce, &refused);
        return Err(Status::forbidden(call.kind.resource(), meta::name(object), &why).into());
    }
    let audited = checks::evaluate(policy.audit, object);
    if !audited.is_empty() {
        let finding = violates("would violate", policy.audit, &audited);
        let (namespace, name) = (call.namespace.as_str(), meta::name(object));
        tracing::info!(namespace, name, %finding, "pod violates the audited level");
    }
    let warned = checks::evaluate(policy.warn, object);
    if !warned.is_empty() {
        warnings.push(violates("would violate", policy.warn, &warned));
    }
    Ok(())
}

fn violates(verb: &str, level: LevelVersion, found: &Findings) -> String {
    format!("{verb} PodSecurity \"{level}\": {}", found.details())
}

fn is_exempt(call: &Call) -> bool {
    EXEMPT_NAMESPACES.contains(&call.namespace.as_str()) || call.identity.user == EXEMPT_USER
}

async fn load_namespace(api: &Api, name: &str) -> Result<Value, ApiError> {
    let key = Collection::new("", "namespaces").key("", name);
    let stored = api.store.get(&key).await?;
    // Its absence was refused before.
    Ok(stored
        .map(|stored| stored.parse())
        .transpose()?
        .unwrap_or_default())
}

/// Whether an update changes what the checks look at: annotations, images or the list of
/// containers. The rest of the spec is immutable.
fn is_significant(live: &Value, pod: &Value) -> bool {
    let images = |pod: &Value| -> Vec<(Value, Value)> {
        checks::containers(&pod["spec"])
            .map(|container| (container["name"].clone(), container["image"].clone()))
            .collect()
    };
    live["metadata"]["annotations"] != pod["metadata"]["annotations"] || images(live) != images(pod)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_updates_of_images_and_annotations_are_checked() {
        let pod = |image: &str, annotation: &str, label: &str| {
            json!({"metadata": {"annotations": {"a": annotation}, "labels": {"l": label}},
                   "spec": {"containers": [{"name": "c", "image": image}]}})
        };
        let live = pod("i", "x", "y");
        assert!(!is_significant(&live, &pod("i", "x", "z")));
        assert!(is_significant(&live, &pod("j", "x", "y")));
        assert!(is_significant(&live, &pod("i", "z", "y")));
    }
}
