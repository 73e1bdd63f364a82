//! The end of a move of volumes: the spec of the VMI gets the claims that its guest has, in the write that ends the
//! list of moves and their condition.
//!
//! **Invariant**: no pod is made of a spec whose guest has left the claims of it.

use kube::Api;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::vmi_status::VirtualMachineInstanceConditionType as Type;
use reasons::Reason;
use reconcile::{EventType, Key, Requeue, WriteError, merge};
use serde_json::{Value, json};

use super::act::name;
use super::observe::Observed;
use super::plan::Step;
use super::{Controller, VmiError};
use crate::MANAGER;
use crate::view::{Guest, WholeVmi};

impl Controller {
    pub(super) async fn settle_volumes(&self, observed: &Observed) -> Result<Requeue, VmiError> {
        let vmi = observed.vmi.as_ref();
        let key = Key::of(vmi);
        // Read whole: the cache keeps no spec, and the patch keeps fields that are not known.
        let api = Api::<WholeVmi>::namespaced(self.client.clone(), &key.namespace);
        let whole = api.get_opt(&key.name).await;
        let whole = whole.map_err(|error| VmiError::Read(Box::new(error)))?;
        let whole = whole.filter(|whole| whole.metadata.uid == vmi.metadata.uid);
        let Some(patch) = whole.and_then(|whole| patch(&json!(whole))) else {
            return Ok(Requeue::OnChange);
        };
        let api = Api::<Guest>::namespaced(self.client.clone(), &key.namespace);
        match merge(&api, MANAGER, &key, &patch).await {
            Ok(written) => self.vmis.wrote(vmi, written),
            Err(WriteError::NotFound { .. }) => return Ok(Requeue::OnChange),
            Err(error) => return Err(VmiError::Settle(error)),
        }
        failpoints::after(name(Step::SettleVolumes));
        tracing::info!("the guest has the new claims of its volumes");
        let note = "The guest has moved to the new claims of its volumes";
        let reason = Reason::SuccessfulVolumeMigration;
        self.recorder
            .publish(vmi, EventType::Normal, reason, note.to_owned());
        Ok(Requeue::OnChange)
    }
}

/// The merge patch of a VMI whose guest has the claims that it was to move to; `None` for any other.
fn patch(whole: &Value) -> Option<Value> {
    let typed: VirtualMachineInstance = serde_json::from_value(whole.clone()).ok()?;
    if !model::volumes_arrived(&typed) {
        return None;
    }
    let moves = model::carried_volumes(&typed);
    // One without volumes, which only a forger makes, loses its list as well: otherwise it could not be deleted.
    let volumes = whole.pointer("/spec/volumes").and_then(Value::as_array);
    let mut volumes = volumes.cloned().unwrap_or_default();
    for volume in &mut volumes {
        let Some(found) = volume["name"].as_str().and_then(|name| moves.get(name)) else {
            continue;
        };
        for claim in ["/persistentVolumeClaim/claimName", "/dataVolume/name"] {
            if let Some(claim) = volume.pointer_mut(claim) {
                *claim = found.destination.clone().into();
            }
        }
    }
    let conditions = whole
        .pointer("/status/conditions")
        .and_then(Value::as_array);
    let conditions = conditions.into_iter().flatten();
    let conditions = conditions.filter(|one| one["type"] != Type::VolumesChange.as_str());
    Some(json!({
        "metadata": {"resourceVersion": typed.metadata.resource_version},
        "spec": {"volumes": volumes},
        "status": {
            "conditions": conditions.collect::<Vec<_>>(),
            "migratedVolumes": null,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(state: &Value) -> Value {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"resourceVersion": "7",
                "annotations": {"ferrovirt.io/volumes-carried-by": "m"}},
            "spec": {"domain": {"devices": {}}, "volumes": [
                {"name": "root", "dataVolume": {"name": "old"}, "later": 1},
                {"name": "data", "persistentVolumeClaim": {"claimName": "old"}},
            ]},
            "status": {
                "phase": "Failed",
                "conditions": [{"type": "Ready", "status": "False"},
                    {"type": "VolumesChange", "status": "True"}],
                "migratedVolumes": [{"volumeName": "root", "sourcePVCInfo": {"claimName": "old"},
                    "destinationPVCInfo": {"claimName": "new"}}],
                "migrationState": state,
            },
        })
    }

    #[test]
    fn spec_gets_the_claims_of_the_guest_and_nothing_else_changes() {
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "spec": {"volumes": [
                {"name": "root", "dataVolume": {"name": "new"}, "later": 1},
                {"name": "data", "persistentVolumeClaim": {"claimName": "old"}},
            ]},
            "status": {"conditions": [{"type": "Ready", "status": "False"}], "migratedVolumes": null},
        });
        // Whatever has become of the guest since.
        let over = whole(&json!({"migrationUid": "m", "completed": true}));
        assert_eq!(patch(&over), Some(expected));
    }

    #[test]
    fn list_ends_of_a_guest_without_volumes() {
        let over = json!({"migrationUid": "m", "completed": true});
        let mut forged = whole(&over);
        forged["spec"].as_object_mut().unwrap().remove("volumes");
        let patch = patch(&forged).unwrap();
        assert_eq!(patch["status"]["migratedVolumes"], Value::Null);
    }

    #[test]
    fn spec_stays_while_the_guest_has_its_former_claims() {
        for state in [
            json!(null),
            json!({"migrationUid": "m"}),
            json!({"migrationUid": "m", "completed": true, "failed": true}),
            json!({"migrationUid": "other", "completed": true}),
        ] {
            assert_eq!(patch(&whole(&state)), None, "{state}");
        }
    }
}
