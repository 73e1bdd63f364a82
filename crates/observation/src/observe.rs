//! Reads every object that can explain why a VM does not run.
//!
//! Invariant: reads only; of `Secrets` and `ConfigMaps` only whether they exist; an object that the user may
//! not read is noted and left out, except the VM and VMI: without either there is nothing to explain.

use std::{collections::BTreeMap, fmt::Debug};

use diagnosis::{Installation, Observed, References, references};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        core::v1::{ConfigMap, Event, Node, PersistentVolumeClaim, Pod, Secret, ServiceAccount},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{
    Api, Client, Error, Resource,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance,
    backup::{VirtualMachineBackup, VirtualMachineBackupTracker as Tracker},
    backup_restore::VirtualMachineBackupRestore,
    labels,
};
use serde::de::DeserializeOwned;

/// How many nodes are read if the guest has none yet.
const NODES: u32 = 500;
/// The namespace of the components, if nothing names another.
const INSTALLATION: &str = "kubevirt";
/// The object by which a cluster finds virt-api, with its namespace.
const API_SERVICE: &str = "v1.subresources.kubevirt.io";
/// The labels of the components' pods.
const COMPONENTS: &str = "kubevirt.io in (virt-api,virt-controller,virt-handler)";

/// A VM or VMI by name.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
}

/// Reads the VM and VMI of that name and all objects that they name; `None` if neither exists.
pub async fn observe(
    client: &Client,
    target: Target<'_>,
    now: Time,
) -> Result<Option<Observed>, Error> {
    let Target { namespace, name } = target;
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), namespace);
    let mut unread = Vec::new();
    let (vm, vmi) = (vms.get_opt(name).await, vmis.get_opt(name).await);
    let (vm, vmi) = match (vm, vmi) {
        (Ok(None), Ok(None)) => return Ok(None),
        // One of the two explains much; without any there is nothing to explain.
        (vm @ Ok(Some(_)), vmi) | (vm, vmi @ Ok(Some(_))) => (
            noted(&mut unread, &format!("vm/{name}"), vm).flatten(),
            noted(&mut unread, &format!("vmi/{name}"), vmi).flatten(),
        ),
        (Err(error), _) | (_, Err(error)) => return Err(error),
    };
    let observed = Observed {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        now: Some(now),
        vm,
        vmi,
        unread,
        ..Observed::default()
    };
    let mut reader = Reader { client, observed };
    reader.pods().await;
    let names = reader.names();
    reader.volumes(&names).await;
    reader.files(&names).await;
    reader.nodes().await;
    reader.backups().await;
    reader.backup_restores(&names).await;
    reader.events().await;
    reader.installation().await;
    Ok(Some(reader.observed))
}

struct Reader<'a> {
    client: &'a Client,
    observed: Observed,
}

