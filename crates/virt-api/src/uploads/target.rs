//! Whether a claim can receive a disk now, and in which pod.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use kubevirt_api::{annotations, upload};

use super::token::Target;
use crate::refusal::Refusal;

/// What a claim permits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// It will be soon; the message says what is awaited.
    NotYet(String),
}

/// A pod that receives a disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Receiver {
    pub(super) node: String,
    pub(super) uid: String,
}

/// Pure: can the claim receive a disk at all, and when?
pub(super) fn admit(
    claim: Option<&PersistentVolumeClaim>,
    target: &Target,
) -> Result<Readiness, Refusal> {
    let name = &target.claim;
    let missing = || Refusal::missing(format!("persistentvolumeclaim {name} does not exist"));
    let claim = claim.ok_or_else(missing)?;
    if claim.metadata.uid.as_ref() != Some(&target.uid) {
        return Err(Refusal::unauthorized(format!(
            "persistentvolumeclaim {name} was deleted and created again since the upload token was issued: \
             request another token"
        )));
    }
    check_target(claim)?;
    let note = |name: &str| claim.annotations().get(name).map(String::as_str);
    if note(annotations::CDI_POD_READY) == Some("true") {
        return Ok(Readiness::Ready);
    }
    let why = note(annotations::CDI_RUNNING_MESSAGE).unwrap_or("its pod is not created yet");
    Ok(Readiness::NotYet(format!(
        "persistentvolumeclaim {name} cannot receive an upload yet: {why}"
    )))
}

/// Pure: is the claim made for an upload that has not succeeded yet?
pub(super) fn check_target(claim: &PersistentVolumeClaim) -> Result<(), Refusal> {
    let name = claim.name_any();
    let notes = claim.annotations();
    if !notes.contains_key(annotations::CDI_UPLOAD_TARGET) {
        return Err(Refusal::bad_request(format!(
            "persistentvolumeclaim {name} is not the target of an upload: create a data volume with \
             source upload, or a claim with the annotation {}",
            annotations::CDI_UPLOAD_TARGET
        )));
    }
    let phase = notes.get(annotations::CDI_POD_PHASE);
    if phase.is_some_and(|phase| phase == "Succeeded") {
        return Err(Refusal::conflict(format!(
            "persistentvolumeclaim {name} has its disk already: upload into another claim"
        )));
    }
    Ok(())
}

/// The name of the pod.
pub(super) fn pod_name(target: &Target) -> String {
    format!("{}{}", upload::POD_PREFIX, target.uid)
}

/// Pure: the pod as a receiver, if it belongs to the claim and has a node.
pub(super) fn receiver(pod: &Pod, target: &Target) -> Option<Receiver> {
    let mut owners = pod.owner_references().iter();
    let is_own = owners.any(|owner| owner.controller == Some(true) && owner.uid == target.uid);
    let node = pod.spec.as_ref()?.node_name.clone();
    let is_going = pod.metadata.deletion_timestamp.is_some();
    (is_own && !is_going).then_some(())?;
    Some(Receiver {
        node: node.filter(|node| !node.is_empty())?,
        uid: pod.uid()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn target() -> Target {
        Target {
            namespace: "n".to_owned(),
            claim: "disk".to_owned(),
            uid: "u".to_owned(),
        }
    }

    #[test]
    fn only_the_claim_of_the_token_receives_a_disk_and_only_once() {
        let note = |name: &str| format!("cdi.kubevirt.io/storage.{name}");
        let claim = |uid: &str, notes: &[(&str, &str)]| {
            let notes = notes.iter();
            let notes = notes.map(|(name, value)| (note(name), Value::from(*value)));
            let notes: serde_json::Map<String, Value> = notes.collect();
            let claim = json!({"metadata": {"name": "disk", "uid": uid, "annotations": notes}});
            serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap()
        };
        let upload = ("upload.target", "");
        let code = |claim: Option<PersistentVolumeClaim>| match admit(claim.as_ref(), &target()) {
            Ok(Readiness::Ready) => 200,
            Ok(Readiness::NotYet(_)) => 503,
            Err(refusal) => refusal.code.as_u16(),
        };
        let ready = ("pod.ready", "true");
        assert_eq!(code(None), 404);
        assert_eq!(code(Some(claim("other", &[upload, ready]))), 401);
        assert_eq!(code(Some(claim("u", &[ready]))), 400);
        assert_eq!(code(Some(claim("u", &[upload]))), 503);
        assert_eq!(
            code(Some(claim("u", &[upload, ("pod.ready", "false")]))),
            503
        );
        assert_eq!(code(Some(claim("u", &[upload, ready]))), 200);
        let done = ("pod.phase", "Succeeded");
        assert_eq!(code(Some(claim("u", &[upload, ready, done]))), 409);
    }

    #[test]
    fn pod_must_belong_to_the_claim() {
        let pod = |owner: &str, controls: bool, node: &str| {
            let pod = json!({
                "metadata": {"name": "upload-u", "uid": "p", "ownerReferences": [
                    {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "disk",
                     "uid": owner, "controller": controls}]},
                "spec": {"nodeName": node, "containers": []},
            });
            serde_json::from_value::<Pod>(pod).unwrap()
        };
        let found = receiver(&pod("u", true, "here"), &target()).unwrap();
        assert_eq!((found.node.as_str(), found.uid.as_str()), ("here", "p"));
        for other in [
            pod("x", true, "here"),
            pod("u", false, "here"),
            pod("u", true, ""),
        ] {
            assert_eq!(receiver(&other, &target()), None);
        }
    }
}
