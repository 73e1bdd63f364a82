//! What to do next for one persistent volume claim: pure.

use k8s_openapi::api::{
    core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kubevirt_api::quantity::Amount;
use reasons::Reason;

use super::{CLAIM_PROTECTION, PROVISIONER, backing::Mode};

pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// All that decides about a claim.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    pub(crate) claim: &'a PersistentVolumeClaim,
    pub(crate) volumes: &'a [std::sync::Arc<PersistentVolume>],
    pub(crate) classes: &'a [std::sync::Arc<StorageClass>],
    /// A pod that waits for nothing but its volumes.
    pub(crate) has_consumer: Consumer,
    /// A pod on this node mentions the claim.
    pub(crate) usage: Usage,
    pub(crate) node: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consumer {
    None,
    Waiting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Usage {
    Unused,
    InUse,
}

/// One step; after each of them the claim is looked at again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nobody may take it away while a pod uses it.
    Protect,
    Unprotect,
    SetClass(String),
    SelectNode,
    Provision {
        class: String,
        mode: Mode,
    },
    /// Writes the claim into the volume.
    TakeVolume(String),
    /// Writes the volume into the claim.
    Bind(String),
    /// The status: bound to a volume with that much in it.
    ShowBound(String),
    ShowLost(Reason, String),
    /// Nothing to do but to say why.
    Say(Note),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) kind: reconcile::EventType,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Note {
    fn normal(reason: Reason, message: impl Into<String>) -> Step {
        Step::Say(Self {
            kind: reconcile::EventType::Normal,
            reason,
            message: message.into(),
        })
    }

    fn warning(reason: Reason, message: impl Into<String>) -> Step {
        Step::Say(Self {
            kind: reconcile::EventType::Warning,
            reason,
            message: message.into(),
        })
    }
}

pub(crate) fn next(seen: &Seen<'_>) -> Option<Step> {
    let claim = seen.claim;
    let protected = has_finalizer(&claim.metadata, CLAIM_PROTECTION);
    if claim.metadata.deletion_timestamp.is_some() {
        let free = protected && seen.usage == Usage::Unused;
        return free.then_some(Step::Unprotect);
    }
    if !protected {
        return Some(Step::Protect);
    }
    match volume_name(claim) {
        Some(name) => bound(seen, name),
        None => unbound(seen),
    }
}

/// The claim names a volume: is it really ours, and does the status say so?
fn bound(seen: &Seen<'_>, name: &str) -> Option<Step> {
    let claim = seen.claim;
    let phase = phase(claim);
    let Some(volume) = seen.volumes.iter().find(|one| named(one, name)) else {
        let was_bound = annotation(claim, BIND_COMPLETED).is_some();
        let lost = was_bound && phase != "Lost";
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lost.then(|| Step::ShowLost(Reason::ClaimLost, message.to_owned()));
    };
    match volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref())
    {
        None => Some(Step::TakeVolume(name.to_owned())),
        Some(reference) if is_for(reference, claim) && reference.uid.is_none() => {
            Some(Step::TakeVolume(name.to_owned()))
        }
        Some(reference) if reference.uid == claim.metadata.uid => {
            if annotation(claim, BIND_COMPLETED).is_none() {
                Some(Step::Bind(name.to_owned()))
            } else {
                (phase != "Bound").then(|| Step::ShowBound(name.to_owned()))
            }
        }
        Some(_) => (phase != "Lost").then(|| {
            let message = format!("Volume {name:?} is bound to another claim");
            Step::ShowLost(Reason::ClaimMisbound, message)
        }),
    }
}

fn unbound(seen: &Seen<'_>) -> Option<Step> {
    let claim = seen.claim;
    let refers_to_us = |volume: &&std::sync::Arc<PersistentVolume>| {
        let reference = volume
            .spec
            .as_ref()
            .and_then(|spec| spec.claim_ref.as_ref());
        reference.is_some_and(|reference| {
            is_for(reference, claim)
                && (reference.uid == claim.metadata.uid || reference.uid.is_none())
        })
    };
    if let Some(volume) = seen.volumes.iter().find(refers_to_us) {
        return Some(Step::Bind(volume.metadata.name.clone()?));
    }
    let Some(class_name) = class_name(claim) else {
        return match default_class(seen.classes) {
            Some(class) => Some(Step::SetClass(class)),
            None => match fitting(seen, "") {
                Some(name) => Some(Step::TakeVolume(name)),
                None => Some(no_volume()),
            },
        };
    };
    let class = seen
        .classes
        .iter()
        .find(|class| class.metadata.name.as_deref() == Some(class_name));
    let waits = class.and_then(|class| class.volume_binding_mode.as_deref())
        == Some("WaitForFirstConsumer");
    let selected = annotation(claim, SELECTED_NODE);
    if waits && selected.is_none() {
        return match seen.has_consumer {
            Consumer::Waiting => Some(Step::SelectNode),
            Consumer::None => Some(Note::normal(
                Reason::WaitForFirstConsumer,
                "waiting for first consumer to be created before binding",
            )),
        };
    }
    if let Some(name) = fitting(seen, class_name) {
        return Some(Step::TakeVolume(name));
    }
    if class_name.is_empty() {
        return Some(no_volume());
    }
    let Some(class) = class else {
        let message = format!("storageclass.storage.k8s.io {class_name:?} not found");
        return Some(Note::warning(Reason::ProvisioningFailed, message));
    };
    if selected.is_some_and(|node| node != seen.node) {
        return None;
    }
    provision(seen, class, class_name)
}

