//! Pure planning: the next step for one persistent volume claim.
//!
//! [`fields`] reads claims, [`fitting`] finds an existing volume for one.

mod fields;
mod fitting;
#[cfg(test)]
mod tests;

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use reasons::Reason;

use super::{CLAIM_PROTECTION, PROVISIONER, backing::Mode};

pub(crate) use fields::{
    DataSource, data_source, has_finalizer, phase, requested, volume_mode, volume_name,
};
use fields::{annotation, class_name, is_for, mode};
use fitting::fitting;

pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// The observed claim and the objects around it.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) claim: &'a PersistentVolumeClaim,
    pub(crate) volumes: &'a [std::sync::Arc<PersistentVolume>],
    pub(crate) classes: &'a [std::sync::Arc<StorageClass>],
    /// Whether a pod waits only for its volumes.
    pub(crate) consumer: Consumer,
    /// Whether a bound pod uses the claim.
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

/// One step; the claim is observed again after each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Adds the finalizer that keeps a claim while a pod uses it.
    Protect,
    Unprotect,
    SetClass(String),
    SelectNode,
    Provision {
        class: String,
        mode: Mode,
        data: DataSource,
    },
    /// Writes the claim into the volume.
    TakeVolume(String),
    /// Writes the volume into the claim.
    Bind(String),
    /// Writes phase `Bound` and the volume's capacity.
    SetBound(String),
    /// Publishes the event and writes phase `Lost`.
    SetLost(Event),
    /// Only publishes why the claim waits.
    Publish(Event),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: reconcile::EventType,
    pub(crate) reason: Reason,
    pub(crate) message: String,
}

impl Event {
    fn normal(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            kind: reconcile::EventType::Normal,
            reason,
            message: message.into(),
        }
    }

    fn warning(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            kind: reconcile::EventType::Warning,
            reason,
            message: message.into(),
        }
    }
}

pub(crate) fn next(observed: &Observed<'_>) -> Option<Step> {
    let claim = observed.claim;
    let protected = has_finalizer(&claim.metadata, CLAIM_PROTECTION);
    if claim.metadata.deletion_timestamp.is_some() {
        let free = protected && observed.usage == Usage::Unused;
        return free.then_some(Step::Unprotect);
    }
    if !protected {
        return Some(Step::Protect);
    }
    match volume_name(claim) {
        Some(name) => bound(observed, name),
        None => unbound(observed),
    }
}

/// The next step for a claim that names a volume.
fn bound(observed: &Observed<'_>, name: &str) -> Option<Step> {
    let claim = observed.claim;
    let phase = phase(claim);
    let Some(volume) = observed.volumes.iter().find(|one| named(one, name)) else {
        let was_bound = annotation(claim, BIND_COMPLETED).is_some();
        let lost = was_bound && phase != "Lost";
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lost.then(|| Step::SetLost(Event::warning(Reason::ClaimLost, message)));
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
                (phase != "Bound").then(|| Step::SetBound(name.to_owned()))
            }
        }
        Some(_) => (phase != "Lost").then(|| {
            let message = format!("Volume {name:?} is bound to another claim");
            Step::SetLost(Event::warning(Reason::ClaimMisbound, message))
        }),
    }
}

fn unbound(observed: &Observed<'_>) -> Option<Step> {
    let claim = observed.claim;
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
    if let Some(volume) = observed.volumes.iter().find(refers_to_us) {
        return Some(Step::Bind(volume.metadata.name.clone()?));
    }
    // No existing volume has the data.
    let is_empty = data_source(claim) == Ok(DataSource::None);
    let Some(class_name) = class_name(claim) else {
        return match default_class(observed.classes) {
            Some(class) => Some(Step::SetClass(class)),
            None => match fitting(observed, "").filter(|_| is_empty) {
                Some(name) => Some(Step::TakeVolume(name)),
                None => Some(no_volume()),
            },
        };
    };
    let class = observed
        .classes
        .iter()
        .find(|class| class.metadata.name.as_deref() == Some(class_name));
    let waits = class.and_then(|class| class.volume_binding_mode.as_deref())
        == Some("WaitForFirstConsumer");
    let selected = annotation(claim, SELECTED_NODE);
    if waits && selected.is_none() {
        return match observed.consumer {
            Consumer::Waiting => Some(Step::SelectNode),
            Consumer::None => Some(Step::Publish(Event::normal(
                Reason::WaitForFirstConsumer,
                "waiting for first consumer to be created before binding",
            ))),
        };
    }
    if let Some(name) = fitting(observed, class_name).filter(|_| is_empty) {
        return Some(Step::TakeVolume(name));
    }
    if class_name.is_empty() {
        return Some(no_volume());
    }
    let Some(class) = class else {
        let message = format!("storageclass.storage.k8s.io {class_name:?} not found");
        return Some(Step::Publish(Event::warning(
            Reason::ProvisioningFailed,
            message,
        )));
    };
    if selected.is_some_and(|node| node != observed.node) {
        return None;
    }
    provision(observed, class, class_name)
}

fn provision(observed: &Observed<'_>, class: &StorageClass, class_name: &str) -> Option<Step> {
    match class.provisioner.as_str() {
        PROVISIONER => {}
        "kubernetes.io/no-provisioner" => return Some(no_volume()),
        other => {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{other}' \
                 or manually by the system administrator. If volume creation is delayed, please \
                 verify that the provisioner is running and correctly registered."
            );
            return Some(Step::Publish(Event::normal(
                Reason::ExternalProvisioning,
                message,
            )));
        }
    }
    let spec = observed.claim.spec.as_ref()?;
    let data = match data_source(observed.claim) {
        Ok(data) => data,
        Err(source) => {
            let message = format!(
                "storage class {class_name:?} makes empty volumes and copies of snapshots and of \
                 claims of the same namespace: the claim's dataSource {source} is not supported"
            );
            return Some(Step::Publish(Event::warning(
                Reason::ProvisioningFailed,
                message,
            )));
        }
    };
    if spec.selector.is_some() {
        let message = "claim Selector is not supported";
        return Some(Step::Publish(Event::warning(
            Reason::ProvisioningFailed,
            message,
        )));
    }
    Some(Step::Provision {
        class: class_name.to_owned(),
        mode: mode(observed.claim),
        data,
    })
}

fn no_volume() -> Step {
    Step::Publish(Event::normal(
        Reason::FailedBinding,
        "no persistent volumes available for this claim and no storage class is set",
    ))
}

fn default_class(classes: &[std::sync::Arc<StorageClass>]) -> Option<String> {
    let is_default = |class: &&std::sync::Arc<StorageClass>| {
        let annotations = class.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(DEFAULT_CLASS))
            .map(String::as_str)
            == Some("true")
    };
    // The newest of several, as everywhere in Kubernetes.
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

fn named(volume: &PersistentVolume, name: &str) -> bool {
    volume.metadata.name.as_deref() == Some(name)
}
