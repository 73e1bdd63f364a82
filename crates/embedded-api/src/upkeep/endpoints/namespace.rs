//! The endpoints of one namespace: compares and writes.

use std::{collections::BTreeMap, sync::Arc};

use apimachinery::meta;
use serde_json::{Value, json};

use super::{
    slices::{self, MANAGED_BY, Maker, SERVICE_NAME},
    subsets,
};
use crate::{
    api::Api,
    error::ApiError,
    registry::Served,
    store::{Collection, Scope},
    verbs::{
        Call, Live, create,
        delete::{self, Options},
        write::{self, Ownership},
    },
};

const MANAGER: &str = "endpoint-controller";
const MANAGED: &str = "endpoints.kubernetes.io/managed-by";
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";
/// Marks Endpoints that are used as a lock.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// The objects of a namespace.
#[derive(Debug)]
struct Observed {
    services: BTreeMap<String, Live>,
    endpoints: BTreeMap<String, Live>,
    slices: Vec<Live>,
    pods: Vec<Value>,
}

/// The kinds that are written, in a namespace.
struct Writer<'a> {
    api: &'a Api,
    namespace: &'a str,
    endpoints: Arc<Served>,
    slices: Arc<Served>,
}

pub(super) async fn reconcile(api: &Api, namespace: &str) -> Result<(), ApiError> {
    let (Some(endpoints), Some(slices)) = (
        api.registry.find("", "v1", "endpoints"),
        api.registry
            .find("discovery.k8s.io", "v1", "endpointslices"),
    ) else {
        return Ok(());
    };
    let writer = Writer {
        api,
        namespace,
        endpoints,
        slices,
    };
    if !writer.is_active().await? {
        return Ok(());
    }
    let mut observed = writer.observe().await?;
    for (name, service) in &observed.services {
        if selects(&service.object) {
            let wanted = subsets::of(&service.object, &observed.pods);
            let live = observed.endpoints.get(name);
            if let Some(written) = writer
                .write_endpoints(&service.object, live, wanted)
                .await?
            {
                observed.endpoints.insert(name.clone(), written);
            }
        }
    }
    let orphans: Vec<String> = observed
        .endpoints
        .iter()
        .filter(|(name, live)| {
            let is_ours = meta::label(&live.object, MANAGED) == Some(MANAGER);
            is_ours && !observed.services.contains_key(*name)
        })
        .map(|(name, _)| name.clone())
        .collect();
    for name in orphans {
        writer.delete(&writer.endpoints, &name).await?;
        observed.endpoints.remove(&name);
    }
    writer.write_slices(&observed).await
}

/// Deletes the Endpoints of a service that was deleted.
pub(super) async fn forget(api: &Api, namespace: &str, name: &str) -> Result<(), ApiError> {
    let service = Collection::new("", "services").key(namespace, name);
    // It was created again.
    if api.store.get(&service).await?.is_some() {
        return Ok(());
    }
    let Some(kind) = api.registry.find("", "v1", "endpoints") else {
        return Ok(());
    };
    let call = Call::internal(kind, namespace, Some(name));
    ignore_races(
        delete::delete_named(api, &call, name, &Options::default())
            .await
            .map(drop),
    )
}

/// Whether this server finds the pods of the service.
fn selects(service: &Value) -> bool {
    let spec = &service["spec"];
    let has_selector = spec["selector"]
        .as_object()
        .is_some_and(|all| !all.is_empty());
    has_selector && spec["type"] != "ExternalName" && !meta::is_deleting(service)
}

/// Whether these Endpoints belong to a user, for a service without a selector.
fn is_mirrored(endpoints: &Value, service: Option<&Live>) -> bool {
    let is_excluded = meta::label(endpoints, SKIP_MIRROR) == Some("true")
        || meta::annotation(endpoints, LEADER).is_some();
    let has_service = service.is_some_and(|service| {
        let selector = service.object["spec"]["selector"].as_object();
        selector.is_none_or(serde_json::Map::is_empty)
    });
    !is_excluded && has_service && !meta::is_deleting(endpoints)
}