fn provision(seen: &Seen<'_>, class: &StorageClass, class_name: &str) -> Option<Step> {
    match class.provisioner.as_str() {
        PROVISIONER => {}
        "kubernetes.io/no-provisioner" => return Some(no_volume()),
        other => {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{other}' \
                 or manually by the system administrator. If volume creation is delayed, please \
                 verify that the provisioner is running and correctly registered."
            );
            return Some(Note::normal(Reason::ExternalProvisioning, message));
        }
    }
    let spec = seen.claim.spec.as_ref()?;
    if spec.data_source.is_some() || spec.data_source_ref.is_some() {
        let message = format!(
            "storage class {class_name:?} makes empty volumes only: it cannot fill one from the \
             claim's dataSource"
        );
        return Some(Note::warning(Reason::ProvisioningFailed, message));
    }
    if spec.selector.is_some() {
        let message = "claim Selector is not supported";
        return Some(Note::warning(Reason::ProvisioningFailed, message));
    }
    Some(Step::Provision {
        class: class_name.to_owned(),
        mode: mode(seen.claim),
    })
}

fn no_volume() -> Step {
    Note::normal(
        Reason::FailedBinding,
        "no persistent volumes available for this claim and no storage class is set",
    )
}

/// The smallest free volume of that class that has all that the claim asks for.
fn fitting(seen: &Seen<'_>, class: &str) -> Option<String> {
    let claim = seen.claim.spec.as_ref()?;
    let wanted = requested(seen.claim)?;
    let fits = |volume: &PersistentVolume| -> Option<(Amount, String)> {
        let spec = volume.spec.as_ref()?;
        let capacity = Amount::parse(spec.capacity.as_ref()?.get("storage")?).ok()?;
        let modes = spec.access_modes.as_deref().unwrap_or_default();
        let all_modes = claim
            .access_modes
            .iter()
            .flatten()
            .all(|mode| modes.contains(mode));
        let labels = claim
            .selector
            .as_ref()
            .is_none_or(|selector| selects(selector, volume.metadata.labels.as_ref()));
        let fits = spec.claim_ref.is_none()
            && volume.metadata.deletion_timestamp.is_none()
            && spec.storage_class_name.as_deref().unwrap_or_default() == class
            && volume_mode(spec.volume_mode.as_deref()) == mode(seen.claim)
            && capacity >= wanted
            && all_modes
            && labels;
        fits.then(|| Some((capacity, volume.metadata.name.clone()?)))?
    };
    let all = seen.volumes.iter().filter_map(|volume| fits(volume));
    all.min().map(|(_, name)| name)
}

fn selects(
    selector: &k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector,
    labels: Option<&std::collections::BTreeMap<String, String>>,
) -> bool {
    let value = |key: &str| labels.and_then(|labels| labels.get(key));
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, wanted)| value(key) == Some(wanted));
    let expressions = selector.match_expressions.iter().flatten().all(|one| {
        let found = value(&one.key);
        let listed = found.is_some_and(|found| one.values.iter().flatten().any(|v| v == found));
        match one.operator.as_str() {
            "In" => listed,
            "NotIn" => !listed,
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    });
    equal && expressions
}

fn default_class(classes: &[std::sync::Arc<StorageClass>]) -> Option<String> {
    let is_default = |class: &&std::sync::Arc<StorageClass>| {
        let annotations = class.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(DEFAULT_CLASS))
            .map(String::as_str)
            == Some("true")
    };
    // Of several the youngest, as everywhere.
    let newest = classes.iter().filter(is_default).max_by_key(|class| {
        let created = class
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0);
        (created, std::cmp::Reverse(class.metadata.name.clone()))
    })?;
    newest.metadata.name.clone()
}

pub(crate) fn has_finalizer(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    name: &str,
) -> bool {
    metadata.finalizers.iter().flatten().any(|one| one == name)
}

