//! Data volumes that a VM makes of its templates.
//!
//! Each has the name that its template gives it and the VM as its controlling owner. Filling them
//! is an importer's work, which is no part of this; a claim of the name stands in for one. No
//! instance is made before all are filled, or wait for nothing but a pod that uses them.
//!
//! **Invariant**: what another namespace keeps is copied only where the machine's own account may
//! do so: the importer trusts whoever makes a data volume, and that is this controller.

use std::sync::Arc;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Resource as _, ResourceExt as _};
use kubevirt_api::data_source::{DataSource, DataSourceSource};
use kubevirt_api::data_volume_status::DataVolumePhase as Phase;
use kubevirt_api::{annotations, labels};
use reasons::Reason;
use reconcile::{EventType, Key, Retry, WriteError, create, merge};
use serde_json::{Value, json};

use super::observe::Observed;
use super::plan::Step;
use super::status::Done;
use super::{Controller, VmError, template};
use crate::MANAGER;
use crate::view::{DataVolume, Vm};

const GROUP: &str = "cdi.kubevirt.io";
/// How many data sources may stand behind one another, the first included.
const MOST_SOURCES: usize = 2;

/// A template, and what is there of it.
#[derive(Debug, Clone)]
pub(super) struct Templated {
    pub(super) name: String,
    pub(super) data_volume: Option<Arc<DataVolume>>,
    pub(super) has_claim: bool,
    /// The claim to copy that does not exist, by its key.
    pub(super) missing_source: Option<Key>,
}

/// Whether the cluster knows data volumes at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Importer {
    Installed,
    Missing,
}

/// How far the data volumes of a VM are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// Data is still to come, or will not, as the message says.
    Waits(String),
    /// Nobody here makes what is asked for.
    Impossible(String),
}

/// Why a data volume could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataVolumeError {
    #[error("create data volume {name}")]
    Create {
        name: String,
        #[source]
        source: WriteError,
    },
    #[error("adopt data volume {name}")]
    Adopt {
        name: String,
        #[source]
        source: WriteError,
    },
    #[error("look for what data volume {name} is a copy of")]
    Look {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("data volume {name} is made from data source {wanted}, which does not exist")]
    NoSource { name: String, wanted: Key },
    #[error(
        "account {account} must not copy from namespace {namespace}: allow it to create \
         datavolumes/source of cdi.kubevirt.io there"
    )]
    Unauthorized { account: String, namespace: String },
}

impl DataVolumeError {
    /// Of the event that tells of it, and of the metric.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Unauthorized { .. } => Reason::UnauthorizedDataVolumeCreate,
            Self::Create { .. }
            | Self::Adopt { .. }
            | Self::Look { .. }
            | Self::NoSource { .. } => Reason::FailedDataVolumeCreate,
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Create { source, .. } | Self::Adopt { source, .. } => source.retry(),
            Self::Look { .. } | Self::NoSource { .. } | Self::Unauthorized { .. } => Retry::BackOff,
        }
    }
}

/// What is to be done about templates, when an instance is about to start or not.
pub(super) fn steps(seen: &Observed, starts: bool) -> Vec<Step> {
    let at_once = seen
        .vm
        .annotation(annotations::IMMEDIATE_DATA_VOLUME_CREATION)
        != Some("false");
    let all = seen.templates.iter().enumerate();
    all.filter_map(|(index, one)| match &one.data_volume {
        Some(there) if is_nobodys(there) => Some(Step::AdoptDataVolume(index)),
        Some(_) => None,
        None if one.has_claim || seen.importer == Importer::Missing => None,
        None => (at_once || starts).then_some(Step::CreateDataVolume(index)),
    })
    .collect()
}

fn is_nobodys(there: &DataVolume) -> bool {
    let mut owners = there.owner_references().iter();
    there.metadata.deletion_timestamp.is_none()
        && !owners.any(|owner| owner.controller == Some(true))
}

/// Whether an instance may be made.
pub(super) fn readiness(seen: &Observed) -> Readiness {
    let mut waits = Vec::new();
    for (index, one) in seen.templates.iter().enumerate() {
        let name = &one.name;
        match &one.data_volume {
            None if one.has_claim => {}
            None if seen.importer == Importer::Missing => {
                return Readiness::Impossible(format!(
                    "spec.dataVolumeTemplates[{index}]: this cluster has no importer of data \
                     volumes (datavolumes.{GROUP}): install one, or make \
                     persistentvolumeclaim {name} yourself"
                ));
            }
            None => waits.push(format!("data volume {name} does not exist yet")),
            Some(there) => waits.extend(unfilled(one, there)),
        }
    }
    if waits.is_empty() {
        Readiness::Ready
    } else {
        Readiness::Waits(waits.join("; "))
    }
}

