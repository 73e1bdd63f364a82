//! The pod that brings the volumes to the new pod of a guest which were attached while it runs.
//!
//! It belongs to the new pod, and goes with it. After the migration the `hotplug` controller finds it as that of the
//! guest: it has the name that follows from pod and claims.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use launcher_pod::attachment_pod_name;
use reconcile::{Key, WriteError, create};

use super::observe::Observed;
use super::{Controller, MigrationError};
use crate::MANAGER;
use crate::hotplug::{AttachmentPod, State, attachment_for, carried, leaving, receiving_memory};
use crate::view::Guest;
use crate::vmi::LauncherPod;

/// How far the volumes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attachment {
    /// The guest has no such volumes, or the new pod does not take them yet.
    NotNeeded,
    Missing,
    /// Why it is not ready, if that is known.
    Waits(String),
    Ready {
        uid: String,
    },
    /// It does not become ready any more.
    Failed(String),
}

impl Controller {
    /// Read from the server: there is one for few guests, and for a moment.
    pub(super) async fn attachment(
        &self,
        vmi: &Guest,
        target: &LauncherPod,
    ) -> Result<Attachment, MigrationError> {
        // Its mount would stay in the new pod if it left the old one right before the hand-over.
        if let Some(volume) = leaving(vmi) {
            let message = format!("volume {volume} is leaving the guest");
            return Ok(Attachment::Waits(message));
        }
        // Begun since the migration was permitted: the copy would be refused, or would break the dump off.
        if let Some(volume) = receiving_memory(&vmi.status.volumes) {
            let message = format!("volume {volume} receives the guest's memory");
            return Ok(Attachment::Waits(message));
        }
        let claims = carried(&vmi.status.volumes);
        if claims.is_empty() {
            return Ok(Attachment::NotNeeded);
        }
        let name = attachment_pod_name(&target.uid().unwrap_or_default(), &claims);
        let namespace = vmi.namespace().unwrap_or_default();
        let api = Api::<AttachmentPod>::namespaced(self.client.clone(), &namespace);
        let found = api.get_opt(&name).await;
        let found = found.map_err(|source| MigrationError::Read {
            what: "the attachment pod",
            source: Box::new(source),
        })?;
        Ok(assess(found.as_ref(), target, &claims))
    }

    pub(super) async fn create_attachment(
        &self,
        observed: &Observed,
    ) -> Result<(), MigrationError> {
        let (Some(vmi), Some(target)) = (&observed.vmi, &observed.target) else {
            return Ok(());
        };
        let claims = carried(&vmi.status.volumes);
        let Some(pod) = attachment_for(&self.source, vmi, target, &claims) else {
            return Ok(());
        };
        let key = Key::of(&pod);
        let api = Api::<Pod>::namespaced(self.client.clone(), &key.namespace);
        match create(&api, MANAGER, &key, &pod).await {
            Ok(_) => {
                failpoints::after("virt-controller/migration/create-attachment");
                tracing::info!(pod = key.name, "attachment pod of the target created");
                Ok(())
            }
            Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(MigrationError::Create(error)),
        }
    }
}

/// Anyone who may create pods can have taken the name: only what the new pod owns, with exactly these claims, counts.
fn assess(
    found: Option<&AttachmentPod>,
    target: &LauncherPod,
    claims: &BTreeMap<String, String>,
) -> Attachment {
    let Some(pod) = found else {
        return Attachment::Missing;
    };
    let name = pod.name_any();
    let mut owners = pod.owner_references().iter();
    let is_own = owners
        .any(|one| one.controller == Some(true) && Some(&one.uid) == target.metadata.uid.as_ref());
    if !is_own || pod.claims != *claims {
        let problem = "has the name of the attachment pod, and is another one: delete it";
        return Attachment::Failed(format!("pod {name} {problem}"));
    }
    let is_going = pod.metadata.deletion_timestamp.is_some();
    match (&pod.state, pod.uid()) {
        (State::Ready, Some(uid)) if !is_going => Attachment::Ready { uid },
        (State::Starting(why), _) if !is_going => Attachment::Waits(why.clone()),
        _ => {
            let message = format!("the attachment pod {name} has ended: {}", pod.message);
            Attachment::Failed(message.trim_end_matches([':', ' ']).to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_ready_pod_of_the_target_with_these_claims_counts() {
        let target = json!({"metadata": {"name": "t", "namespace": "n", "uid": "t-uid"}});
        let target: LauncherPod = serde_json::from_value(target).unwrap();
        let claims = BTreeMap::from([("v".to_owned(), "c".to_owned())]);
        let pod = |change: &dyn Fn(&mut Value)| {
            let mut pod = json!({
                "metadata": {"name": "hp", "namespace": "n", "uid": "hp-uid", "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pod", "name": "t", "uid": "t-uid", "controller": true}]},
                "spec": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "c"}}],
                         "containers": [{"name": "c", "volumeMounts": [
                             {"name": "x", "mountPath": "/volumes/v"}]}]},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
            });
            change(&mut pod);
            let pod: AttachmentPod = serde_json::from_value(pod).unwrap();
            assess(Some(&pod), &target, &claims)
        };
        assert_eq!(assess(None, &target, &claims), Attachment::Missing);
        let uid = || "hp-uid".to_owned();
        assert_eq!(pod(&|_| ()), Attachment::Ready { uid: uid() });
        let starts = |pod: &mut Value| pod["status"]["conditions"][0]["status"] = "False".into();
        assert_eq!(pod(&starts), Attachment::Waits(String::new()));
        let changes: [&dyn Fn(&mut Value); 4] = [
            &|pod| pod["metadata"]["ownerReferences"][0]["uid"] = "other".into(),
            &|pod| pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = "d".into(),
            &|pod| pod["status"]["phase"] = "Failed".into(),
            &|pod| pod["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z".into(),
        ];
        for change in changes {
            assert!(matches!(pod(change), Attachment::Failed(_)));
        }
    }
}