pub(crate) fn annotation<'a>(claim: &'a PersistentVolumeClaim, name: &str) -> Option<&'a str> {
    let value = claim.metadata.annotations.as_ref()?.get(name)?;
    (!value.is_empty()).then_some(value.as_str())
}

pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

fn class_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(claim, OLD_CLASS).or_else(|| claim.spec.as_ref()?.storage_class_name.as_deref())
}

pub(crate) fn phase(claim: &PersistentVolumeClaim) -> &str {
    let phase = claim.status.as_ref().and_then(|s| s.phase.as_deref());
    phase.unwrap_or_default()
}

pub(crate) fn mode(claim: &PersistentVolumeClaim) -> Mode {
    volume_mode(claim.spec.as_ref().and_then(|s| s.volume_mode.as_deref()))
}

pub(crate) fn volume_mode(word: Option<&str>) -> Mode {
    match word {
        Some("Block") => Mode::Block,
        _ => Mode::Filesystem,
    }
}

pub(crate) fn requested(claim: &PersistentVolumeClaim) -> Option<Amount> {
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    Amount::parse(resources.requests.as_ref()?.get("storage")?).ok()
}

pub(crate) fn is_for(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    reference.name == claim.metadata.name && reference.namespace == claim.metadata.namespace
}

fn named(volume: &PersistentVolume, name: &str) -> bool {
    volume.metadata.name.as_deref() == Some(name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;

    struct Case {
        claim: Value,
        volumes: Vec<Value>,
        classes: Vec<Value>,
        consumer: Consumer,
        usage: Usage,
    }

    fn class(name: &str, provisioner: &str, mode: &str, default: &str) -> Value {
        json!({
            "metadata": {"name": name, "annotations": {DEFAULT_CLASS: default}},
            "provisioner": provisioner, "volumeBindingMode": mode,
        })
    }

    fn local() -> Value {
        class("local", PROVISIONER, "WaitForFirstConsumer", "true")
    }

    fn volume(name: &str, size: &str, class: &str, claim: &Value) -> Value {
        json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"],
                "storageClassName": class, "claimRef": claim,
            },
        })
    }

    /// A claim with these pieces on top of what every claim has.
    fn claim(spec: &Value, annotations: &Value) -> Value {
        let mut claim = json!({
            "metadata": {
                "name": "c", "namespace": "n", "uid": "u", "annotations": annotations,
                "finalizers": [CLAIM_PROTECTION],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Pending"},
        });
        for (key, value) in spec.as_object().unwrap() {
            claim["spec"][key] = value.clone();
        }
        claim
    }

    fn case(claim: Value) -> Case {
        Case {
            claim,
            volumes: vec![],
            classes: vec![local()],
            consumer: Consumer::None,
            usage: Usage::Unused,
        }
    }

    fn step(case: &Case) -> Option<Step> {
        let volumes: Vec<Arc<PersistentVolume>> = case
            .volumes
            .iter()
            .map(|one| Arc::new(serde_json::from_value(one.clone()).unwrap()))
            .collect();
        let classes: Vec<Arc<StorageClass>> = case
            .classes
            .iter()
            .map(|one| Arc::new(serde_json::from_value(one.clone()).unwrap()))
            .collect();
        next(&Seen {
            claim: &serde_json::from_value(case.claim.clone()).unwrap(),
            volumes: &volumes,
            classes: &classes,
            has_consumer: case.consumer,
            usage: case.usage,
            node: "here",
        })
    }

    fn reason(case: &Case) -> Reason {
        match step(case) {
            Some(Step::Say(note)) => note.reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn claim_is_protected_until_nobody_uses_it() {
        let mut bare = case(claim(&json!({}), &json!({})));
        bare.claim["metadata"]["finalizers"] = json!([]);
        assert_eq!(step(&bare), Some(Step::Protect));
        let mut going = case(claim(&json!({}), &json!({})));
        going.claim["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        going.usage = Usage::InUse;
        assert_eq!(step(&going), None);
        going.usage = Usage::Unused;
        assert_eq!(step(&going), Some(Step::Unprotect));
        going.claim["metadata"]["finalizers"] = json!(["other/one"]);
        assert_eq!(step(&going), None);
    }

    #[test]
    fn claim_of_the_local_class_waits_for_its_pod_and_is_provisioned() {
        let mut new = case(claim(&json!({}), &json!({})));
        assert_eq!(step(&new), Some(Step::SetClass("local".into())));
        new.claim["spec"]["storageClassName"] = json!("local");
        assert_eq!(reason(&new), "WaitForFirstConsumer");
        new.consumer = Consumer::Waiting;
        assert_eq!(step(&new), Some(Step::SelectNode));
        new.claim["metadata"]["annotations"] = json!({SELECTED_NODE: "here"});
        let provision = |mode| {
            Some(Step::Provision {
                class: "local".into(),
                mode,
            })
        };
        assert_eq!(step(&new), provision(Mode::Filesystem));
        new.claim["spec"]["volumeMode"] = json!("Block");
        assert_eq!(step(&new), provision(Mode::Block));
        new.claim["metadata"]["annotations"] = json!({SELECTED_NODE: "elsewhere"});
        assert_eq!(step(&new), None);
    }

    #[test]
    fn immediate_classes_do_not_wait() {
        let mut new = case(claim(&json!({"storageClassName": "now"}), &json!({})));
        new.classes = vec![class("now", PROVISIONER, "Immediate", "false")];
        assert!(matches!(step(&new), Some(Step::Provision { .. })));
    }

    #[test]
    fn binding_goes_from_volume_to_claim_to_status() {
        let ours = json!({"name": "c", "namespace": "n", "uid": "u"});
        let mut one = case(claim(&json!({"storageClassName": "local"}), &json!({})));
        one.volumes = vec![volume("v", "1Gi", "local", &ours)];
        assert_eq!(step(&one), Some(Step::Bind("v".into())));
        one.claim["spec"]["volumeName"] = json!("v");
        assert_eq!(step(&one), Some(Step::Bind("v".into())));
        one.claim["metadata"]["annotations"] = json!({BIND_COMPLETED: "yes"});
        assert_eq!(step(&one), Some(Step::ShowBound("v".into())));
        one.claim["status"]["phase"] = json!("Bound");
        assert_eq!(step(&one), None);
        one.volumes.clear();
        assert!(matches!(
            step(&one),
            Some(Step::ShowLost(Reason::ClaimLost, _))
        ));
        one.claim["status"]["phase"] = json!("Lost");
        assert_eq!(step(&one), None);
    }

    #[test]
    fn volume_of_another_claim_is_not_taken() {
        let theirs = json!({"name": "c", "namespace": "n", "uid": "older"});
        let mut one = case(claim(
            &json!({"storageClassName": "", "volumeName": "v"}),
            &json!({}),
        ));
        one.volumes = vec![volume("v", "1Gi", "", &theirs)];
        assert!(matches!(
            step(&one),
            Some(Step::ShowLost(Reason::ClaimMisbound, _))
        ));
        one.claim["spec"]["volumeName"] = Value::Null;
        assert_eq!(reason(&one), "FailedBinding");
    }

    #[test]
    fn smallest_fitting_volume_is_taken() {
        let mut one = case(claim(&json!({"storageClassName": ""}), &json!({})));
        one.volumes = vec![
            volume("large", "9Gi", "", &Value::Null),
            volume("small", "512Mi", "", &Value::Null),
            volume("right", "2Gi", "", &Value::Null),
            volume("other", "1Gi", "other", &Value::Null),
        ];
        assert_eq!(step(&one), Some(Step::TakeVolume("right".into())));
        one.claim["spec"]["accessModes"] = json!(["ReadWriteMany"]);
        assert_eq!(reason(&one), "FailedBinding");
        one.claim["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
        one.claim["spec"]["selector"] = json!({"matchLabels": {"a": "b"}});
        assert_eq!(reason(&one), "FailedBinding");
        one.volumes[0]["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(step(&one), Some(Step::TakeVolume("large".into())));
        // Reserved by an administrator for this claim, whatever else is free.
        let reserved = json!({"name": "c", "namespace": "n"});
        one.volumes.push(volume("mine", "1Mi", "", &reserved));
        assert_eq!(step(&one), Some(Step::Bind("mine".into())));
        one.claim["spec"]["volumeName"] = json!("mine");
        assert_eq!(step(&one), Some(Step::TakeVolume("mine".into())));
    }

    #[test]
    fn what_cannot_be_provisioned_says_why() {
        let named = |name: &str| json!({"storageClassName": name});
        let no_default = || Case {
            classes: vec![],
            ..case(claim(&json!({}), &json!({})))
        };
        assert_eq!(reason(&no_default()), "FailedBinding");
        let unknown = case(claim(&named("no-such"), &json!({})));
        assert_eq!(reason(&unknown), "ProvisioningFailed");
        let foreign = Case {
            classes: vec![class("nfs", "example.com/nfs", "Immediate", "false")],
            ..case(claim(&named("nfs"), &json!({})))
        };
        assert_eq!(reason(&foreign), "ExternalProvisioning");
        let mut filled = case(claim(&named("local"), &json!({SELECTED_NODE: "here"})));
        filled.claim["spec"]["dataSource"] = json!({"kind": "VolumeSnapshot", "name": "s"});
        assert_eq!(reason(&filled), "ProvisioningFailed");
    }
}
