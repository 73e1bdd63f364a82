//! Checkpoints: bitmaps in QEMU's memory, one for each disk, of the blocks that the guest has changed since a
//! backup. Pure.
//!
//! **Invariant**: an increment is made only if each disk has had its bitmap since the parent. A bitmap lives as long
//! as QEMU has the disk open: it ends with QEMU, with a migration, and when the disk is taken from the guest, and
//! nothing brings it back.

use std::collections::BTreeMap;

use launcher_channel::BackupManifest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::qmp::QmpError;

/// The start of the name of our bitmaps.
const BITMAP: &str = "ferrovirt-checkpoint:";
/// The start of the names of jobs and of nodes of increments. QEMU allows 31 bytes.
const JOB: &str = "ferrovirt-backup-";
/// A bitmap has 2 to the power of this many bits at most.
const BITS: u32 = 24;
/// The cluster size of the copies.
const MIN_GRANULARITY: u64 = 64 << 10;
/// QEMU's limit is above this.
const MAX_GRANULARITY: u64 = 1 << 30;
/// QEMU's path of a device that has a name.
const PERIPHERAL: &str = "/machine/peripheral/";

/// A disk of the guest as QEMU has it open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) capacity: u64,
    /// Our bitmaps by checkpoint, and whether each has recorded every change.
    pub(super) checkpoints: BTreeMap<String, bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Drive {
    qdev: Option<String>,
    inserted: Option<Inserted>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Inserted {
    node_name: String,
    image: Image,
    #[serde(default)]
    dirty_bitmaps: Vec<Bitmap>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    virtual_size: u64,
}

#[derive(Deserialize)]
struct Bitmap {
    #[serde(default)]
    name: String,
    recording: bool,
    busy: bool,
    #[serde(default)]
    inconsistent: bool,
}

/// The open disks by the alias of their device, from the result of `query-block`.
pub(super) fn nodes(result: Value) -> Result<BTreeMap<String, Node>, QmpError> {
    let drives: Vec<Drive> =
        serde_json::from_value(result).map_err(|_| QmpError::Malformed("query-block"))?;
    let mut found = BTreeMap::new();
    for drive in drives {
        let (Some(device), Some(inserted)) = (drive.qdev, drive.inserted) else {
            continue;
        };
        let alias = device.strip_prefix(PERIPHERAL).unwrap_or(&device);
        let alias = alias.split('/').next().unwrap_or_default().to_owned();
        let bitmaps = inserted.dirty_bitmaps.into_iter();
        let checkpoints = bitmaps.filter_map(|one| {
            let name = one.name.strip_prefix(BITMAP)?.to_owned();
            Some((name, one.recording && !one.busy && !one.inconsistent))
        });
        let node = Node {
            name: inserted.node_name,
            capacity: inserted.image.virtual_size,
            checkpoints: checkpoints.collect(),
        };
        found.insert(alias, node);
    }
    Ok(found)
}

/// Why changes since a parent are not known for sure.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Gap {
    #[error("the guest has other disks than it had at backup {0}")]
    OtherDisks(String),
    #[error(
        "QEMU has not recorded the changes of disk {disk} since backup {parent}: the guest was started again or \
         migrated, or the disk was attached again"
    )]
    NotRecorded { disk: String, parent: String },
    #[error(
        "backup {0} does not say how large its disks were: a launcher of an earlier version made it"
    )]
    NoCapacity(String),
    #[error("disk {disk} was resized after backup {parent}")]
    Resized { disk: String, parent: String },
}

/// Checks that each disk, by volume, has recorded all changes since the parent.
pub(super) fn check(nodes: &BTreeMap<String, Node>, parent: &BackupManifest) -> Result<(), Gap> {
    let name = || parent.checkpoint.clone().unwrap_or_default();
    let mut entries = BTreeMap::new();
    for entry in &parent.volumes {
        entries.insert(&entry.volume, entry.capacity);
    }
    if !entries.keys().copied().eq(nodes.keys()) {
        return Err(Gap::OtherDisks(name()));
    }
    for (disk, node) in nodes {
        if node.checkpoints.get(&name()) != Some(&true) {
            return Err(Gap::NotRecorded {
                disk: disk.clone(),
                parent: name(),
            });
        }
        let capacity = entries.get(disk).copied().flatten();
        let capacity = capacity.ok_or_else(|| Gap::NoCapacity(name()))?;
        if capacity != node.capacity {
            return Err(Gap::Resized {
                disk: disk.clone(),
                parent: name(),
            });
        }
    }
    Ok(())
}

