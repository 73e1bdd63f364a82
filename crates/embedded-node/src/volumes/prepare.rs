//! Prepares every volume of a pod.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::Arc,
};

use image_store::Image;
use k8s_openapi::api::core::v1::{
    ConfigMapVolumeSource, DownwardAPIVolumeFile, EmptyDirVolumeSource, KeyToPath, Pod,
    PodSecurityContext, ProjectedVolumeSource, SecretVolumeSource, Volume as Wanted,
};
use kubevirt_api::quantity::Amount;
use pod_supervisor::model::Access;

use crate::{
    Failure,
    container::id,
    documents::Documents,
    environment::{Facts, field_value, resource_value},
    storage::ClaimedVolume,
    tokens::Tokens,
};

use super::{
    Content, FAILED, Volume, Volumes, claims, host_path, mounts,
    ownership::Owner,
    payload::{self, File, Files, Item, Missing, Select},
};

/// The inputs for the volumes of one pod.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) pod: Arc<Pod>,
    pub(crate) pod_dir: PathBuf,
    pub(crate) documents: Documents,
    /// Persistent volumes, by volume.
    pub(crate) claims: BTreeMap<String, ClaimedVolume>,
    pub(crate) tokens: Tokens,
    /// Images of image volumes, by volume.
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) node_name: String,
    pub(crate) host_ip: std::net::IpAddr,
    pub(crate) version: String,
}

/// Blocks on disk I/O: call it from `spawn_blocking`.
pub(crate) fn prepare(request: &Request) -> Result<Volumes, Failure> {
    let Some(spec) = &request.pod.spec else {
        return Ok(Volumes::new());
    };
    let group = security(request).and_then(|security| security.fs_group);
    let group = group.map(id).transpose()?;
    let wanted = spec.volumes.iter().flatten();
    wanted
        .map(|one| Ok((one.name.clone(), volume(request, one, group)?)))
        .collect()
}

/// Rewrites the projected volumes, whose tokens expire.
pub(crate) fn refresh(request: &Request) -> Result<(), Failure> {
    let Some(spec) = &request.pod.spec else {
        return Ok(());
    };
    let group = security(request).and_then(|security| security.fs_group);
    let group = group.map(id).transpose()?;
    let projected = |one: &&Wanted| one.projected.is_some();
    for one in spec.volumes.iter().flatten().filter(projected) {
        volume(request, one, group)?;
    }
    Ok(())
}

fn security(request: &Request) -> Option<&PodSecurityContext> {
    request.pod.spec.as_ref()?.security_context.as_ref()
}

fn volume(request: &Request, wanted: &Wanted, group: Option<u32>) -> Result<Volume, Failure> {
    let name = &wanted.name;
    let read_only = |path| Volume {
        path,
        access: Access::ReadOnly,
        content: Content::Files,
    };
    let read_write = |path| Volume {
        path,
        access: Access::ReadWrite,
        content: Content::Files,
    };
    if let Some(claimed) = request.claims.get(name) {
        payload::check_path(name)?;
        let change = security(request).and_then(|s| s.fs_group_change_policy.as_deref());
        let owner = group.map(|group| Owner::new(group, change));
        return claims::prepare(&request.pod_dir, name, claimed, owner);
    }
    if let Some(source) = &wanted.empty_dir {
        let dir = make_dir(request, "empty-dir", name)?;
        empty_dir(&dir, source, group)?;
        failpoints::after("embedded-node/volumes/empty-dir");
        return Ok(read_write(dir));
    }
    if let Some(source) = &wanted.host_path {
        return Ok(read_write(host_path::prepare(source)?));
    }
    if wanted.image.is_some() {
        let image = request.images.get(name).ok_or_else(|| {
            Failure::new(FAILED, format!("the image of volume {name:?} is missing"))
        })?;
        return Ok(read_only(image.root.clone()));
    }
    let (kind, files) = if let Some(source) = &wanted.config_map {
        ("configmap", config_map(request, source)?)
    } else if let Some(source) = &wanted.secret {
        ("secret", secret(request, source)?)
    } else if let Some(source) = &wanted.downward_api {
        let mode = source.default_mode.map_or(0o644, payload::mode);
        (
            "downward-api",
            downward(request, source.items.iter().flatten(), mode)?,
        )
    } else if let Some(source) = &wanted.projected {
        ("projected", projected(request, name, source)?)
    } else {
        let message = format!(
            "volume {name:?} has a type that this node does not support (supported: \
             persistentVolumeClaim, ephemeral, emptyDir, configMap, secret, projected, \
             downwardAPI, hostPath, image)"
        );
        return Err(Failure::new(FAILED, message));
    };
    let dir = make_dir(request, kind, name)?;
    let failed = |error: std::io::Error| {
        Failure::of(
            FAILED,
            &format!("write volume {name:?}: is the disk full?"),
            &error,
        )
    };
    // Secrets are never written to disk.
    if kind == "secret" || kind == "projected" {
        mounts::mount_memory(&dir, None).map_err(failed)?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    payload::write(&dir, &files, group, &request.version).map_err(failed)?;
    failpoints::after("embedded-node/volumes/write-files");
    Ok(read_only(dir))
}

fn make_dir(request: &Request, kind: &str, name: &str) -> Result<PathBuf, Failure> {
    payload::check_path(name)?;
    let dir = request
        .pod_dir
        .join("volumes")
        .join(format!("kubernetes.io~{kind}"))
        .join(name);
    fs::create_dir_all(&dir).map_err(|error| {
        Failure::of(
            FAILED,
            &format!("make volume {name:?}: is the disk full?"),
            &error,
        )
    })?;
    Ok(dir)
}

fn empty_dir(dir: &Path, source: &EmptyDirVolumeSource, group: Option<u32>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::of(FAILED, &format!("make emptyDir {}", dir.display()), &error)
    };
    match source.medium.as_deref() {
        None | Some("") => {}
        Some("Memory") => {
            let limit = source.size_limit.as_ref().map(|quantity| {
                Amount::parse(quantity).map(Amount::units).map_err(|error| {
                    Failure::of(FAILED, "read the size limit of an emptyDir", &error)
                })
            });
            mounts::mount_memory(dir, limit.transpose()?).map_err(failed)?;
        }
        Some(other) => {
            let message = format!("emptyDir medium {other:?} is not supported on this node");
            return Err(Failure::new(FAILED, message));
        }
    }
    let mode = match group {
        Some(group) => {
            chown(dir, None, Some(group)).map_err(failed)?;
            0o2770
        }
        None => 0o777,
    };
    fs::set_permissions(dir, fs::Permissions::from_mode(mode)).map_err(failed)
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
            resource_value(container, &resource.resource, divisor)?
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
