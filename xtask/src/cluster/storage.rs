//! The provisioner of the test cluster: creates a volume for each claim of its two classes, and removes
//! it once it is released.
//!
//! It is a process of its own beside the controllers, with the administrator's rights, and looks at
//! everything again whenever a claim or a volume changes. All nodes are on this machine, so a volume
//! of a node is a directory (or a file behind a loop device) below that node's `/var/lib`, and one that
//! nodes share is a directory that every one of them sees.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, PostParams},
    runtime::{WatchStreamExt as _, watcher},
};
use kubevirt_api::quantity::Amount;
use serde_json::json;

use super::{
    objects,
    place::{NodeNumber, Place},
};

pub(super) const CLASSES: &str = include_str!("../../cluster/storage.yaml");
const LOCAL: &str = "test-cluster/local";
const SHARED: &str = "test-cluster/shared";
/// Set by the volume controller on claims of an external provisioner.
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Written by the scheduler on claims that wait for a node.
const NODE: &str = "volume.kubernetes.io/selected-node";
/// On volumes: their provisioner, so that no others are removed.
const MADE_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Serves claims until it is ended.
pub(super) async fn run(place: &Place) -> Result<()> {
    let client = objects::client(place).await?;
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let claims = watcher(claims, watcher::Config::default()).default_backoff();
    let volumes = watcher(volumes, watcher::Config::default()).default_backoff();
    let mut changes = stream::select(claims.map_ok(drop).boxed(), volumes.map_ok(drop).boxed());
    while let Some(change) = changes.next().await {
        let done = match change {
            Ok(()) => pass(place, &client).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = done {
            print(&format!("{error:#}"));
        }
    }
    bail!("the watches ended")
}

/// For the log of this process.
fn print(text: &str) {
    use std::io::Write as _;
    // A closed log is ignored.
    drop(writeln!(std::io::stderr(), "{text}"));
}

async fn pass(place: &Place, client: &Client) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    for claim in claims.list(&ListParams::default()).await? {
        if let Some(wanted) = wanted(&claim) {
            let name = claim.name_any();
            serve(place, &volumes, &claim, wanted)
                .await
                .with_context(|| format!("make a volume for the claim {name}"))?;
        }
    }
    for volume in volumes.list(&ListParams::default()).await? {
        if is_over(&volume) {
            let name = volume.name_any();
            remove(place, &name)?;
            volumes.delete(&name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

/// Where a claim's volume has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    On(NodeNumber),
    Everywhere,
}

/// Whether the claim waits for us.
fn wanted(claim: &PersistentVolumeClaim) -> Option<Wanted> {
    let bound = claim.spec.as_ref()?.volume_name.is_some();
    if bound || claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let marks = claim.annotations();
    match marks.get(PROVISIONER)?.as_str() {
        LOCAL => NodeNumber::parse(marks.get(NODE)?).map(Wanted::On),
        SHARED => Some(Wanted::Everywhere),
        _ => None,
    }
}

/// Whether the volume is ours and released.
fn is_over(volume: &PersistentVolume) -> bool {
    let is_ours = volume.annotations().contains_key(MADE_BY);
    let phase = volume
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let spec = volume.spec.as_ref();
    let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    is_ours
        && phase == Some("Released")
        && policy == Some("Delete")
        && volume.metadata.deletion_timestamp.is_none()
}

async fn serve(
    place: &Place,
    volumes: &Api<PersistentVolume>,
    claim: &PersistentVolumeClaim,
    wanted: Wanted,
) -> Result<()> {
    let uid = claim.uid().context("a claim without UID")?;
    let name = format!("pvc-{uid}");
    if volumes.get_opt(&name).await?.is_some() {
        return Ok(());
    }
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests);
    let size = requests.and_then(|mut all| all.remove("storage"));
    let size = size.unwrap_or_else(|| Quantity("1Gi".to_owned()));
    let mode = spec.volume_mode.unwrap_or_else(|| "Filesystem".to_owned());
    let is_block = mode == "Block";
    let (provisioner, source) = match wanted {
        Wanted::On(node) => {
            let made = make_local(place, node, &name, is_block.then_some(&size))?;
            (LOCAL, json!({"local": {"path": made}}))
        }
        Wanted::Everywhere => {
            ensure!(
                !is_block,
                "what nodes share are directories, not block devices"
            );
            let path = place.at("shared").join(&name);
            make_directory(&path)?;
            (
                SHARED,
                json!({"hostPath": {"path": path, "type": "Directory"}}),
            )
        }
    };
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {MADE_BY: provisioner}},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": spec.access_modes,
            "volumeMode": mode,
            "storageClassName": spec.storage_class_name,
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(), "name": claim.name_any(), "uid": uid,
            },
        },
    });
    for (key, value) in source.as_object().into_iter().flatten() {
        volume["spec"][key] = value.clone();
    }
    if let Wanted::On(node) = wanted {
        volume["spec"]["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{
            "matchExpressions": [{
                "key": "kubernetes.io/hostname", "operator": "In", "values": [node.name()],
            }],
        }]}});
    }
    let volume = serde_json::from_value(volume).context("put the volume together")?;
    volumes.create(&PostParams::default(), &volume).await?;
    Ok(())
}

