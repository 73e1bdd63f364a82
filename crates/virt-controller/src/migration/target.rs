//! Renders the pod that gets the guest, and the state that the VMI shows of the migration.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use kubevirt_api::VirtualMachineInstance;
use launcher_pod::{Acceleration, Destination, PodError, Surroundings};
use model::{CpuModel, Guest as Parsed};
use reconcile::Key;
use serde_json::{Value, json};

use super::attachment::Attachment;
use super::observe::Observed;
use super::policy;
use super::{Controller, MigrationError};
use crate::merge_patch::in_place_of;
use crate::view::{Claim, Guest};
use crate::vmi::{Definitions, claim_names, state_claim_name};

impl Controller {
    /// The pod for the guest; `None` if the VMI is gone.
    pub(super) async fn render_target(
        &self,
        observed: &Observed,
    ) -> Result<Option<Result<Pod, PodError>>, MigrationError> {
        let migration = observed.migration.as_ref();
        let key = migration.guest();
        let read = |what| {
            move |source| MigrationError::Read {
                what,
                source: Box::new(source),
            }
        };
        // Its spec is not kept after the first pod has been created.
        let api = Api::<VirtualMachineInstance>::namespaced(self.client.clone(), &key.namespace);
        let whole = api.get_opt(&key.name).await.map_err(read("the VMI"))?;
        let Some(mut whole) = whole else {
            return Ok(None);
        };
        let mut around = self.source.surroundings(&key.namespace);
        let networks = Definitions::read(&self.client, &whole).await;
        let networks = networks.map_err(read("a network definition"))?;
        around.network_resources = self.source.network_resources(networks);
        let api = Api::<Claim>::namespaced(self.client.clone(), &key.namespace);
        let moves = model::volume_moves(&whole);
        model::put_on_new_claims(&mut whole.spec.volumes, &moves);
        around.state_claim = state_claim_name(&whole);
        let state = around.state_claim.clone();
        for name in claim_names(&whole.spec).into_iter().chain(state.as_deref()) {
            // A missing one is an error of the rendering, which names it.
            if let Some(claim) = api.get_opt(name).await.map_err(read("a claim"))? {
                around.claims.insert(name.to_owned(), claim.facts);
            }
        }
        Ok(Some(self.render(observed, &whole, &around)))
    }

    fn render(
        &self,
        observed: &Observed,
        whole: &VirtualMachineInstance,
        around: &Surroundings,
    ) -> Result<Pod, PodError> {
        let migration = observed.migration.as_ref();
        let acceleration = self.source.acceleration();
        let settings = self
            .source
            .settings(acceleration.unwrap_or(Acceleration::Kvm));
        launcher_pod::target_pod(
            whole,
            &settings,
            around,
            &launcher_pod::Migration {
                name: migration.name(),
                uid: migration.uid(),
                added_node_selector: &migration.spec.added_node_selector,
                cpu_labels: &self.cpu_labels(whole),
                destination: destination(observed),
            },
        )
    }

    /// Labels of nodes that know the CPU model of the guest's node, if the guest has that.
    fn cpu_labels(&self, whole: &VirtualMachineInstance) -> Vec<String> {
        let depends = matches!(
            Parsed::of(whole).cpu_model,
            CpuModel::Unset | CpuModel::HostModel
        );
        let status = whole.status.as_ref();
        let node = status.and_then(|status| status.node_name.as_deref());
        let host = node.and_then(|node| self.source.hosts.get(&Key::new("", node)));
        host.filter(|_| depends)
            .map(|host| host.compatible.clone())
            .unwrap_or_default()
    }

    /// What the VMI shows of this migration from the hand-over on, in place of an earlier one.
    pub(super) fn state(&self, observed: &Observed, vmi: &Guest) -> Value {
        let target = observed.target.as_deref();
        let mut new = self.state_of_source(observed, vmi);
        let attachment = match &observed.attachment {
            Attachment::Ready { uid } => Some(uid),
            _ => None,
        };
        new["targetNode"] = json!(target.and_then(|pod| pod.node_name.as_ref()));
        new["targetAttachmentPodUID"] = json!(attachment);
        new["targetPod"] = json!(target.and_then(|pod| pod.metadata.name.as_ref()));
        let old = json!(vmi.status.migration);
        in_place_of(&old, new)
    }

    /// What the state has of the guest that moves, and of the settings.
    pub(super) fn state_of_source(&self, observed: &Observed, vmi: &Guest) -> Value {
        let config = self.source.cluster.now();
        let namespace = vmi.namespace().unwrap_or_default();
        let namespace = self.source.namespaces.get(&Key::new("", &namespace));
        let of_namespace = namespace.map(|one| one.labels()).unwrap_or_default();
        let of_guest = vmi.metadata.labels.clone().unwrap_or_default();
        let policies = self.policies.list();
        let chosen = policy::choose(&policies, &of_guest, &of_namespace);
        json!({
            "migrationUid": observed.migration.uid(),
            "sourceNode": vmi.status.node_name,
            "sourcePod": launcher_pod::current_pod_name(&vmi.identity()),
            "migrationPolicyName": chosen.and_then(|policy| policy.metadata.name.as_ref()),
            "migrationConfiguration": policy::merge(config.written.migrations.as_ref(), chosen),
        })
    }
}

fn destination(observed: &Observed) -> Destination<'_> {
    let vmi = observed.vmi.as_deref().filter(|vmi| vmi.stays_on_node());
    let node = vmi.and_then(|vmi| vmi.status.node_name.as_deref());
    node.map_or(Destination::OtherNode, Destination::SameNode)
}