impl Reader<'_> {
    fn api<T: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<T> {
        Api::namespaced(self.client.clone(), &self.observed.namespace)
    }

    fn names(&self) -> References {
        match self.observed.spec() {
            Some((spec, _, path)) => references(spec, path),
            None => References::default(),
        }
    }

    async fn pods(&mut self) {
        let uid = self
            .observed
            .vmi
            .as_ref()
            .and_then(|vmi| vmi.metadata.uid.clone());
        let Some(uid) = uid else {
            return;
        };
        let params = ListParams::default().labels(&format!("{}={uid}", labels::CREATED_BY));
        let listed = self.api::<Pod>().list(&params).await;
        if let Some(list) = noted(&mut self.observed.unread, "pods", listed) {
            self.observed.pods = list.items;
        }
    }

    /// Backups of the VM, by itself or by a tracker.
    async fn backups(&mut self) {
        let all = ListParams::default();
        let listed = defined(self.api::<VirtualMachineBackup>().list(&all).await);
        let listed = noted(&mut self.observed.unread, "vmbackups", listed);
        let mut found = listed.flatten().map_or_else(Vec::new, |list| list.items);
        let is_by_tracker =
            |backup: &VirtualMachineBackup| backup.spec.source.kind == Tracker::KIND;
        let mut trackers = Vec::new();
        if found.iter().any(is_by_tracker) {
            let listed = defined(self.api::<Tracker>().list(&all).await);
            let listed = noted(&mut self.observed.unread, "vmbackuptrackers", listed);
            trackers = listed.flatten().map_or_else(Vec::new, |list| list.items);
        }
        let vm = self.observed.name.clone();
        trackers.retain(|tracker| tracker.spec.source.name == vm);
        found.retain(|backup| {
            let source = Some(&backup.spec.source.name);
            if is_by_tracker(backup) {
                let mut own = trackers.iter();
                own.any(|tracker| tracker.metadata.name.as_ref() == source)
            } else {
                source == Some(&vm)
            }
        });
        self.observed.backups = found;
    }

    /// Restores of backups to claims of the VM, or of backups of the VM.
    async fn backup_restores(&mut self, names: &References) {
        let all = ListParams::default();
        let listed = defined(self.api::<VirtualMachineBackupRestore>().list(&all).await);
        let listed = noted(&mut self.observed.unread, "vmbackuprestores", listed);
        let mut found = listed.flatten().map_or_else(Vec::new, |list| list.items);
        let backups = &self.observed.backups;
        found.retain(|restore| {
            let status = restore.status.iter();
            let mut volumes = status.flat_map(|status| &status.volumes);
            let source = restore.spec.source.backup_name.as_ref();
            let is_of_backup = |name| {
                let mut all = backups.iter();
                all.any(|backup| backup.metadata.name.as_ref() == Some(name))
            };
            source.is_some_and(is_of_backup)
                || volumes.any(|volume| {
                    names.claims.contains_key(&volume.claim_name)
                        || names.data_volumes.contains_key(&volume.claim_name)
                })
        });
        self.observed.backup_restores = found;
    }

    async fn volumes(&mut self, names: &References) {
        // A data volume creates a claim of its own name.
        for name in names.claims.keys().chain(names.data_volumes.keys()) {
            let got = self.api::<PersistentVolumeClaim>().get_opt(name).await;
            if let Some(claim) = noted(&mut self.observed.unread, &format!("pvc/{name}"), got) {
                self.observed.claims.insert(name.clone(), claim);
            }
        }
        for name in names.data_volumes.keys() {
            let got = absent(self.api().get_opt(name).await);
            if let Some(volume) = noted(
                &mut self.observed.unread,
                &format!("datavolume/{name}"),
                got,
            ) {
                self.observed.data_volumes.insert(name.clone(), volume);
            }
        }
        for class in self.classes() {
            let api: Api<StorageClass> = Api::all(self.client.clone());
            let got = absent(exists(&api, &class).await);
            if let Some(found) = noted(
                &mut self.observed.unread,
                &format!("storageclass/{class}"),
                got,
            ) {
                self.observed.storage_classes.insert(class, found);
            }
        }
    }

    /// The storage classes of claims that are not bound.
    fn classes(&self) -> Vec<String> {
        let claims = self.observed.claims.values().flatten();
        let waiting = claims.filter(|claim| {
            let status = claim.status.as_ref();
            status.and_then(|status| status.phase.as_deref()) != Some("Bound")
        });
        let mut found: Vec<String> = waiting
            .filter_map(|claim| claim.spec.as_ref()?.storage_class_name.clone())
            .filter(|class| !class.is_empty())
            .collect();
        found.sort();
        found.dedup();
        found
    }

    async fn files(&mut self, names: &References) {
        let secrets = names.secrets.iter().chain(&names.pull_secrets);
        let secrets = secrets.map(|(name, field)| (name.clone(), field.clone()));
        let secrets: BTreeMap<String, String> = secrets.collect();
        self.observed.secrets = self.named::<Secret>("secret", &secrets).await;
        self.observed.config_maps = self
            .named::<ConfigMap>("configmap", &names.config_maps)
            .await;
        let accounts = &names.service_accounts;
        self.observed.service_accounts = self
            .named::<ServiceAccount>("serviceaccount", accounts)
            .await;
    }

    async fn named<T>(
        &mut self,
        kind: &str,
        names: &BTreeMap<String, String>,
    ) -> BTreeMap<String, Option<ObjectMeta>>
    where
        T: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Debug,
        T: Clone,
    {
        let api: Api<T> = self.api();
        let mut found = BTreeMap::new();
        for name in names.keys() {
            let got = exists(&api, name).await;
            if let Some(metadata) = noted(&mut self.observed.unread, &format!("{kind}/{name}"), got)
            {
                found.insert(name.clone(), metadata);
            }
        }
        found
    }

    async fn nodes(&mut self) {
        let api: Api<Node> = Api::all(self.client.clone());
        let own = self.observed.node_name().map(str::to_owned);
        let listed = match own {
            Some(name) => api
                .get_opt(&name)
                .await
                .map(|node| node.into_iter().collect()),
            None => api
                .list(&ListParams::default().limit(NODES))
                .await
                .map(|list| list.items),
        };
        self.observed.nodes = noted(&mut self.observed.unread, "nodes", listed);
    }

    async fn events(&mut self) {
        let mut names = vec![self.observed.name.clone()];
        let pods = self
            .observed
            .pods
            .iter()
            .filter_map(|pod| pod.metadata.name.clone());
        names.extend(pods);
        names.extend(self.observed.claims.keys().cloned());
        names.sort();
        names.dedup();
        for name in names {
            let params = ListParams::default().fields(&format!("involvedObject.name={name}"));
            let listed = self.api::<Event>().list(&params).await;
            if let Some(list) = noted(&mut self.observed.unread, "events", listed) {
                self.observed.events.extend(list.items);
            }
        }
        self.observed.unread.dedup();
    }

    /// The components, as far as the user may read them; most users may not.
    async fn installation(&mut self) {
        let namespace = installation_namespace(self.client).await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let pods = pods.list(&ListParams::default().labels(COMPONENTS)).await;
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let params = ListParams::default().fields("type=Warning");
        let events = events.list(&params).await;
        let unread = &mut self.observed.unread;
        let what = format!("the components in namespace {namespace}");
        let pods = noted(unread, &what, pods);
        let what = format!("events of the components in namespace {namespace}");
        let events = noted(unread, &what, events);
        self.observed.installation = Installation {
            namespace,
            pods: pods.map(|list| list.items).unwrap_or_default(),
            events: events.map(|list| list.items).unwrap_or_default(),
        };
    }
}

