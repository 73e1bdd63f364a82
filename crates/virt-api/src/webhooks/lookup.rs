//! Objects that an answer depends on, from the API server.

use admission::kinds::{Need, Neighbours};
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;

/// Looks up everything that is needed. What is not there stays empty; the lists are short.
pub(super) async fn all(client: &Client, needs: Vec<Need>) -> Result<Neighbours, kube::Error> {
    let mut found = Neighbours::default();
    for need in needs {
        match need {
            Need::Machine { namespace, name } => {
                found.machine = one(client, &namespace, &name).await?;
            }
            Need::Snapshot { namespace, name } => {
                found.snapshot = one(client, &namespace, &name).await?;
            }
            Need::Content { namespace } => {
                found.content = match content_name(&found) {
                    Some(name) => one(client, &namespace, &name).await?,
                    None => None,
                };
            }
            Need::Restores { namespace } => found.restores = every(client, &namespace).await?,
            Need::Backups { namespace } => found.backups = every(client, &namespace).await?,
        }
    }
    Ok(found)
}

/// The snapshot says where its content is.
fn content_name(found: &Neighbours) -> Option<String> {
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