fn unfilled(one: &Templated, there: &DataVolume) -> Option<String> {
    let name = &one.name;
    match &there.phase {
        Phase::Succeeded | Phase::WaitForFirstConsumer | Phase::PendingPopulation => None,
        Phase::Failed => Some(format!("data volume {name} has failed")),
        Phase::Unset => Some(format!("no importer has looked at data volume {name} yet")),
        phase => Some(match &one.missing_source {
            Some(source) => format!(
                "data volume {name} is a copy of persistentvolumeclaim {source}, which does not \
                 exist"
            ),
            None => format!("data volume {name} is {}", phase.as_str()),
        }),
    }
}

/// The claim that a template says to copy.
pub(super) fn source_claim(template: &Value, namespace: &str) -> Option<Key> {
    let claim = template.pointer("/spec/source/pvc")?;
    let given = claim["namespace"].as_str().filter(|it| !it.is_empty());
    Some(Key::new(
        given.unwrap_or(namespace),
        claim["name"].as_str()?,
    ))
}

/// The data volume to make of a template.
pub(super) fn body(vm: &Vm, name: &str, template: &Value) -> Value {
    let copied = |member: &str| {
        let found = template["metadata"].get(member);
        let found = found.filter(|members| members.is_object());
        found.cloned().unwrap_or_else(|| json!({}))
    };
    let (mut marks, mut notes) = (copied("labels"), copied("annotations"));
    marks[labels::CREATED_BY] = json!(vm.metadata.uid);
    if notes[annotations::CDI_ALLOW_CLAIM_ADOPTION].is_null() {
        notes[annotations::CDI_ALLOW_CLAIM_ADOPTION] = "true".into();
    }
    let mut spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    let class = vm.spec.template.pointer("/spec/priorityClassName");
    if let Some(class) = class.and_then(Value::as_str).filter(|it| !it.is_empty())
        && spec["priorityClassName"].as_str().is_none_or(str::is_empty)
    {
        spec["priorityClassName"] = class.into();
    }
    json!({
        "apiVersion": format!("{GROUP}/v1beta1"),
        "kind": DataVolume::kind(&()),
        "metadata": {
            "name": name,
            "namespace": vm.metadata.namespace,
            "labels": marks,
            "annotations": notes,
            "ownerReferences": [template::owner(vm)],
        },
        "spec": spec,
    })
}

impl Controller {
    pub(super) async fn create_data_volume(
        &self,
        seen: &Observed,
        index: usize,
        done: &mut Done,
    ) -> Result<(), VmError> {
        let Some((one, template)) = nth(seen, index) else {
            return Ok(());
        };
        let vm = seen.vm.as_ref();
        let outcome = async {
            self.authorize(vm, &one.name, template).await?;
            self.make(vm, &one.name, template).await
        };
        match outcome.await {
            Ok(true) => {
                let note = format!("Created data volume {}", one.name);
                let reason = Reason::SuccessfulDataVolumeCreate;
                self.recorder.publish(vm, EventType::Normal, reason, note);
                Ok(())
            }
            // Made a moment ago; the watch will bring it.
            Ok(false) => Ok(()),
            Err(error) => {
                let text = reconcile::error_chain(&error);
                let note = format!("Cannot create data volume {}: {text}", one.name);
                self.recorder
                    .publish(vm, EventType::Warning, error.reason(), note);
                done.failure = Some((Reason::FailedCreate, text));
                Err(error.into())
            }
        }
    }

    /// Answers whether it was made just now.
    async fn make(&self, vm: &Vm, name: &str, template: &Value) -> Result<bool, DataVolumeError> {
        let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<DataVolume>::namespaced(self.client.clone(), namespace);
        let key = Key::new(namespace, name);
        match create(&api, MANAGER, &key, &body(vm, name, template)).await {
            Ok(_) => Ok(true),
            Err(WriteError::AlreadyExists { .. }) => Ok(false),
            Err(source) => Err(DataVolumeError::Create {
                name: name.to_owned(),
                source,
            }),
        }
    }

    pub(super) async fn adopt_data_volume(
        &self,
        seen: &Observed,
        index: usize,
    ) -> Result<(), VmError> {
        let Some((one, _)) = nth(seen, index) else {
            return Ok(());
        };
        let Some(there) = &one.data_volume else {
            return Ok(());
        };
        let mut owners = json!(there.owner_references());
        if let Some(list) = owners.as_array_mut() {
            list.push(template::owner(&seen.vm));
        }
        let key = Key::of(there.as_ref());
        let api = Api::<DataVolume>::namespaced(self.client.clone(), &key.namespace);
        let body = json!({"metadata": {
            "resourceVersion": there.metadata.resource_version,
            "ownerReferences": owners,
        }});
        match merge(&api, MANAGER, &key, &body).await {
            Ok(_) => Ok(()),
            Err(source) => Err(DataVolumeError::Adopt {
                name: one.name.clone(),
                source,
            }
            .into()),
        }
    }

