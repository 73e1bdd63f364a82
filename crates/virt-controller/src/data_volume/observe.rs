//! Observation: everything that one reconcile may read.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt as _};
use kubevirt_api::annotations;
use kubevirt_api::data_volume_status::{DataVolume as Whole, DataVolumePhase};
use kubevirt_api::quantity::Amount;
use kubevirt_api::storage_profile::{CdiCloneStrategy, ClaimPropertySet, StorageProfileStatus};
use launcher_pod::ContainerDisks;
use reconcile::Key;

use super::named::{self, Named};
use super::request::{self, Abilities, Refusal, Request, Source, Unmet};
use super::transfer::Transfer;
use super::view::{ClaimUser, Container, ImporterPod, StorageClass};
use super::{Controller, DataVolumeError, claim, pod};
use crate::data_source::Target;
use crate::view::{Claim, DataVolume};

/// The storage of a single host.
const OWN_STORAGE: &str = "ferrovirt.io/local";
/// A log that takes longer is read next time.
const LOG_PATIENCE: Duration = Duration::from_secs(5);
/// The last line of progress is among these.
const LOG_LINES: i64 = 10;
const LOG_BYTES: i64 = 16 << 10;

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) volume: Arc<DataVolume>,
    pub(super) request: Result<Request, Unmet>,
    /// What `spec.sourceRef` stands for.
    pub(super) named: Option<Named>,
    /// The claim of its name.
    pub(super) claim: Option<Arc<Claim>>,
    /// The class binds claims only once a pod uses them, and no annotation asks to bind this one at once.
    pub(super) waits_for_consumer: bool,
    pub(super) origin: Origin,
    /// Of a source in another namespace, once there is a claim for it.
    pub(super) transfer: Transfer,
    pub(super) pod: Option<Arc<ImporterPod>>,
    /// From the log of a running pod.
    pub(super) progress: Option<String>,
    pub(super) now: Timestamp,
}

/// The claim or the volume snapshot to copy.
#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// The source is neither, or the claim was created from the snapshot already.
    None,
    Missing(String),
    /// Another import populates it, its upload is not complete, or it has no volume yet.
    Unpopulated(String),
    InUse {
        claim: String,
        pod: String,
    },
    Ready(Arc<Claim>),
    /// The storage makes the claim from it.
    Cloned(Arc<Claim>),
    NoSnapshot(String),
    /// With the reason, if one is known.
    IncompleteSnapshot {
        name: String,
        problem: Option<String>,
    },
    Snapshot {
        /// The smallest size of a claim from it, in bytes.
        least: Option<u64>,
    },
}

impl Origin {
    /// The size of a copy, if none is requested.
    pub(super) fn size(&self) -> Option<u64> {
        match self {
            Self::Ready(claim) | Self::Cloned(claim) => claim::capacity(claim),
            Self::Snapshot { least } => *least,
            _ => None,
        }
    }
}

impl Observed {
    pub(super) fn whole(&self) -> Option<&Whole> {
        self.volume.unfinished.as_deref()
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        let all = self.whole()?.metadata.annotations.as_ref()?;
        all.get(name).map(String::as_str)
    }
}

impl Controller {
    pub(super) async fn observe(
        &self,
        key: &Key,
        volume: Arc<DataVolume>,
    ) -> Result<Observed, DataVolumeError> {
        let uid = volume.uid().unwrap_or_default();
        let pod = self
            .pods
            .get(&Key::new(&key.namespace, pod::name(&uid)))
            .filter(|pod| is_of(pod.as_ref(), &uid));
        let mut observed = Observed {
            request: Err(Refusal(String::new()).into()),
            named: None,
            claim: None,
            waits_for_consumer: false,
            origin: Origin::None,
            transfer: Transfer::None,
            pod,
            progress: None,
            now: self.clock.now(),
            volume,
        };
        let Some(whole) = observed.volume.unfinished.as_deref() else {
            return Ok(observed);
        };
        if observed.volume.phase == DataVolumePhase::Failed {
            return Ok(observed);
        }
        let abilities = Abilities {
            images: self.images(),
            uploads: self.uploads,
        };
        observed.claim = self.volumes.claims.get(key, key);
        if let Some(reference) = &whole.spec.source_ref {
            let recorded = observed.claim.as_deref().and_then(named::recorded);
            let found = match recorded {
                Some(recorded) => Ok(recorded),
                None => self.named(key, whole, reference).await?,
            };
            match found {
                Ok(named) => observed.named = Some(named),
                Err(unmet) => {
                    observed.request = Err(unmet);
                    return Ok(observed);
                }
            }
        }
        let request = request::parse(whole, observed.named.as_ref(), abilities);
        let request = request.map(|mut request| {
            if observed.claim.is_none() {
                let class = request.form.storage_class();
                let sets = self.property_sets(class);
                request.complete(&sets);
            }
            request
        });
        observed.request = request.map_err(Unmet::from);
        if let Ok(request) = &observed.request
            && let Source::Elsewhere(target) = &request.source
        {
            let has_pod = observed.pod.is_some();
            if has_pod && observed.claim.is_some() {
                observed.transfer = self.transfer(key, &uid, target).await?;
            }
            // A pod that reads from an export needs no right again. It does not prove that there was one: users make pods,
            // and change what the claim says of its source.
            let is_exported = has_pod && observed.transfer.is_made();
            if !is_exported && let Err(unmet) = self.may_copy(key, whole, target).await? {
                observed.request = Err(unmet);
                observed.transfer = Transfer::None;
                return Ok(observed);
            }
            if !has_pod && observed.claim.is_some() {
                observed.transfer = self.transfer(key, &uid, target).await?;
            }
        }
        observed.waits_for_consumer = self.waits_for_consumer(&observed).await?;
        observed.origin = self.origin(key, &observed).await?;
        if let Some(pod) = observed.pod.as_deref() {
            observed.progress = importer_progress(&self.client, pod).await;
        }
        Ok(observed)
    }