impl Writer<'_> {
    async fn is_active(&self) -> Result<bool, ApiError> {
        let key = Collection::new("", "namespaces").key("", self.namespace);
        match self.api.store.get(&key).await? {
            Some(stored) => Ok(!meta::is_deleting(&stored.parse()?)),
            None => Ok(false),
        }
    }

    async fn observe(&self) -> Result<Observed, ApiError> {
        let services = self.list("", "services").await?;
        // Most namespaces have no service with a selector, but many pods.
        let pods = if services.iter().any(|service| selects(&service.object)) {
            self.list("", "pods").await?
        } else {
            Vec::new()
        };
        let by_name = |all: Vec<Live>| {
            let named = all
                .into_iter()
                .map(|one| (meta::name(&one.object).to_owned(), one));
            named.collect()
        };
        Ok(Observed {
            services: by_name(services),
            endpoints: by_name(self.list("", "endpoints").await?),
            slices: self.list("discovery.k8s.io", "endpointslices").await?,
            pods: pods.into_iter().map(|one| one.object).collect(),
        })
    }

    async fn list(&self, group: &str, plural: &str) -> Result<Vec<Live>, ApiError> {
        let Some(kind) = self.api.registry.find(group, "v1", plural) else {
            return Ok(Vec::new());
        };
        let scope = Scope {
            namespace: Some(self.namespace.to_owned()),
            ..Scope::all(Collection::new(group, plural))
        };
        let page = self.api.store.list(&scope, None, None).await?;
        page.items
            .iter()
            .map(|stored| Live::of(stored, &kind))
            .collect()
    }

    /// Returns the Endpoints if they were written.
    async fn write_endpoints(
        &self,
        service: &Value,
        live: Option<&Live>,
        subsets: Vec<Value>,
    ) -> Result<Option<Live>, ApiError> {
        let name = meta::name(service);
        let mut object = live.map_or_else(
            || json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": name}}),
            |live| live.object.clone(),
        );
        meta::set(&mut object, "namespace", self.namespace);
        let mut labels = service["metadata"]["labels"].clone();
        if !labels.is_object() {
            labels = json!({});
        }
        labels[MANAGED] = MANAGER.into();
        if service["spec"]["clusterIP"] == "None" {
            labels["service.kubernetes.io/headless"] = "".into();
        }
        meta::set(&mut object, "labels", labels);
        if let Value::Object(fields) = &mut object {
            fields.shift_remove("subsets");
            if !subsets.is_empty() {
                fields.insert("subsets".to_owned(), subsets.into());
            }
        }
        if live.is_some_and(|live| !meta::differs(&live.object, &object)) {
            return Ok(None);
        }
        let call = Call::internal(Arc::clone(&self.endpoints), self.namespace, Some(name));
        let written = match live {
            Some(live) => write::update(self.api, &call, live, object, Ownership::Compute).await,
            None => write::create(self.api, &call, object, Ownership::Compute).await,
        };
        let written = match written {
            Ok(written) => written,
            // The event of the other write triggers another run.
            Err(error) if is_race(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let revision = meta::resource_version(&written.object)
            .parse()
            .unwrap_or_default();
        Ok(Some(Live {
            revision,
            object: written.object,
        }))
    }

    async fn write_slices(&self, observed: &Observed) -> Result<(), ApiError> {
        let mut wanted: Vec<(String, Maker, Vec<Value>)> = Vec::new();
        for (name, service) in &observed.services {
            if selects(&service.object) {
                let slices = slices::of_pods(&service.object, &observed.pods);
                wanted.push((name.clone(), Maker::Selection, slices));
            }
        }
        for (name, endpoints) in &observed.endpoints {
            if is_mirrored(&endpoints.object, observed.services.get(name)) {
                let slices = slices::of_endpoints(&endpoints.object);
                wanted.push((name.clone(), Maker::Mirror, slices));
            }
        }
        let mut others: Vec<&Live> = observed.slices.iter().collect();
        for (name, maker, slices) in wanted {
            let is_own = |live: &&Live| {
                meta::label(&live.object, SERVICE_NAME) == Some(&name)
                    && meta::label(&live.object, MANAGED_BY) == Some(maker.name())
            };
            let (mut own, rest): (Vec<&Live>, Vec<&Live>) = others.into_iter().partition(is_own);
            others = rest;
            for slice in slices {
                match take_similar(&mut own, &slice) {
                    Some(live) => self.update_slice(live, &slice).await?,
                    None => self.create_slice(slice).await?,
                }
            }
            others.extend(own);
        }
        let makers = [Maker::Selection.name(), Maker::Mirror.name()];
        for live in others {
            let label = meta::label(&live.object, MANAGED_BY);
            if label.is_some_and(|label| makers.contains(&label)) {
                self.delete(&self.slices, meta::name(&live.object)).await?;
            }
        }
        Ok(())
    }

    async fn create_slice(&self, mut slice: Value) -> Result<(), ApiError> {
        slice["apiVersion"] = self.slices.api_version().into();
        slice["kind"] = self.slices.kind.clone().into();
        meta::set(&mut slice, "namespace", self.namespace);
        let call = Call::internal(Arc::clone(&self.slices), self.namespace, None);
        ignore_races(create::create_named(self.api, &call, slice).await.map(drop))
    }

    async fn update_slice(&self, live: &Live, slice: &Value) -> Result<(), ApiError> {
        let mut object = live.object.clone();
        for field in ["endpoints", "ports"] {
            object[field] = slice[field].clone();
        }
        for field in ["labels", "annotations", "ownerReferences"] {
            meta::set(&mut object, field, slice["metadata"][field].clone());
        }
        if is_same(&live.object, &object) {
            return Ok(());
        }
        let name = meta::name(&live.object);
        let call = Call::internal(Arc::clone(&self.slices), self.namespace, Some(name));
        let done = write::update(self.api, &call, live, object, Ownership::Compute).await;
        ignore_races(done.map(drop))
    }

    async fn delete(&self, kind: &Arc<Served>, name: &str) -> Result<(), ApiError> {
        let call = Call::internal(Arc::clone(kind), self.namespace, Some(name));
        let done = delete::delete_named(self.api, &call, name, &Options::default()).await;
        ignore_races(done.map(drop))
    }
}

/// A slice of the same family, with the same ports if there is one.
fn take_similar<'a>(own: &mut Vec<&'a Live>, slice: &Value) -> Option<&'a Live> {
    let is_family = |live: &&Live| live.object["addressType"] == slice["addressType"];
    let has_ports = |live: &&Live| is_family(live) && live.object["ports"] == slice["ports"];
    let at = own.iter().position(has_ports);
    let at = at.or_else(|| own.iter().position(is_family))?;
    Some(own.remove(at))
}

/// Whether nothing would change; a list that is null is stored as an empty one.
fn is_same(live: &Value, object: &Value) -> bool {
    let is_empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    let is_same = |field: &str| {
        live[field] == object[field] || (is_empty(&live[field]) && is_empty(&object[field]))
    };
    let same_metadata = ["labels", "annotations", "ownerReferences"]
        .iter()
        .all(|field| live["metadata"][field] == object["metadata"][field]);
    same_metadata && is_same("endpoints") && is_same("ports")
}

fn is_race(error: &ApiError) -> bool {
    error.is_taken() || error.is_conflict() || error.is_not_found()
}

/// The event of the other write triggers another run.
fn ignore_races(done: Result<(), ApiError>) -> Result<(), ApiError> {
    match done {
        Err(error) if is_race(&error) => Ok(()),
        done => done,
    }
}
