//! The observed objects, and the queries of the rules.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::{ContainerStatus, Event, Node, PersistentVolumeClaim, Pod, PodCondition},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
    jiff::{SignedDuration, Timestamp},
};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance,
    backup::VirtualMachineBackup,
    backup_restore::VirtualMachineBackupRestore,
    conditions::{self, Condition as _},
    data_volume_status::DataVolume,
    labels,
    vm::VirtualMachineRunStrategy as Strategy,
    vm_status::{StateChangeRequestAction, VirtualMachineCondition, VirtualMachineConditionType},
    vmi::VirtualMachineInstanceSpec,
    vmi_status::{
        VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as Type,
        VirtualMachineInstancePhase as Phase,
    },
};
use model::{Referenced, VolumeSource};
use reasons::Reason;
use serde::Deserialize;

/// The observed objects. The keys of the maps are the names that were read: null is an object that does
/// not exist, and a name without a key could not be read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Observed {
    pub namespace: String,
    pub name: String,
    pub now: Option<Time>,
    pub vm: Option<VirtualMachine>,
    pub vmi: Option<VirtualMachineInstance>,
    /// Launcher pods of the VMI.
    pub pods: Vec<Pod>,
    pub claims: BTreeMap<String, Option<PersistentVolumeClaim>>,
    pub data_volumes: BTreeMap<String, Option<DataVolume>>,
    pub secrets: BTreeMap<String, Option<ObjectMeta>>,
    pub config_maps: BTreeMap<String, Option<ObjectMeta>>,
    pub service_accounts: BTreeMap<String, Option<ObjectMeta>>,
    /// Backups of the VM.
    pub backups: Vec<VirtualMachineBackup>,
    /// Restores of backups to claims of the VM, or of backups of the VM.
    pub backup_restores: Vec<VirtualMachineBackupRestore>,
    pub storage_classes: BTreeMap<String, Option<ObjectMeta>>,
    /// All nodes of the cluster; null if they could not be listed.
    pub nodes: Option<Vec<Node>>,
    /// Events about the VM, its VMI, pods and claims.
    pub events: Vec<Event>,
    pub installation: Installation,
    /// Objects that could not be read, and why.
    pub unread: Vec<String>,
}

/// The namespace of an installation that was not found.
const INSTALLATION: &str = "kubevirt";

/// The components of Ferrovirt. Most users may not read them; then both lists are empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Installation {
    /// Their namespace; empty if it was not found.
    pub namespace: String,
    pub pods: Vec<Pod>,
    /// Warning events.
    pub events: Vec<Event>,
}

/// Names of other objects in a spec, each with the field that names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    pub claims: BTreeMap<String, String>,
    pub data_volumes: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, String>,
    /// Secrets that only a pull needs, and only if the image is not public.
    pub pull_secrets: BTreeMap<String, String>,
    pub config_maps: BTreeMap<String, String>,
    pub service_accounts: BTreeMap<String, String>,
}

impl References {
    fn of(&mut self, object: Referenced) -> &mut BTreeMap<String, String> {
        match object {
            Referenced::Claim => &mut self.claims,
            Referenced::DataVolume => &mut self.data_volumes,
            Referenced::Secret => &mut self.secrets,
            Referenced::ConfigMap => &mut self.config_maps,
            Referenced::ServiceAccount => &mut self.service_accounts,
        }
    }
}

