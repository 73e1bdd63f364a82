//! Everything about one machine that may say why it does not run.
//!
//! Invariant: reads only; of secrets and config maps only that they exist; what may not be read is
//! noted and left out, for a user often sees less than the cluster.

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
use kube::{Api, Client, Error, Resource, api::ListParams};
use kubevirt_api::{VirtualMachine, VirtualMachineInstance, labels};
use serde::de::DeserializeOwned;

/// Nodes that are looked at when none is known to be the guest's.
const NODES: u32 = 500;
/// Where components are, and how their pods are found.
const INSTALLATION: &str = "kubevirt";
const COMPONENTS: &str = "kubevirt.io in (virt-api,virt-controller,virt-handler)";

/// Looks at the machine or instance of that name and all that it names; none when there is neither.
pub async fn observe(
    client: &Client,
    (namespace, name): (&str, &str),
    now: Time,
) -> Result<Option<Observed>, Error> {
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), namespace);
    let (vm, vmi) = (vms.get_opt(name).await?, vmis.get_opt(name).await?);
    if vm.is_none() && vmi.is_none() {
        return Ok(None);
    }
    let seen = Observed {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        now: Some(now),
        vm,
        vmi,
        ..Observed::default()
    };
    let mut look = Look { client, seen };
    look.pods().await;
    let names = look.names();
    look.volumes(&names).await;
    look.files(&names).await;
    look.nodes().await;
    look.events().await;
    look.seen.installation = installation(client).await;
    Ok(Some(look.seen))
}

struct Look<'a> {
    client: &'a Client,
    seen: Observed,
}

impl Look<'_> {
    fn api<T: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<T> {
        Api::namespaced(self.client.clone(), &self.seen.namespace)
    }

    fn names(&self) -> References {
        match self.seen.spec() {
            Some((spec, _, path)) => references(spec, path),
            None => References::default(),
        }
    }

    async fn pods(&mut self) {
        let uid = self
            .seen
            .vmi
            .as_ref()
            .and_then(|vmi| vmi.metadata.uid.clone());
        let Some(uid) = uid else {
            return;
        };
        let params = ListParams::default().labels(&format!("{}={uid}", labels::CREATED_BY));
        let listed = self.api::<Pod>().list(&params).await;
        if let Some(list) = noted(&mut self.seen.unread, "pods", listed) {
            self.seen.pods = list.items;
        }
    }

    async fn volumes(&mut self, names: &References) {
        // A data volume makes a claim of its own name.
        for name in names.claims.keys().chain(names.data_volumes.keys()) {
            let got = self.api::<PersistentVolumeClaim>().get_opt(name).await;
            if let Some(claim) = noted(&mut self.seen.unread, &format!("pvc/{name}"), got) {
                self.seen.claims.insert(name.clone(), claim);
            }
        }
        for name in names.data_volumes.keys() {
            let got = absent(self.api().get_opt(name).await);
            if let Some(volume) = noted(&mut self.seen.unread, &format!("datavolume/{name}"), got) {
                self.seen.data_volumes.insert(name.clone(), volume);
            }
        }
        for class in self.classes() {
            let api: Api<StorageClass> = Api::all(self.client.clone());
            let got = absent(exists(&api, &class).await);
            if let Some(found) = noted(&mut self.seen.unread, &format!("storageclass/{class}"), got)
            {
                self.seen.storage_classes.insert(class, found);
            }
        }
    }

    /// What claims that are not bound wait for.
    fn classes(&self) -> Vec<String> {
        let claims = self.seen.claims.values().flatten();
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
        self.seen.secrets = self.named::<Secret>("secret", &names.secrets).await;
        self.seen.config_maps = self
            .named::<ConfigMap>("configmap", &names.config_maps)
            .await;
        let accounts = &names.service_accounts;
        self.seen.service_accounts = self
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
            if let Some(metadata) = noted(&mut self.seen.unread, &format!("{kind}/{name}"), got) {
                found.insert(name.clone(), metadata);
            }
        }
        found
    }

    async fn nodes(&mut self) {
        let api: Api<Node> = Api::all(self.client.clone());
        let own = self.seen.node_name().map(str::to_owned);
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
        self.seen.nodes = noted(&mut self.seen.unread, "nodes", listed);
    }

    async fn events(&mut self) {
        let mut names = vec![self.seen.name.clone()];
        let pods = self
            .seen
            .pods
            .iter()
            .filter_map(|pod| pod.metadata.name.clone());
        names.extend(pods);
        names.extend(self.seen.claims.keys().cloned());
        names.sort();
        names.dedup();
        for name in names {
            let params = ListParams::default().fields(&format!("involvedObject.name={name}"));
            let listed = self.api::<Event>().list(&params).await;
            if let Some(list) = noted(&mut self.seen.unread, "events", listed) {
                self.seen.events.extend(list.items);
            }
        }
        self.seen.unread.dedup();
    }
}

/// Of the components, what may be seen: an ordinary user sees nothing of them, and that is as it should
/// be.
async fn installation(client: &Client) -> Installation {
    let pods: Api<Pod> = Api::namespaced(client.clone(), INSTALLATION);
    let pods = pods.list(&ListParams::default().labels(COMPONENTS)).await;
    let events: Api<Event> = Api::namespaced(client.clone(), INSTALLATION);
    let events = events
        .list(&ListParams::default().fields("type=Warning"))
        .await;
    Installation {
        pods: pods.map(|list| list.items).unwrap_or_default(),
        events: events.map(|list| list.items).unwrap_or_default(),
    }
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

/// Of a kind that the server does not know, there is nothing; it says so in a line of text.
fn absent<T>(got: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    match got {
        Err(Error::Api(status)) if status.code == 404 => Ok(None),
        got => got,
    }
}

/// What was got; an error is noted instead.
fn noted<T>(unread: &mut Vec<String>, what: &str, got: Result<T, Error>) -> Option<T> {
    match got {
        Ok(found) => Some(found),
        Err(error) => {
            let why = match error {
                Error::Api(status) => status.message.clone(),
                other => other.to_string(),
            };
            unread.push(format!("{what}: {why}"));
            None
        }
    }
}
