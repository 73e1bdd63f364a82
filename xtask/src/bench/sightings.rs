//! Every change of pods and VMIs, with the moment at which this client saw it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api, Client,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind},
    runtime::watcher::{self, Event},
};
use serde_json::Value;
use tokio::{sync::watch, task::JoinSet};

/// Ten guests on a slow machine by software emulation stay below it.
const PATIENCE: Duration = Duration::from_mins(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Pod,
    Vmi,
}

/// One version of one object, as one watch event showed it.
#[derive(Debug, Clone)]
pub(super) struct Sighting {
    pub(super) at: Instant,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) uid: String,
    /// Of the first owner.
    pub(super) owner: Option<String>,
    pub(super) version: String,
    pub(super) phase: String,
    pub(super) is_bound: bool,
    /// The field managers with their entries in managedFields.
    pub(super) managers: Vec<(String, Value)>,
    pub(super) is_gone: bool,
}

impl Sighting {
    /// Whether it shows that VM, or a pod of that name or of that VM.
    pub(super) fn is_of(&self, name: &str) -> bool {
        self.name == name || self.owner.as_deref() == Some(name)
    }
}

/// All observed objects, and the watching tasks.
#[derive(Debug)]
pub(super) struct Sightings {
    seen: watch::Receiver<Vec<Sighting>>,
    _watches: JoinSet<()>,
}

impl Sightings {
    /// Starts observing; returns when both watches run.
    pub(super) async fn begin(client: &Client) -> Result<Self> {
        let (sender, seen) = watch::channel(Vec::new());
        let (begun, mut beginnings) = watch::channel(0_u32);
        let mut watches = JoinSet::new();
        for (kind, gvk) in [
            (Kind::Pod, GroupVersionKind::gvk("", "v1", "Pod")),
            (
                Kind::Vmi,
                GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachineInstance"),
            ),
        ] {
            let resource = ApiResource::from_gvk(&gvk);
            let api = Api::default_namespaced_with(client.clone(), &resource);
            watches.spawn(look(api, kind, sender.clone(), begun.clone()));
        }
        let begun = beginnings.wait_for(|count| *count == 2);
        tokio::time::timeout(PATIENCE, begun)
            .await
            .context("watch pods and VMIs")??;
        Ok(Self {
            seen,
            _watches: watches,
        })
    }

    /// Waits until `found` returns a value for the observed objects.
    pub(super) async fn find<T>(
        &self,
        what: &str,
        found: impl Fn(&[Sighting]) -> Option<T>,
    ) -> Result<T> {
        let mut seen = self.seen.clone();
        let waited =
            tokio::time::timeout(PATIENCE, seen.wait_for(|seen| found(seen).is_some())).await;
        let all = waited
            .map_err(|_elapsed| anyhow!("waited {PATIENCE:?} for {what}"))?
            .context("the watches ended")?;
        found(&all).with_context(|| format!("find {what} again"))
    }

    /// All that was seen of these objects.
    pub(super) fn of(&self, name: &str) -> Vec<Sighting> {
        let seen = self.seen.borrow();
        seen.iter().filter(|one| one.is_of(name)).cloned().collect()
    }
}

/// When that kind of object under that name first was in that phase.
pub(super) fn reached(
    seen: &[Sighting],
    (kind, name): (Kind, &str),
    phase: &str,
) -> Option<Instant> {
    seen.iter()
        .find(|one| one.kind == kind && one.is_of(name) && one.phase == phase)
        .map(|one| one.at)
}

/// Whether everything seen under that name is gone again.
pub(super) fn all_gone(seen: &[Sighting], name: &str) -> bool {
    let mut ours = seen.iter().filter(|one| one.is_of(name)).peekable();
    ours.peek().is_some()
        && ours.all(|one| {
            seen.iter()
                .any(|later| later.is_gone && later.uid == one.uid)
        })
}

async fn look(
    api: Api<DynamicObject>,
    kind: Kind,
    seen: watch::Sender<Vec<Sighting>>,
    begun: watch::Sender<u32>,
) {
    // Without the first list there is nothing to measure against; later failures are retried by the
    // watcher, which then lists again.
    let mut events = watcher::watcher(api, watcher::Config::default())
        .into_stream()
        .boxed();
    loop {
        match events.try_next().await {
            Ok(Some(Event::Apply(object))) => note(&seen, kind, &object, Change::Made),
            Ok(Some(Event::Delete(object))) => note(&seen, kind, &object, Change::Gone),
            Ok(Some(Event::InitDone)) => begun.send_modify(|count| *count += 1),
            Ok(Some(Event::Init | Event::InitApply(_))) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Made,
    Gone,
}

fn note(seen: &watch::Sender<Vec<Sighting>>, kind: Kind, object: &DynamicObject, change: Change) {
    let at = Instant::now();
    let meta = object.metadata.clone();
    let managers = meta.managed_fields.into_iter().flatten();
    let sighting = Sighting {
        at,
        kind,
        name: meta.name.unwrap_or_default(),
        uid: meta.uid.unwrap_or_default(),
        owner: meta
            .owner_references
            .and_then(|owners| owners.into_iter().next())
            .map(|owner| owner.name),
        version: meta.resource_version.unwrap_or_default(),
        phase: object.data["status"]["phase"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        is_bound: object.data["spec"]["nodeName"].is_string(),
        managers: managers
            .map(|entry| {
                let noted = serde_json::to_value(&entry).unwrap_or_default();
                (entry.manager.unwrap_or_default(), noted)
            })
            .collect(),
        is_gone: change == Change::Gone,
    };
    seen.send_modify(|seen| seen.push(sighting));
}