/// The objects that a spec needs; their fields start with `path`.
pub fn references(spec: &VirtualMachineInstanceSpec, path: &str) -> References {
    let mut found = References::default();
    if let Some(name) = &spec.service_account_name {
        note(
            &mut found.service_accounts,
            name,
            format!("{path}.serviceAccountName"),
        );
    }
    for (i, volume) in spec.volumes.iter().enumerate() {
        let source = VolumeSource::of(volume);
        let needed = source.references().into_iter();
        for reference in needed.filter(|reference| !reference.is_optional) {
            let field = reference.field;
            let field = format!("{path}.volumes[{i}].{}.{field}", source.member());
            let names = match source {
                VolumeSource::ContainerDisk(_) => &mut found.pull_secrets,
                _ => found.of(reference.object),
            };
            note(names, reference.name, field);
        }
    }
    let firmware = spec.domain.firmware.as_ref();
    let kernel = firmware.and_then(|firmware| firmware.kernel_boot.as_ref()?.container.as_ref());
    if let Some(secret) = kernel.and_then(|container| container.image_pull_secret.as_deref()) {
        let field = format!("{path}.domain.firmware.kernelBoot.container.imagePullSecret");
        note(&mut found.pull_secrets, secret, field);
    }
    for (i, credential) in spec.access_credentials.iter().enumerate() {
        let key = credential.ssh_public_key.as_ref();
        let key = key.and_then(|key| key.source.secret.as_ref());
        let password = credential.user_password.as_ref();
        let password = password.and_then(|password| password.source.secret.as_ref());
        for (member, secret) in [("sshPublicKey", key), ("userPassword", password)] {
            let name = secret.map_or("", |secret| secret.secret_name.as_str());
            let field = format!("{path}.accessCredentials[{i}].{member}.source.secret.secretName");
            note(&mut found.secrets, name, field);
        }
    }
    found
}

fn note(names: &mut BTreeMap<String, String>, name: &str, at: String) {
    if !name.is_empty() {
        names.entry(name.to_owned()).or_insert(at);
    }
}