/// Bitmaps of checkpoints that nothing can build on any more, with their nodes.
pub(super) fn unused<'a>(
    nodes: &'a BTreeMap<String, Node>,
    is_kept: impl Fn(&str) -> bool,
) -> Vec<(&'a str, &'a str)> {
    let of_node = |node: &'a Node| {
        let all = node.checkpoints.keys();
        all.map(|checkpoint| (node.name.as_str(), checkpoint.as_str()))
    };
    let all = nodes.values().flat_map(of_node);
    all.filter(|(_, checkpoint)| !is_kept(checkpoint)).collect()
}

/// The arguments that name a bitmap.
pub(super) fn bitmap(node: &str, checkpoint: &str) -> Value {
    json!({"node": node, "name": format!("{BITMAP}{checkpoint}")})
}

/// The name of a job, and of the node that it writes to.
pub(super) fn job(number: usize) -> String {
    format!("{JOB}{number}")
}

pub(super) fn is_job(name: &str) -> bool {
    name.starts_with(JOB)
}

/// The arguments of `blockdev-add` for the file of an increment.
pub(super) fn target(number: usize, path: &str) -> Value {
    json!({
        "driver": "qcow2", "node-name": job(number), "discard": "unmap", "backing": null,
        "file": {"driver": "file", "filename": path},
    })
}

/// Whether the node of a file refers to no other file, from the result of `query-named-block-nodes`. A tenant who can
/// write to the claim can replace the header by one that names another file.
pub(super) fn is_alone(result: &Value, number: usize) -> bool {
    let all = result.as_array().into_iter().flatten();
    let own = job(number);
    let mut found = all.filter(|node| node["node-name"] == own.as_str());
    found.next().is_some_and(|node| {
        let header = &node["image"]["format-specific"];
        header["type"] == "qcow2"
            && header["data"]["data-file"].is_null()
            && node["backing_file"].is_null()
            && node["encrypted"] != true
    })
}

/// The arguments of `transaction` that makes a checkpoint of all disks at one moment.
pub(super) fn mark(nodes: &BTreeMap<String, Node>, checkpoint: &str) -> Value {
    let actions: Vec<Value> = nodes.values().map(|node| add(node, checkpoint)).collect();
    json!({"actions": actions})
}

/// Bytes that a bit stands for: so many that a bitmap takes 2 MiB at most, whatever the disk's size.
fn granularity(capacity: u64) -> u64 {
    (capacity >> BITS)
        .next_power_of_two()
        .clamp(MIN_GRANULARITY, MAX_GRANULARITY)
}

fn add(node: &Node, checkpoint: &str) -> Value {
    let mut data = bitmap(&node.name, checkpoint);
    data["granularity"] = json!(granularity(node.capacity));
    json!({"type": "block-dirty-bitmap-add", "data": data})
}

/// The arguments of `transaction` that makes a checkpoint of all disks and begins to copy what has changed since
/// the parent, all at one moment. The parent's bitmaps go on recording, whatever becomes of the copy.
pub(super) fn increment(nodes: &BTreeMap<String, Node>, parent: &str, checkpoint: &str) -> Value {
    let copy = |(number, node): (usize, &Node)| {
        json!({"type": "blockdev-backup", "data": {
            "job-id": job(number), "device": node.name, "target": job(number),
            "sync": "bitmap", "bitmap": format!("{BITMAP}{parent}"), "bitmap-mode": "never",
            "auto-dismiss": false,
        }})
    };
    let marks = nodes.values().map(|node| add(node, checkpoint));
    let actions: Vec<Value> = marks.chain(nodes.values().enumerate().map(copy)).collect();
    json!({"actions": actions})
}

/// A job of an increment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Job {
    pub(super) id: String,
    status: String,
    pub(super) current_progress: u64,
    pub(super) total_progress: u64,
    pub(super) error: Option<String>,
}

impl Job {
    pub(super) fn has_ended(&self) -> bool {
        self.status == "concluded"
    }
}

