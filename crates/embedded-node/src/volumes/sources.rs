//! The files of a volume whose contents come from the API.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, KeyToPath, ProjectedVolumeSource,
    SecretVolumeSource, Volume as Wanted,
};

use crate::{
    Failure,
    environment::{Facts, field_value, resource_value},
};

use super::{
    FAILED, Request,
    payload::{self, File, Files, Item, Missing, Select},
};

/// The kind of the volume and its files; `None` for other volumes.
pub(super) fn files(
    request: &Request,
    wanted: &Wanted,
) -> Result<Option<(&'static str, Files)>, Failure> {
    if let Some(source) = &wanted.config_map {
        return Ok(Some(("configmap", config_map(request, source)?)));
    }
    if let Some(source) = &wanted.secret {
        return Ok(Some(("secret", secret(request, source)?)));
    }
    if let Some(source) = &wanted.downward_api {
        let mode = source.default_mode.map_or(0o644, payload::mode);
        let files = downward(request, source.items.iter().flatten(), mode)?;
        return Ok(Some(("downward-api", files)));
    }
    if let Some(source) = &wanted.projected {
        let files = projected(request, &wanted.name, source)?;
        return Ok(Some(("projected", files)));
    }
    Ok(None)
}

fn items(all: &[KeyToPath]) -> impl Iterator<Item = Item<'_>> {
    all.iter().map(|item| Item {
        key: &item.key,
        path: &item.path,
        mode: item.mode,
    })
}

fn config_map(request: &Request, source: &ConfigMapVolumeSource) -> Result<Files, Failure> {
    let what = format!("configmap {:?}", source.name);
    let found = request.documents.config_map(&source.name);
    let select = select(source.default_mode, source.optional);
    select_files(&what, found, source.items.as_deref(), select)
}

fn secret(request: &Request, source: &SecretVolumeSource) -> Result<Files, Failure> {
    let name = source.secret_name.as_deref().unwrap_or_default();
    let found = request.documents.secret(name);
    let select = select(source.default_mode, source.optional);
    select_files(
        &format!("secret {name:?}"),
        found,
        source.items.as_deref(),
        select,
    )
}

fn select(mode: Option<i32>, optional: Option<bool>) -> Select {
    Select {
        default_mode: mode.map_or(0o644, payload::mode),
        missing: if optional == Some(true) {
            Missing::Ignored
        } else {
            Missing::Fatal
        },
    }
}

fn select_files(
    what: &str,
    found: Option<BTreeMap<String, Vec<u8>>>,
    wanted: Option<&[KeyToPath]>,
    select: Select,
) -> Result<Files, Failure> {
    let data = match (found, select.missing) {
        (Some(data), _) => data,
        (None, Missing::Ignored) => return Ok(Files::new()),
        (None, Missing::Fatal) => return Err(Failure::new(FAILED, format!("{what} not found"))),
    };
    payload::select(what, data, wanted.map(items), select)
}

fn downward<'a>(
    request: &Request,
    files: impl Iterator<Item = &'a DownwardAPIVolumeFile>,
    default_mode: u32,
) -> Result<Files, Failure> {
    let facts = Facts {
        pod: &request.pod,
        documents: &request.documents,
        node_name: &request.node_name,
        host_ip: request.host_ip,
        pod_ips: &[],
        allocatable: &request.allocatable,
        services: &BTreeMap::new(),
    };
    let mut written = Files::new();
    for file in files {
        payload::check_path(&file.path)?;
        let text = if let Some(field) = &file.field_ref {
            field_value(&facts, &field.field_path)?
        } else if let Some(resource) = &file.resource_field_ref {
            let containers = request.pod.spec.iter().flat_map(|spec| &spec.containers);
            let container = containers
                .into_iter()
                .find(|one| Some(&one.name) == resource.container_name.as_ref())
                .ok_or_else(|| {
                    Failure::new(
                        FAILED,
                        "a resourceFieldRef names a container that the pod does not have",
                    )
                })?;
            let divisor = resource
                .divisor
                .as_ref()
                .map(|quantity| quantity.0.as_str());
            resource_value(&facts, container, (&resource.resource, divisor))?
        } else {
            return Err(Failure::new(
                FAILED,
                format!("{:?} has no source", file.path),
            ));
        };
        let mode = file.mode.map_or(default_mode, payload::mode);
        written.insert(
            file.path.clone(),
            File {
                bytes: text.into_bytes(),
                mode,
            },
        );
    }
    Ok(written)
}

fn projected(
    request: &Request,
    volume: &str,
    projected: &ProjectedVolumeSource,
) -> Result<Files, Failure> {
    let mut files = Files::new();
    for part in projected.sources.iter().flatten() {
        let select = |optional| select(projected.default_mode, optional);
        if let Some(map) = &part.config_map {
            let source = format!("configmap {:?}", map.name);
            let found = request.documents.config_map(&map.name);
            files.extend(select_files(
                &source,
                found,
                map.items.as_deref(),
                select(map.optional),
            )?);
        } else if let Some(secret) = &part.secret {
            let source = format!("secret {:?}", secret.name);
            let found = request.documents.secret(&secret.name);
            files.extend(select_files(
                &source,
                found,
                secret.items.as_deref(),
                select(secret.optional),
            )?);
        } else if let Some(token) = &part.service_account_token {
            payload::check_path(&token.path)?;
            let text = request.tokens.get(volume, &token.path).unwrap_or_default();
            files.insert(
                token.path.clone(),
                File {
                    bytes: text.into(),
                    mode: projected.default_mode.map_or(0o644, payload::mode),
                },
            );
        } else if let Some(fields) = &part.downward_api {
            let mode = projected.default_mode.map_or(0o644, payload::mode);
            files.extend(downward(request, fields.items.iter().flatten(), mode)?);
        } else {
            let message = "a projected volume has a source that this node does not support \
                           (supported: configMap, secret, serviceAccountToken, downwardAPI)";
            return Err(Failure::new(FAILED, message));
        }
    }
    Ok(files)
}