/// A container that waits, and why.
pub(crate) struct Waiting<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) container: &'a ContainerStatus,
    pub(crate) field: String,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl Observed {
    pub(crate) fn kubectl(&self, arguments: &str) -> String {
        format!("kubectl -n {} {arguments}", self.namespace)
    }

    pub(crate) fn virtctl(&self, arguments: &str) -> String {
        format!("virtctl -n {} {arguments}", self.namespace)
    }

    /// A command in the namespace of the installation.
    pub(crate) fn in_installation(&self, arguments: &str) -> String {
        let namespace = match self.installation.namespace.as_str() {
            "" => INSTALLATION,
            found => found,
        };
        format!("kubectl -n {namespace} {arguments}")
    }

    /// The command that shows the spec for a change.
    pub(crate) fn edit(&self) -> String {
        let command = match &self.vm {
            Some(_) => format!("edit vm {}", self.name),
            None => format!("get vmi {} -o yaml", self.name),
        };
        self.kubectl(&command)
    }

    pub(crate) fn vm_object(&self) -> String {
        format!("vm/{}", self.name)
    }

    pub(crate) fn vmi_object(&self) -> String {
        format!("vmi/{}", self.name)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now.as_ref().map_or(Timestamp::UNIX_EPOCH, |now| now.0)
    }

    pub(crate) fn is_older(&self, time: Option<&Time>, seconds: i64) -> bool {
        time.is_some_and(|time| {
            self.now().duration_since(time.0) > SignedDuration::from_secs(seconds)
        })
    }

    /// The VMI, unless it belongs to another owner and only has the same name.
    pub(crate) fn own_vmi(&self) -> Option<&VirtualMachineInstance> {
        self.vmi.as_ref().filter(|vmi| match &self.vm {
            None => true,
            Some(vm) => belongs_to(&vmi.metadata, vm.metadata.uid.as_deref()),
        })
    }

    /// The spec of the guest: of the VMI if there is one, else of the template.
    pub fn spec(&self) -> Option<(&VirtualMachineInstanceSpec, String, &'static str)> {
        if let Some(vmi) = self.own_vmi() {
            return Some((&vmi.spec, self.vmi_object(), "spec"));
        }
        let spec = self.vm.as_ref()?.spec.template.spec.as_ref()?;
        Some((spec, self.vm_object(), "spec.template.spec"))
    }

    pub(crate) fn references(&self) -> (References, String) {
        match self.spec() {
            Some((spec, object, path)) => (references(spec, path), object),
            None => (References::default(), self.vm_object()),
        }
    }

    pub(crate) fn phase(&self) -> Option<Phase> {
        let status = self.own_vmi()?.status.as_ref();
        Some(
            status
                .and_then(|status| status.phase.clone())
                .unwrap_or_default(),
        )
    }

    pub(crate) fn is_final(&self) -> bool {
        matches!(self.phase(), Some(Phase::Succeeded | Phase::Failed))
    }

    /// The VMI exists and its guest has not started yet.
    pub(crate) fn is_early(&self) -> bool {
        matches!(
            self.phase(),
            Some(Phase::Unset | Phase::Pending | Phase::Scheduling | Phase::Scheduled)
        )
    }

    pub(crate) fn condition(&self, kind: &Type) -> Option<&VirtualMachineInstanceCondition> {
        let status = self.own_vmi()?.status.as_ref()?;
        conditions::find(&status.conditions, kind)
    }

    /// Reason and message of a condition that is false; the message without the remedy of the reason.
    pub(crate) fn problem(&self, kind: &Type) -> Option<(&str, &str)> {
        let condition = self.condition(kind)?;
        (condition.status() == conditions::FALSE).then(|| {
            let (reason, message) = (condition.reason(), condition.message());
            (reason, reasons::without_advice(reason, message))
        })
    }

    /// Reason and message of the VM's condition `Failure`; the message without the remedy of the reason.
    pub(crate) fn vm_failure(&self) -> Option<(&str, &str)> {
        let failure = self.vm_condition("Failure")?;
        let (reason, message) = (failure.reason(), failure.message());
        Some((reason, reasons::without_advice(reason, message)))
    }

    pub(crate) fn vm_condition(&self, kind: &str) -> Option<&VirtualMachineCondition> {
        let status = self.vm.as_ref()?.status.as_ref()?;
        let kind = VirtualMachineConditionType::from(kind);
        conditions::find(&status.conditions, &kind)
            .filter(|condition| condition.status() == conditions::TRUE)
    }

    pub(crate) fn strategy(&self) -> Option<Strategy> {
        let spec = &self.vm.as_ref()?.spec;
        match (&spec.run_strategy, spec.running) {
            (Some(strategy), _) => Some(strategy.clone()),
            (None, Some(true)) => Some(Strategy::Always),
            (None, Some(false)) => Some(Strategy::Halted),
            (None, None) => None,
        }
    }

    /// The pod of the current run: one that is not being deleted, and of these the youngest; not one to which
    /// a migration is to move the guest.
    pub(crate) fn pod(&self) -> Option<&Pod> {
        let own = self.pods.iter().filter(|pod| !self.is_for_a_move(pod));
        own.max_by_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (pod.metadata.deletion_timestamp.is_none(), created)
        })
    }

    fn is_for_a_move(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        if labels.is_none_or(|all| !all.contains_key(labels::MIGRATION_JOB_UID)) {
            return false;
        }
        let status = self.own_vmi().and_then(|vmi| vmi.status.as_ref());
        let state = status.and_then(|status| status.migration_state.as_ref());
        let has_guest = self.own_vmi().zip(state).is_some_and(|(vmi, state)| {
            let current = if model::has_moved(vmi) {
                &state.target_pod
            } else {
                &state.source_pod
            };
            *current == pod.metadata.name
        });
        !has_guest
    }

    /// The pods to which a migration is to move the guest.
    pub(crate) fn pods_of_moves(&self) -> impl Iterator<Item = &Pod> {
        let all = self.pods.iter().filter(|pod| self.is_for_a_move(pod));
        all.filter(|pod| pod.metadata.deletion_timestamp.is_none())
    }

    pub(crate) fn pod_condition(&self, kind: &str) -> Option<(&Pod, &PodCondition)> {
        let pod = self.pod()?;
        let all = pod.status.as_ref()?.conditions.as_ref()?;
        let condition = all.iter().find(|condition| condition.type_ == kind)?;
        Some((pod, condition))
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = (&Pod, &ContainerStatus, String)> {
        self.pod().into_iter().flat_map(|pod| {
            let status = pod.status.as_ref();
            let lists = [
                (
                    "initContainerStatuses",
                    status.and_then(|status| status.init_container_statuses.as_ref()),
                ),
                (
                    "containerStatuses",
                    status.and_then(|status| status.container_statuses.as_ref()),
                ),
            ];
            lists.into_iter().flat_map(move |(list, statuses)| {
                let statuses = statuses.into_iter().flatten().enumerate();
                statuses.map(move |(i, container)| (pod, container, format!("status.{list}[{i}]")))
            })
        })
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = Waiting<'_>> {
        self.containers().filter_map(|(pod, container, at)| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            Some(Waiting {
                pod,
                container,
                field: format!("{at}.state.waiting"),
                reason: waiting.reason.as_deref()?,
                message: waiting.message.as_deref().unwrap_or_default(),
            })
        })
    }

    /// The node of the guest or of its pod.
    pub fn node_name(&self) -> Option<&str> {
        let of_vmi = self
            .own_vmi()
            .and_then(|vmi| vmi.status.as_ref()?.node_name.as_deref());
        let of_pod = self
            .pod()
            .and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
        of_vmi.or(of_pod).filter(|name| !name.is_empty())
    }

    /// The nodes were read, and none has this name.
    pub(crate) fn is_deleted_node(&self, name: &str) -> bool {
        let is_it = |node: &Node| name_of(&node.metadata) == name;
        self.nodes
            .as_ref()
            .is_some_and(|nodes| !nodes.iter().any(is_it))
    }

    pub(crate) fn was_not_read(&self, kind: &str) -> bool {
        self.unread.iter().any(|unread| unread.starts_with(kind))
    }

    /// Warning events, the latest last.
    pub(crate) fn warnings(&self) -> Vec<&Event> {
        let mut found: Vec<&Event> = self
            .events
            .iter()
            .filter(|event| event.type_.as_deref() == Some("Warning"))
            .collect();
        found.sort_by_key(|event| time_of(event));
        found
    }

    /// The latest event about an object with one of these reasons.
    pub(crate) fn event(&self, kind: &str, name: &str, reasons: &[Reason]) -> Option<&Event> {
        self.event_with(kind, name, reasons, |_| true)
    }

    /// The latest event about an object with one of these reasons and such a message.
    pub(crate) fn event_with(
        &self,
        kind: &str,
        name: &str,
        reasons: &[Reason],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Option<&Event> {
        let about = self.events.iter().filter(|event| {
            let object = &event.involved_object;
            object.kind.as_deref() == Some(kind)
                && object.name.as_deref() == Some(name)
                && event
                    .reason
                    .as_deref()
                    .is_some_and(|reason| reasons.iter().any(|known| *known == *reason))
                && is_wanted(event.message.as_deref().unwrap_or_default())
        });
        about.max_by_key(|event| time_of(event))
    }

    /// Whether the guest is in the state that the spec requests.
    pub(crate) fn is_as_requested(&self) -> bool {
        let has_none = self.vm.is_some() && self.vmi.is_none();
        match (self.phase(), self.strategy()) {
            (Some(Phase::Running), _) => self.problem(&Type::Ready).is_none(),
            (None, Some(Strategy::Halted)) => has_none,
            (None, Some(Strategy::Manual)) => has_none && !self.is_start_requested(),
            _ => false,
        }
    }

    /// A user has requested a start, and the VMI does not exist yet.
    pub(crate) fn is_start_requested(&self) -> bool {
        let status = self.vm.as_ref().and_then(|vm| vm.status.as_ref());
        let requests = status.map_or(&[][..], |status| &status.state_change_requests);
        let mut actions = requests.iter().map(|request| &request.action);
        actions.any(|action| *action == StateChangeRequestAction::Start)
    }
}

pub(crate) fn time_of(event: &Event) -> Timestamp {
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let micro = event.event_time.as_ref().map(|time| time.0);
    let first = event.first_timestamp.as_ref().map(|time| time.0);
    last.or(micro).or(first).unwrap_or(Timestamp::UNIX_EPOCH)
}

pub(crate) fn name_of(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}

/// Whether it belongs to the VM of that UID; virt-controller adopts an object without an owner.
fn belongs_to(metadata: &ObjectMeta, uid: Option<&str>) -> bool {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.is_empty() || owners.iter().any(|owner| Some(owner.uid.as_str()) == uid)
}

/// Finalizers that are not in `known`: other components have to remove them.
pub(crate) fn foreign_finalizers<'a>(metadata: &'a ObjectMeta, known: &[&str]) -> Vec<&'a str> {
    let all: BTreeSet<&str> = metadata
        .finalizers
        .iter()
        .flatten()
        .map(String::as_str)
        .collect();
    all.into_iter()
        .filter(|name| !known.contains(name))
        .collect()
}