/// Makes a volume of a node; where it is, as the node sees it.
fn make_local(
    place: &Place,
    node: NodeNumber,
    name: &str,
    block: Option<&Quantity>,
) -> Result<PathBuf> {
    let home = place.node(node).join("lib/volumes");
    let Some(size) = block else {
        make_directory(&home.join(name))?;
        return Ok(Path::new("/var/lib/volumes").join(name));
    };
    fs::create_dir_all(&home).with_context(|| format!("make {}", home.display()))?;
    let path = home.join(name);
    let size = Amount::parse(size).context("read the size of a claim")?;
    let file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
    file.set_len(size.units())
        .context("give the volume its size")?;
    loop_device(&path)
}

/// Writable for every user, since the kubelet does not change permissions of host directories.
fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o777)))
        .with_context(|| format!("make {}", path.display()))
}

fn loop_device(file: &Path) -> Result<PathBuf> {
    let output = Command::new("losetup")
        .args(["--find", "--show"])
        .arg(file)
        .output()
        .context("run losetup")?;
    ensure!(
        output.status.success(),
        "losetup: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let device = String::from_utf8(output.stdout).context("read the output of losetup")?;
    Ok(PathBuf::from(device.trim()))
}

/// Removes a volume, wherever it was made.
fn remove(place: &Place, name: &str) -> Result<()> {
    let nodes = place.nodes().into_iter();
    let places = nodes.map(|node| place.node(node).join("lib/volumes"));
    for path in places.chain([place.at("shared")]).map(|at| at.join(name)) {
        let Ok(found) = fs::symlink_metadata(&path) else {
            continue;
        };
        detach(&path)?;
        let removed = if found.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

/// Ends every loop device whose file is there or below.
pub(super) fn detach(within: &Path) -> Result<()> {
    let devices = fs::read_dir("/sys/block").context("list block devices")?;
    for device in devices {
        let device = device.context("list block devices")?;
        let Ok(file) = fs::read_to_string(device.path().join("loop/backing_file")) else {
            continue;
        };
        if !Path::new(file.trim_end()).starts_with(within) {
            continue;
        }
        let ended = Command::new("losetup")
            .arg("--detach")
            .arg(Path::new("/dev").join(device.file_name()))
            .status()
            .context("run losetup")?;
        ensure!(
            ended.success(),
            "losetup could not detach {}",
            device.file_name().display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(annotations: &serde_json::Value, volume: Option<&str>, expected: Option<Wanted>) {
        let claim = json!({
            "metadata": {"annotations": annotations},
            "spec": {"volumeName": volume},
        });
        let claim = serde_json::from_value(claim).expect("a claim");
        assert_eq!(wanted(&claim), expected, "{annotations}");
    }

    #[test]
    fn claims_are_served_once_their_place_is_known() {
        let node = NodeNumber::parse("n2");
        check(&json!({PROVISIONER: LOCAL}), None, None);
        check(
            &json!({PROVISIONER: LOCAL, NODE: "n2"}),
            None,
            node.map(Wanted::On),
        );
        check(&json!({PROVISIONER: LOCAL, NODE: "n2"}), Some("v"), None);
        check(
            &json!({PROVISIONER: SHARED}),
            None,
            Some(Wanted::Everywhere),
        );
        check(&json!({PROVISIONER: "other"}), None, None);
    }
}