    /// How claims of the storage class, or of the default one, are best made.
    fn property_sets(&self, class: Option<&str>) -> Vec<ClaimPropertySet> {
        self.profile(class).claim_property_sets
    }

    /// What is known of the storage class, or of the default one.
    fn profile(&self, class: Option<&str>) -> StorageProfileStatus {
        let default = || {
            let all = self.classes.list();
            let found = all.iter().find(|class| class.is_default);
            found.map(|class| class.name_any())
        };
        let profile = class
            .map(str::to_owned)
            .or_else(default)
            .and_then(|name| self.profiles.get(&Key::new("", name)));
        let status = profile.and_then(|profile| profile.status.clone());
        status.unwrap_or_default()
    }

    /// How images of registries get into the pod.
    fn images(&self) -> ContainerDisks {
        let hosts = self.hosts.list();
        let hosts = hosts.iter().filter(|host| host.takes_guests());
        let all = hosts.map(|host| host.image_volumes);
        crate::container_disks::choose(&self.cluster.now(), all)
    }

    async fn waits_for_consumer(&self, observed: &Observed) -> Result<bool, DataVolumeError> {
        let Some(claim) = observed.claim.as_deref() else {
            return Ok(false);
        };
        let waits = waits_for_consumer(&self.client, claim).await;
        waits.map_err(DataVolumeError::read)
    }

    async fn origin(&self, key: &Key, observed: &Observed) -> Result<Origin, DataVolumeError> {
        let Ok(request) = &observed.request else {
            return Ok(Origin::None);
        };
        let own = |name: &str| Key::new(&key.namespace, name);
        // Sources in other namespaces have theirs in messages.
        let (at, name) = match &request.source {
            Source::Snapshot(name) => {
                return Ok(self.snapshot(key, (&own(name), name), observed));
            }
            Source::Elsewhere(Target::Snapshot(at)) => {
                return Ok(self.snapshot(key, (at, &at.to_string()), observed));
            }
            Source::Claim(name) => (own(name), name.clone()),
            Source::Elsewhere(Target::Claim(at)) => (at.clone(), at.to_string()),
            _ => return Ok(Origin::None),
        };
        // The claim shows which way was chosen.
        if observed.claim.as_deref().is_some_and(|made| made.is_cloned) {
            return Ok(Origin::None);
        }
        let Some(claim) = self.volumes.claims.get(&at, key) else {
            return Ok(Origin::Missing(name));
        };
        let populates = self.volumes.data_volumes.get(&at, key);
        if !is_populated(&claim, populates.as_deref()) {
            return Ok(Origin::Unpopulated(name));
        }
        let is_cloned = observed.claim.is_none() && at.namespace == key.namespace && {
            let profile = self.profile(request.form.storage_class());
            is_clonable(request, &claim, &profile)
        };
        // The export of a source in another namespace waits until it is free.
        let is_exported = at.namespace != key.namespace;
        let is_made_later = observed.claim.is_none() && !is_cloned;
        if observed.pod.is_some() || is_made_later || is_exported {
            return Ok(Origin::Ready(claim));
        }
        let user = claim_user(&self.client, &at, |pod| pod.writes(&at.name)).await;
        let user = user.map_err(DataVolumeError::read)?;
        Ok(match user {
            Some(pod) => Origin::InUse { claim: name, pod },
            None if is_cloned => Origin::Cloned(claim),
            None => Origin::Ready(claim),
        })
    }