    /// Tells of what became of data volumes, once: what the condition says was told already.
    pub(super) fn tell_of_data_volumes(&self, seen: &Observed, said: Option<&str>) {
        let Readiness::Waits(message) = readiness(seen) else {
            return;
        };
        if said == Some(&message) {
            return;
        }
        for one in &seen.templates {
            let Some(there) = &one.data_volume else {
                continue;
            };
            let reason = match (&there.phase, &one.missing_source) {
                (Phase::Failed, _) => Reason::FailedDataVolumeImport,
                (Phase::Pending, Some(_)) => Reason::SourcePVCNotAvailable,
                _ => continue,
            };
            let note = unfilled(one, there).unwrap_or_default();
            self.recorder
                .publish(seen.vm.as_ref(), EventType::Warning, reason, note);
        }
    }

    /// Whether the machine's own account may copy what the template names.
    async fn authorize(
        &self,
        vm: &Vm,
        name: &str,
        template: &Value,
    ) -> Result<(), DataVolumeError> {
        let own = vm.metadata.namespace.as_deref().unwrap_or_default();
        let source = self.source_namespace(own, name, template).await?;
        let Some(namespace) = source.filter(|namespace| namespace != own) else {
            return Ok(());
        };
        let account = format!("system:serviceaccount:{own}:{}", account(vm));
        for (group, resource, part) in [(GROUP, "datavolumes", "source"), ("", "pods", "")] {
            let asked = SubjectAccessReview {
                spec: SubjectAccessReviewSpec {
                    user: Some(account.clone()),
                    groups: Some(vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{own}"),
                        "system:authenticated".to_owned(),
                    ]),
                    resource_attributes: Some(ResourceAttributes {
                        namespace: Some(namespace.clone()),
                        verb: Some("create".to_owned()),
                        group: Some(group.to_owned()),
                        resource: Some(resource.to_owned()),
                        subresource: Some(part.to_owned()).filter(|part| !part.is_empty()),
                        ..ResourceAttributes::default()
                    }),
                    ..SubjectAccessReviewSpec::default()
                },
                ..SubjectAccessReview::default()
            };
            let api = Api::<SubjectAccessReview>::all(self.client.clone());
            let answer = api.create(&PostParams::default(), &asked).await;
            let answer = answer.map_err(|source| DataVolumeError::Look {
                name: name.to_owned(),
                source: Box::new(source),
            })?;
            if answer.status.is_some_and(|status| status.allowed) {
                return Ok(());
            }
        }
        Err(DataVolumeError::Unauthorized { account, namespace })
    }

    /// Namespace of the claim or snapshot that is copied, if it is one.
    async fn source_namespace(
        &self,
        own: &str,
        name: &str,
        template: &Value,
    ) -> Result<Option<String>, DataVolumeError> {
        let of = |source: &Value, default: &str| {
            let given = source["namespace"].as_str().filter(|it| !it.is_empty());
            given.unwrap_or(default).to_owned()
        };
        let spec = &template["spec"];
        for kind in ["pvc", "snapshot"] {
            if let Some(source) = spec["source"].get(kind).filter(|it| it.is_object()) {
                return Ok(Some(of(source, own)));
            }
        }
        let Some(wanted) = spec.get("sourceRef").filter(|it| it.is_object()) else {
            return Ok(None);
        };
        let wanted_name = wanted["name"].as_str().unwrap_or_default();
        let mut at = Key::new(of(wanted, own), wanted_name);
        for _ in 0..MOST_SOURCES {
            let source = self.data_source(name, &at).await?;
            let copied = source.pvc.map(|claim| claim.namespace);
            let copied = copied.or_else(|| source.snapshot.map(|one| one.namespace));
            if let Some(namespace) = copied {
                let given = Some(namespace).filter(|it| !it.is_empty());
                return Ok(Some(given.unwrap_or_else(|| at.namespace.clone())));
            }
            let Some(next) = source.data_source else {
                break;
            };
            at = Key::new(&next.namespace, &next.name);
        }
        // Nothing to copy from yet. What it will be is not known, so nobody can allow it.
        Err(DataVolumeError::NoSource {
            name: name.to_owned(),
            wanted: at,
        })
    }

    async fn data_source(&self, name: &str, at: &Key) -> Result<DataSourceSource, DataVolumeError> {
        let api = Api::<DataSource>::namespaced(self.client.clone(), &at.namespace);
        let found = api.get_opt(&at.name).await;
        let found = found.map_err(|source| DataVolumeError::Look {
            name: name.to_owned(),
            source: Box::new(source),
        })?;
        match found {
            Some(found) => Ok(found.spec.source),
            None => Err(DataVolumeError::NoSource {
                name: name.to_owned(),
                wanted: at.clone(),
            }),
        }
    }
}

fn nth(seen: &Observed, index: usize) -> Option<(&Templated, &Value)> {
    let one = seen.templates.get(index)?;
    let mut all = seen.vm.data_volume_templates();
    let template = all.find(|(name, _)| *name == one.name)?;
    Some((one, template.1))
}

/// The account that the guest has in its namespace.
fn account(vm: &Vm) -> &str {
    let mut volumes = vm.volumes().iter();
    let named = volumes.find_map(|volume| volume.pointer("/serviceAccount/serviceAccountName"));
    named.and_then(Value::as_str).unwrap_or("default")
}
