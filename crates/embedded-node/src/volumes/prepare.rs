//! Prepares every volume of a pod.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    sync::Arc,
};

use image_store::Image;
use k8s_openapi::{
    api::core::v1::{EmptyDirVolumeSource, Pod, PodSecurityContext, Volume as Wanted},
    apimachinery::pkg::api::resource::Quantity,
};
use kubevirt_api::quantity::Amount;
use pod_supervisor::model::Access;

use crate::{Failure, container::id, documents::Documents, storage::ClaimedVolume, tokens::Tokens};

use super::{
    Content, FAILED, Volume, Volumes, claims, host_path, images, mounts, ownership::Owner, payload,
    sources,
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
    /// The node's allocatable resources.
    pub(crate) allocatable: BTreeMap<String, Quantity>,
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

/// Updates the volumes whose contents come from the API. A volume that cannot be updated keeps its
/// contents, and does not keep the others from being updated.
pub(crate) fn refresh(request: &Request) -> Result<(), Failure> {
    let Some(spec) = &request.pod.spec else {
        return Ok(());
    };
    let group = security(request).and_then(|security| security.fs_group);
    let group = group.map(id).transpose()?;
    let results: Vec<_> = spec
        .volumes
        .iter()
        .flatten()
        .filter(|one| has_payload(one))
        .map(|one| volume(request, one, group))
        .collect();
    results.into_iter().try_for_each(|result| result.map(drop))
}

/// Whether the contents of the volume come from the API.
pub(crate) fn has_payload(volume: &Wanted) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
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
        images::record(&request.pod_dir, name, &image.digest)?;
        return Ok(read_only(image.root.clone()));
    }
    let Some((kind, files)) = sources::files(request, wanted)? else {
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    struct Fixture {
        dir: tempfile::TempDir,
        version: u32,
    }

    impl Fixture {
        fn request(&mut self, labels: &Value, maps: &Value) -> Request {
            self.version += 1;
            let pod = json!({
                "metadata": {"name": "p", "namespace": "n", "labels": labels},
                "spec": {"containers": [], "volumes": [
                    {"name": "required", "configMap": {"name": "required"}},
                    {"name": "optional", "configMap": {"name": "optional", "optional": true}},
                    {"name": "labels", "downwardAPI": {"items": [
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                ]},
            });
            let maps: BTreeMap<String, Value> = serde_json::from_value(maps.clone()).unwrap();
            let maps = maps
                .into_iter()
                .map(|(name, data)| (name, serde_json::from_value(json!({"data": data})).unwrap()));
            Request {
                pod: Arc::new(serde_json::from_value(pod).unwrap()),
                pod_dir: self.dir.path().to_owned(),
                documents: Documents {
                    config_maps: maps.collect(),
                    ..Documents::default()
                },
                claims: BTreeMap::new(),
                tokens: Tokens::default(),
                images: BTreeMap::new(),
                node_name: "node".to_owned(),
                host_ip: [127, 0, 0, 1].into(),
                allocatable: BTreeMap::new(),
                version: self.version.to_string(),
            }
        }

        fn read(&self, path: &str) -> Option<String> {
            let volumes = self.dir.path().join("volumes");
            fs::read_to_string(volumes.join(format!("kubernetes.io~{path}"))).ok()
        }
    }

    #[test]
    fn contents_follow_changes() {
        let mut fixture = Fixture {
            dir: tempfile::tempdir().unwrap(),
            version: 0,
        };
        let request = fixture.request(&json!({"a": "1"}), &json!({"required": {"k": "1"}}));
        assert_eq!(prepare(&request).unwrap().len(), 3);
        let contents = |fixture: &Fixture| {
            [
                "configmap/required/k",
                "configmap/optional/k",
                "downward-api/labels/labels",
            ]
            .map(|path| fixture.read(path).unwrap_or_default())
        };
        assert_eq!(contents(&fixture), ["1", "", "a=\"1\""]);
        let both = json!({"required": {"k": "2"}, "optional": {"k": "new"}});
        refresh(&fixture.request(&json!({"a": "2"}), &both)).unwrap();
        assert_eq!(contents(&fixture), ["2", "new", "a=\"2\""]);
        // Without its object a volume keeps its contents, and the others follow.
        let failure = refresh(&fixture.request(&json!({"a": "3"}), &json!({}))).unwrap_err();
        assert!(
            failure.message.contains("\"required\" not found"),
            "{failure}"
        );
        assert_eq!(contents(&fixture), ["2", "", "a=\"3\""]);
    }

    #[test]
    fn image_of_a_prepared_volume_is_recorded() {
        let mut fixture = Fixture {
            dir: tempfile::tempdir().unwrap(),
            version: 0,
        };
        let mut request = fixture.request(&json!({}), &json!({}));
        let pod = json!({"spec": {"containers": [],
            "volumes": [{"name": "disk", "image": {"reference": "disks/a:1"}}]}});
        request.pod = Arc::new(serde_json::from_value(pod).unwrap());
        assert!(images::recorded(&request.pod_dir).unwrap().is_empty());
        // The tag moves between two tries to start the pod.
        for content in ["old", "new"] {
            let digest = image_store::Digest::of(content.as_bytes());
            let image = Image {
                digest: digest.clone(),
                root: fixture.dir.path().join(content),
                config: image_store::ImageConfig::default(),
            };
            request.images = BTreeMap::from([("disk".to_owned(), image)]);
            let volumes = prepare(&request).unwrap();
            assert_eq!(volumes["disk"].path, fixture.dir.path().join(content));
            let recorded = images::recorded(&request.pod_dir).unwrap();
            assert_eq!(recorded, [digest]);
        }
    }
}