/// The jobs of increments, from the result of `query-jobs`.
pub(super) fn jobs(result: Value) -> Result<Vec<Job>, QmpError> {
    let mut all: Vec<Job> =
        serde_json::from_value(result).map_err(|_| QmpError::Malformed("query-jobs"))?;
    all.retain(|job| is_job(&job.id));
    Ok(all)
}

/// The nodes of increments, from the result of `query-named-block-nodes`.
pub(super) fn targets(result: &Value) -> Vec<String> {
    let all = result.as_array().into_iter().flatten();
    all.filter_map(|node| node["node-name"].as_str())
        .filter(|name| is_job(name))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use launcher_channel::{BackedUpVolume, BackupKind};

    use super::*;

    fn drive(device: &str, node: &str, bitmaps: &Value) -> Value {
        json!({"device": "", "qdev": device, "inserted": {
            "node-name": node, "image": {"virtual-size": 1024, "filename": "/f"}, "dirty-bitmaps": bitmaps,
        }})
    }

    fn recorded(checkpoint: &str, members: &Value) -> Value {
        let mut one = json!({
            "name": format!("{BITMAP}{checkpoint}"), "recording": true, "busy": false, "persistent": false,
            "granularity": 65536, "count": 0,
        });
        merge(&mut one, members);
        one
    }

    fn merge(whole: &mut Value, members: &Value) {
        for (name, value) in members.as_object().unwrap() {
            whole[name] = value.clone();
        }
    }

    fn disks(root: &Value, data: &Value) -> BTreeMap<String, Node> {
        nodes(json!([
            drive("/machine/peripheral/ua-root/virtio-backend", "libvirt-2-format", root),
            drive("ua-data", "libvirt-1-storage", data),
            {"device": "", "qdev": "ua-cd"},
            {"device": "", "inserted": {"node-name": "n", "image": {"virtual-size": 1}}},
        ]))
        .unwrap()
    }

    fn parent(volumes: &[(&str, u64)]) -> BackupManifest {
        let entry = |(volume, capacity): &(&str, u64)| BackedUpVolume {
            volume: (*volume).to_owned(),
            file: format!("{volume}.qcow2"),
            bytes: 1,
            capacity: Some(*capacity),
            sha256: None,
        };
        BackupManifest {
            version: BackupManifest::VERSION,
            kind: BackupKind::Full,
            checkpoint: Some("p".to_owned()),
            parent: None,
            parent_sha256: None,
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            uid: "u".to_owned(),
            quiesced: false,
            volumes: volumes.iter().map(entry).collect(),
        }
    }

    #[test]
    fn disks_are_found_by_their_alias_with_their_checkpoints() {
        let foreign = json!({"name": "other", "recording": true, "busy": false});
        let found = disks(&json!([recorded("p", &json!({})), foreign]), &json!([]));
        assert_eq!(found.keys().collect::<Vec<_>>(), ["ua-data", "ua-root"]);
        let root = &found["ua-root"];
        assert_eq!(
            (root.name.as_str(), root.capacity),
            ("libvirt-2-format", 1024)
        );
        assert_eq!(root.checkpoints, BTreeMap::from([("p".to_owned(), true)]));
        assert!(nodes(json!({})).is_err());
    }

    /// Each way to lose changes makes the next backup a full one.
    #[test]
    fn increment_needs_a_record_of_every_disk() {
        let good = || json!([recorded("p", &json!({}))]);
        let both = [("ua-data", 1024), ("ua-root", 1024)];
        assert_eq!(check(&disks(&good(), &good()), &parent(&both)), Ok(()));
        let not_recorded = || Gap::NotRecorded {
            disk: "ua-data".to_owned(),
            parent: "p".to_owned(),
        };
        for data in [
            json!([]),
            json!([recorded("other", &json!({}))]),
            json!([recorded("p", &json!({"recording": false}))]),
            json!([recorded("p", &json!({"busy": true}))]),
            json!([recorded("p", &json!({"inconsistent": true}))]),
        ] {
            let found = check(&disks(&good(), &data), &parent(&both));
            assert_eq!(found, Err(not_recorded()), "{data}");
        }
        let others = || Err(Gap::OtherDisks("p".to_owned()));
        let nodes = disks(&good(), &good());
        for volumes in [
            &both[..1],
            &[("ua-data", 1024), ("ua-root", 1024), ("ua-x", 1024)],
            &[("ua-data", 1024), ("ua-x", 1024)],
        ] {
            assert_eq!(check(&nodes, &parent(volumes)), others());
        }
        let resized = check(&nodes, &parent(&[("ua-data", 512), ("ua-root", 1024)]));
        assert!(matches!(resized, Err(Gap::Resized { .. })), "{resized:?}");
        let mut earlier = parent(&both);
        earlier.volumes[1].capacity = None;
        assert_eq!(
            check(&nodes, &earlier),
            Err(Gap::NoCapacity("p".to_owned()))
        );
    }

    #[test]
    fn checkpoints_of_nobody_are_unused() {
        let root = json!([recorded("p", &json!({})), recorded("q", &json!({}))]);
        let nodes = disks(&root, &json!([recorded("q", &json!({"busy": true}))]));
        let found = unused(&nodes, |name| name == "p");
        assert_eq!(
            found,
            [("libvirt-1-storage", "q"), ("libvirt-2-format", "q")]
        );
    }

    #[test]
    fn increment_begins_with_a_checkpoint_in_one_transaction() {
        let nodes = disks(&json!([]), &json!([]));
        let found = increment(&nodes, "p", "q");
        let mark = |node: &str| {
            json!({"type": "block-dirty-bitmap-add", "data": {
                "node": node, "name": "ferrovirt-checkpoint:q", "granularity": 65536,
            }})
        };
        let copy = |node: &str, job: &str| {
            json!({"type": "blockdev-backup", "data": {
                "job-id": job, "device": node, "target": job, "sync": "bitmap",
                "bitmap": "ferrovirt-checkpoint:p", "bitmap-mode": "never", "auto-dismiss": false,
            }})
        };
        let expected = json!({"actions": [
            mark("libvirt-1-storage"), mark("libvirt-2-format"),
            copy("libvirt-1-storage", "ferrovirt-backup-0"), copy("libvirt-2-format", "ferrovirt-backup-1"),
        ]});
        assert_eq!(found, expected);
        assert!(job(usize::MAX).len() < 40 && job(9999).len() <= 31);
    }

    #[test]
    fn file_of_an_increment_names_no_other_file() {
        let node = |header: &Value| {
            let mut one =
                json!({"node-name": "ferrovirt-backup-3", "image": {"format-specific": header}});
            merge(&mut one, &json!({"drv": "qcow2", "encrypted": false}));
            json!([{"node-name": "libvirt-1-format"}, one])
        };
        let plain = json!({"type": "qcow2", "data": {"compat": "1.1"}});
        let outside = json!({"type": "qcow2", "data": {"compat": "1.1", "data-file": "/d"}});
        assert!(is_alone(&node(&plain), 3));
        assert!(!is_alone(&node(&plain), 2), "it is not there");
        assert!(!is_alone(&node(&outside), 3));
        assert!(!is_alone(&node(&Value::Null), 3));
        let mut overlay = node(&plain);
        overlay[1]["backing_file"] = json!("/b");
        assert!(!is_alone(&overlay, 3));
        assert_eq!(target(3, "/f")["backing"], Value::Null);
        assert!(target(3, "/f").as_object().unwrap().contains_key("backing"));
    }

    #[test]
    fn bitmap_of_a_large_disk_is_coarse() {
        for (capacity, expected) in [
            (0, 64 << 10),
            (1 << 40, 64 << 10),
            ((1 << 40) + 512, 64 << 10),
            (5 << 40, 512 << 10),
            (u64::MAX >> 1, 1 << 30),
        ] {
            assert_eq!(granularity(capacity), expected, "{capacity}");
        }
    }

    #[test]
    fn own_jobs_and_nodes_are_told_from_those_of_libvirt() {
        let job = |id: &str, status: &str| {
            json!({
                "id": id, "type": "backup", "status": status, "current-progress": 1, "total-progress": 2,
            })
        };
        let all = jobs(json!([
            job("libvirt-1", "running"),
            job("ferrovirt-backup-0", "concluded")
        ]));
        let all = all.unwrap();
        assert_eq!(all.len(), 1);
        assert!(all[0].has_ended() && all[0].error.is_none());
        let nodes =
            json!([{"node-name": "libvirt-1-storage"}, {"node-name": "ferrovirt-backup-1"}]);
        assert_eq!(targets(&nodes), ["ferrovirt-backup-1"]);
    }
}
