//! Reads the objects that a review depends on from the API server.

pub(super) mod vm;

use admission::kinds::{Lookup, Related};
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    api::{ListParams, PartialObjectMeta},
};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, kubevirt::KubeVirt, labels,
    replica_set::VirtualMachineInstanceReplicaSet,
};
use serde::de::DeserializeOwned;

/// Reads all needed objects. A missing object stays empty; the lists are short.
pub(super) async fn all(client: &Client, lookups: Vec<Lookup>) -> Result<Related, kube::Error> {
    let mut found = Related::default();
    for lookup in lookups {
        match lookup {
            Lookup::Vm { namespace, name } => {
                found.vm = one(client, &namespace, &name).await?;
            }
            Lookup::Vmi { namespace, name } => {
                found.vmi = one(client, &namespace, &name).await?.map(Box::new);
            }
            Lookup::Migrations { namespace, label } => {
                let selector = format!("{}={label}", labels::MIGRATION_VMI_NAME);
                let api = Api::namespaced(client.clone(), &namespace);
                let params = ListParams::default().labels(&selector);
                found.migrations = api.list(&params).await?.items;
            }
            Lookup::Installations => found.installations = installations(client).await?,
            Lookup::Workloads => found.workloads = workloads(client).await?,
            Lookup::Snapshot { namespace, name } => {
                found.snapshot = one(client, &namespace, &name).await?;
            }
            Lookup::Content { namespace } => {
                found.content = match content_name(&found) {
                    Some(name) => one(client, &namespace, &name).await?,
                    None => None,
                };
            }
            Lookup::Restores { namespace } => found.restores = every(client, &namespace).await?,
            Lookup::Backups { namespace } => found.backups = every(client, &namespace).await?,
        }
    }
    Ok(found)
}

async fn installations(client: &Client) -> Result<Vec<String>, kube::Error> {
    let api: Api<KubeVirt> = Api::all(client.clone());
    let all = api.list_metadata(&ListParams::default()).await?.items;
    let name = |one: PartialObjectMeta<KubeVirt>| {
        let namespace = one.metadata.namespace.unwrap_or_default();
        format!("{namespace}/{}", one.metadata.name.unwrap_or_default())
    };
    Ok(all.into_iter().map(name).collect())
}

async fn workloads(client: &Client) -> Result<Vec<String>, kube::Error> {
    let mut found = Vec::new();
    let any = ListParams::default().limit(1);
    let vmis: Api<VirtualMachineInstance> = Api::all(client.clone());
    if !vmis.list_metadata(&any).await?.items.is_empty() {
        found.push(VirtualMachineInstance::PLURAL.to_owned());
    }
    let vms: Api<VirtualMachine> = Api::all(client.clone());
    if !vms.list_metadata(&any).await?.items.is_empty() {
        found.push(VirtualMachine::PLURAL.to_owned());
    }
    let sets: Api<VirtualMachineInstanceReplicaSet> = Api::all(client.clone());
    if !sets.list_metadata(&any).await?.items.is_empty() {
        found.push(VirtualMachineInstanceReplicaSet::PLURAL.to_owned());
    }
    Ok(found)
}

/// The name of the content, which the snapshot has in its status.
fn content_name(found: &Related) -> Option<String> {
    let status = found.snapshot.as_ref()?.status.as_ref()?;
    status.virtual_machine_snapshot_content_name.clone()
}

async fn one<T>(client: &Client, namespace: &str, name: &str) -> Result<Option<T>, kube::Error>
where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    if name.is_empty() {
        return Ok(None);
    }
    Api::namespaced(client.clone(), namespace)
        .get_opt(name)
        .await
}

async fn every<T>(client: &Client, namespace: &str) -> Result<Vec<T>, kube::Error>
where
    T: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api: Api<T> = Api::namespaced(client.clone(), namespace);
    Ok(api.list(&ListParams::default()).await?.items)
}