/// The namespace of the installation: that of virt-api's service, else that of the `KubeVirt` object,
/// which every user may list.
async fn installation_namespace(client: &Client) -> String {
    let of_kind = |group: &str, version: &str, kind: &str| {
        let kind = GroupVersionKind::gvk(group, version, kind);
        Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind))
    };
    // A single host has no such object, and a user may not be allowed to read it: the next one answers.
    let service = of_kind("apiregistration.k8s.io", "v1", "APIService");
    if let Ok(Some(found)) = service.get_opt(API_SERVICE).await
        && let Some(namespace) = found.data["spec"]["service"]["namespace"].as_str()
    {
        return namespace.to_owned();
    }
    let configurations = of_kind("kubevirt.io", "v1", "KubeVirt");
    let found = configurations.list(&ListParams::default().limit(1)).await;
    let found = found.map(|list| list.items).unwrap_or_default();
    let namespace = found
        .into_iter()
        .next()
        .and_then(|one| one.metadata.namespace);
    namespace.unwrap_or_else(|| INSTALLATION.to_owned())
}

async fn exists<T>(api: &Api<T>, name: &str) -> Result<Option<ObjectMeta>, Error>
where
    T: Resource<DynamicType = ()> + DeserializeOwned + Debug + Clone,
{
    Ok(api
        .get_metadata_opt(name)
        .await?
        .map(|found| found.metadata))
}

/// No object, if the server does not know the kind.
fn absent<T>(got: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    match got {
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        got => got,
    }
}

/// `None` where the server does not define the kind.
fn defined<T>(listed: Result<T, Error>) -> Result<Option<T>, Error> {
    match listed {
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        listed => listed.map(Some),
    }
}

/// The object; an error is noted in `unread` instead.
fn noted<T>(unread: &mut Vec<String>, object: &str, got: Result<T, Error>) -> Option<T> {
    match got {
        Ok(found) => Some(found),
        Err(error) => {
            let message = match error {
                Error::Api(status) => status.message.clone(),
                other => other.to_string(),
            };
            unread.push(format!("{object}: {message}"));
            None
        }
    }
}
