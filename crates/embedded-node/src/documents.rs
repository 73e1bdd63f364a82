//! The config maps and secrets that a pod refers to, fetched once and together.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::{Api, Client};
use reasons::Reason;

use crate::Failure;

/// The existing ones of the requested objects.
#[derive(Debug, Clone, Default)]
pub(crate) struct Documents {
    pub(crate) config_maps: BTreeMap<String, ConfigMap>,
    pub(crate) secrets: BTreeMap<String, Secret>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) config_maps: BTreeSet<String>,
    pub(crate) secrets: BTreeSet<String>,
}

impl Documents {
    /// The bytes of every key of a config map.
    pub(crate) fn config_map(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let found = self.config_maps.get(name)?;
        let text = found.data.iter().flatten();
        let binary = found.binary_data.iter().flatten();
        Some(
            text.map(|(key, value)| (key.clone(), value.clone().into_bytes()))
                .chain(binary.map(|(key, value)| (key.clone(), value.0.clone())))
                .collect(),
        )
    }

    /// The bytes of every key of a secret.
    pub(crate) fn secret(&self, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
        let data = self.secrets.get(name)?.data.iter().flatten();
        Some(
            data.map(|(key, value)| (key.clone(), value.0.clone()))
                .collect(),
        )
    }
}

pub(crate) async fn fetch(
    client: &Client,
    namespace: &str,
    names: Names,
) -> Result<Documents, Failure> {
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let failed = |error: kube::Error| {
        Failure::of(
            Reason::FailedMount,
            "read the config maps and secrets of the pod",
            &error,
        )
    };
    let (config_maps, secrets) = futures::try_join!(
        try_join_all(names.config_maps.into_iter().map(|name| {
            let maps = &maps;
            async move { Ok((maps.get_opt(&name).await?, name)) }
        })),
        try_join_all(names.secrets.into_iter().map(|name| {
            let secrets = &secrets;
            async move { Ok((secrets.get_opt(&name).await?, name)) }
        })),
    )
    .map_err(failed)?;
    Ok(Documents {
        config_maps: config_maps
            .into_iter()
            .filter_map(|(map, n)| Some((n, map?)))
            .collect(),
        secrets: secrets
            .into_iter()
            .filter_map(|(one, n)| Some((n, one?)))
            .collect(),
    })
}

/// The names in the pod's volumes, environment and pull secrets.
pub(crate) fn names(pod: &Pod) -> Names {
    let mut names = names_of_volumes(pod);
    let Some(spec) = &pod.spec else { return names };
    for container in spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
    {
        for from in container.env_from.iter().flatten() {
            names
                .config_maps
                .extend(from.config_map_ref.as_ref().map(|map| map.name.clone()));
            names
                .secrets
                .extend(from.secret_ref.as_ref().map(|secret| secret.name.clone()));
        }
        for from in container
            .env
            .iter()
            .flatten()
            .filter_map(|one| one.value_from.as_ref())
        {
            names
                .config_maps
                .extend(from.config_map_key_ref.as_ref().map(|key| key.name.clone()));
            names
                .secrets
                .extend(from.secret_key_ref.as_ref().map(|key| key.name.clone()));
        }
    }
    names.secrets.extend(
        spec.image_pull_secrets
            .iter()
            .flatten()
            .map(|reference| reference.name.clone()),
    );
    names
}

/// The names in the pod's volumes.
pub(crate) fn names_of_volumes(pod: &Pod) -> Names {
    let mut names = Names::default();
    let Some(spec) = &pod.spec else { return names };
    for volume in spec.volumes.iter().flatten() {
        if let Some(source) = &volume.config_map {
            names.config_maps.insert(source.name.clone());
        }
        if let Some(name) = volume
            .secret
            .as_ref()
            .and_then(|source| source.secret_name.clone())
        {
            names.secrets.insert(name);
        }
        let parts = volume
            .projected
            .iter()
            .flat_map(|source| source.sources.iter().flatten());
        for part in parts {
            names
                .config_maps
                .extend(part.config_map.as_ref().map(|map| map.name.clone()));
            names
                .secrets
                .extend(part.secret.as_ref().map(|secret| secret.name.clone()));
        }
    }
    names
}