    fn snapshot(&self, key: &Key, (at, name): (&Key, &str), observed: &Observed) -> Origin {
        if observed.claim.is_some() {
            return Origin::None;
        }
        let found = self.snapshots.get(at, key);
        let Some(found) = found.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
            return Origin::NoSnapshot(name.to_owned());
        };
        let status = found.status.clone().unwrap_or_default();
        if status.ready_to_use != Some(true) {
            return Origin::IncompleteSnapshot {
                name: name.to_owned(),
                problem: status.error.and_then(|error| error.message),
            };
        }
        let least = status.restore_size.as_ref();
        let least = least.and_then(|size| Amount::parse(size).ok());
        Origin::Snapshot {
            least: least.map(Amount::units).filter(|bytes| *bytes > 0),
        }
    }
}

/// Whether the storage can make the claim from the source by itself, and an administrator says so in the profile.
pub(super) fn is_clonable(
    request: &Request,
    source: &Claim,
    profile: &StorageProfileStatus,
) -> bool {
    let is_big_enough = match (claim::requested(request), claim::capacity(source)) {
        (Some(wanted), Some(least)) => wanted >= least,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    profile.clone_strategy == Some(CdiCloneStrategy::CsiClone)
        // The storage of a single host copies snapshots only.
        && profile.provisioner.as_deref() != Some(OWN_STORAGE)
        && profile.storage_class.is_some()
        && profile.storage_class == source.storage_class
        && request.form.is_block() == claim::is_block(source)
        && is_big_enough
}

/// The progress in the log of a running pod. Failures are logged only: the import goes on.
pub(crate) async fn importer_progress(client: &Client, pod: &ImporterPod) -> Option<String> {
    let pod = Some(pod).filter(|pod| matches!(pod.container, Container::Running { .. }))?;
    let api = Api::<Pod>::namespaced(client.clone(), &pod.namespace()?);
    let parameters = LogParams {
        container: Some(pod::CONTAINER.to_owned()),
        tail_lines: Some(LOG_LINES),
        limit_bytes: Some(LOG_BYTES),
        ..LogParams::default()
    };
    let name = pod.name_any();
    let log = tokio::time::timeout(LOG_PATIENCE, api.logs(&name, &parameters)).await;
    match log {
        Ok(Ok(log)) => import_report::last_progress(&log).map(str::to_owned),
        Ok(Err(error)) => {
            tracing::debug!(pod = name, %error, "the log of an importer cannot be read");
            None
        }
        Err(_elapsed) => None,
    }
}

/// Whether the data of a claim is complete; the data volume has its name.
pub(super) fn is_populated(claim: &Claim, populates: Option<&DataVolume>) -> bool {
    claim.is_bound
        && !claim.awaits_upload()
        && claim.open_restore().is_none()
        && populates.is_none_or(|volume| volume.phase == DataVolumePhase::Succeeded)
}

/// Whether the owner with this UID controls the object: names prove nothing.
pub(crate) fn is_of(object: &impl kube::Resource, uid: &str) -> bool {
    let owners = object.meta().owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| owner.uid == uid)
}

/// Whether the claim has no volume until a pod uses it.
pub(crate) async fn waits_for_consumer(client: &Client, claim: &Claim) -> kube::Result<bool> {
    let name = claim.storage_class.as_deref().filter(|it| !it.is_empty());
    let Some(name) = name.filter(|_| !claim.is_bound) else {
        return Ok(false);
    };
    let api = Api::<StorageClass>::all(client.clone());
    let class = api.get_opt(name).await?;
    Ok(class.is_some_and(|class| class.waits_for_consumer()))
}

/// The name of a pod that uses the claim, of those that count.
pub(super) async fn claim_user(
    client: &Client,
    claim: &Key,
    counts: impl Fn(&ClaimUser) -> bool,
) -> kube::Result<Option<String>> {
    let pods = claim_users(client, &claim.namespace).await?;
    let mut users = pods.into_iter().filter(|pod| pod.uses(&claim.name));
    Ok(users.find(counts).map(|pod| pod.name_any()))
}

/// The pods of a namespace, with the claims that they use.
pub(crate) async fn claim_users(client: &Client, namespace: &str) -> kube::Result<Vec<ClaimUser>> {
    let api = Api::<ClaimUser>::namespaced(client.clone(), namespace);
    Ok(api.list(&ListParams::default()).await?.items)
}

/// Whether a user asked for the claim to be bound at once.
pub(super) fn binds_at_once(observed: &Observed) -> bool {
    observed
        .annotation(annotations::CDI_BIND_IMMEDIATE_REQUESTED)
        .is_some_and(|value| value != "false")
}
