//! Revisions by an older version of `KubeVirt`: which ones to replace by revisions of today's format.

use ::instancetype::reference::{Family, Reference, spec_of_revision};
use k8s_openapi::api::apps::v1::ControllerRevision;
use kubevirt_api::labels;
use serde_json::Value;

use super::references;
use super::revision::{self, Content, VERSION};
use crate::vm::view::Vm;

/// Parts of a UID, which is the last but one part of a revision's name.
const UID_PARTS: usize = 5;

/// A recorded revision of an older format.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::vm) struct Outdated {
    pub(super) reference: Reference,
    /// The name of the revision.
    pub(super) name: String,
    /// The revision to store instead.
    pub(super) body: Value,
}

/// The recorded revisions that may be outdated: their names lack the current version. A revision that
/// the VM's spec names is the user's own and stays.
pub(super) fn candidates(vm: &Vm) -> Vec<Reference> {
    let references = references(vm, &vm.status()).unwrap_or_default();
    let all = references.into_iter().flatten();
    let recorded = all.filter(|reference| !is_pinned(vm, reference.family));
    let is_old = |name: &String| !has_current_version(name);
    recorded
        .filter(|reference| reference.revision.as_ref().is_some_and(is_old))
        .collect()
}

fn is_pinned(vm: &Vm, family: Family) -> bool {
    let matcher = match family {
        Family::Instancetype => &vm.spec.instancetype,
        Family::Preference => &vm.spec.preference,
    };
    let name = matcher
        .as_ref()
        .and_then(|matcher| matcher.get("revisionName"));
    name.and_then(Value::as_str)
        .is_some_and(|name| !name.is_empty())
}

/// Names end in version, UID and generation; older ones have no version.
fn has_current_version(name: &str) -> bool {
    name.rsplit('-').nth(1 + UID_PARTS) == Some(VERSION)
}

/// How to replace the revision, unless it is current or unreadable. The start of a guest reports
/// unreadable revisions.
pub(super) fn outdated(
    vm: &Vm,
    reference: Reference,
    revision: &ControllerRevision,
) -> Option<Outdated> {
    let labels = revision.metadata.labels.as_ref();
    let version = labels.and_then(|labels| labels.get(labels::OBJECT_VERSION));
    if version.is_some_and(|version| version == VERSION) {
        return None;
    }
    let data = revision.data.as_ref()?;
    let spec = spec_of_revision(&data.0, &reference).ok()?;
    let body = revision::body(vm, &Content::of_revision(&reference, revision, spec));
    let name = revision.metadata.name.clone()?;
    (body["metadata"]["name"] != *name).then_some(Outdated {
        reference,
        name,
        body,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "5a3f8c1e-2b74-4c0d-9e61-0d7f3a9b1c22";

    fn vm(matcher: &Value, recorded: &str) -> Vm {
        let vm = json!({
            "metadata": {"name": "a", "namespace": "default", "uid": "vm-uid"},
            "spec": {"instancetype": matcher},
            "status": {"instancetypeRef": {
                "name": "small", "kind": "VirtualMachineClusterInstancetype",
                "controllerRevisionRef": {"name": recorded},
            }},
        });
        serde_json::from_value(vm).unwrap()
    }

    #[test]
    fn only_recorded_revisions_without_the_current_version_are_candidates() {
        let old = format!("a-small-{UID}-1");
        let current = format!("a-small-v1beta1-{UID}-1");
        let choice = json!({"name": "small"});
        let pinned = json!({"name": "small", "revisionName": old});
        for (matcher, recorded, expected) in [
            (&choice, &old, 1),
            (&choice, &current, 0),
            (&pinned, &old, 0),
            (&Value::Null, &old, 0),
        ] {
            let found = candidates(&vm(matcher, recorded));
            assert_eq!(found.len(), expected, "{matcher} {recorded}");
        }
    }

    #[test]
    fn outdated_revision_is_replaced_by_its_content_in_the_current_format() {
        let old = format!("a-small-{UID}-2");
        let vm = vm(&json!({"name": "small"}), &old);
        let reference = candidates(&vm).remove(0);
        let kind = "VirtualMachineClusterInstancetype";
        let spec = json!({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}});
        let whole = json!({"kind": kind, "spec": spec, "metadata": {
            "name": "small", "uid": UID, "generation": 2,
        }});
        let text = json!({
            "apiVersion": "instancetype.kubevirt.io/v1alpha1",
            // The spec below.
            "spec": "eyJjcHUiOnsiZ3Vlc3QiOjJ9LCJtZW1vcnkiOnsiZ3Vlc3QiOiIxR2kifX0=",
        });
        let labels = json!({
            "instancetype.kubevirt.io/object-uid": UID,
            "instancetype.kubevirt.io/object-generation": "2",
        });
        for (data, labels) in [(whole, json!({})), (text, labels)] {
            let revision =
                json!({"metadata": {"name": old, "labels": labels}, "data": data, "revision": 0});
            let revision = serde_json::from_value(revision).unwrap();
            let found = outdated(&vm, reference.clone(), &revision).unwrap();
            assert_eq!(found.name, old);
            let body = &found.body;
            assert_eq!(
                body["metadata"]["name"],
                *format!("a-small-v1beta1-{UID}-2")
            );
            let label = &body["metadata"]["labels"]["instancetype.kubevirt.io/object-version"];
            assert_eq!(label, "v1beta1");
            assert_eq!(body["data"]["kind"], kind);
            assert_eq!(body["data"]["spec"], spec);
        }
    }

    #[test]
    fn current_and_unreadable_revisions_stay() {
        let vm = vm(&json!({"name": "small"}), "own");
        let reference = candidates(&vm).remove(0);
        let labels = json!({"instancetype.kubevirt.io/object-version": "v1beta1"});
        let spec = json!({"cpu": {"guest": 2}, "memory": {"guest": "1Gi"}});
        for (labels, data) in [
            (labels, json!({"spec": spec})),
            (json!({}), json!({"spec": "?"})),
            (json!({}), json!({"kind": "StatefulSet", "spec": {}})),
        ] {
            let revision =
                json!({"metadata": {"name": "own", "labels": labels}, "data": data, "revision": 0});
            let revision = serde_json::from_value(revision).unwrap();
            assert_eq!(outdated(&vm, reference.clone(), &revision), None);
        }
    }
}
