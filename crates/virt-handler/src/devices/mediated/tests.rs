//! Passes over a tree of files in place of sysfs.

use std::{fs, os::unix::fs::symlink, path::Path};

use super::*;

struct Host {
    root: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
        }
    }

    fn files(&self) -> DeviceFiles {
        DeviceFiles {
            sys: self.root.path().join("sys"),
            dev: self.root.path().join("dev"),
            run: self.root.path().join("run"),
        }
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.path().join(path)).unwrap()
    }

    /// A card with one type; returns the directory of the type.
    fn card(&self, name: &str, id: &str, called: &str, available: u32) -> String {
        let kind = format!("sys/class/mdev_bus/{name}/mdev_supported_types/{id}");
        self.write(&format!("{kind}/name"), &format!("{called}\n"));
        self.write(
            &format!("{kind}/available_instances"),
            &format!("{available}\n"),
        );
        self.write(&format!("{kind}/create"), "");
        kind
    }

    /// What the kernel does once a UUID was written.
    fn appear(&self, kind: &str, group: u32) -> Vec<String> {
        let written = self.read(&format!("{kind}/create"));
        let (uuids, rest) = written.as_bytes().as_chunks::<36>();
        assert_eq!(rest, b"", "whole UUIDs: {written}");
        self.write(&format!("{kind}/create"), "");
        self.write(&format!("{kind}/available_instances"), "0\n");
        let uuids = uuids
            .iter()
            .map(|uuid| String::from_utf8_lossy(uuid).into_owned());
        let uuids: Vec<String> = uuids.collect();
        for uuid in &uuids {
            self.write(&format!("{kind}/devices/{uuid}/x"), "");
            let device = format!("sys/bus/mdev/devices/{uuid}");
            self.write(&format!("{device}/remove"), "");
            let target = format!("/groups/{group}");
            symlink(target, self.root.path().join(device).join("iommu_group")).unwrap();
            self.write(&format!("dev/vfio/{group}"), "");
        }
        uuids
    }

    fn pass(&self, made: &[&str]) -> Outcome {
        let types = Types {
            made: made.iter().map(|name| (*name).to_owned()).collect(),
            kept: Vec::new(),
        };
        pass(&self.files(), &types).unwrap()
    }
}

fn changed(created: usize, removed: usize) -> Outcome {
    Outcome {
        created,
        removed,
        problems: Vec::new(),
    }
}

#[test]
fn cards_are_divided_and_devices_that_are_not_wanted_removed() {
    let host = Host::new();
    // Most nodes have no such cards.
    assert_eq!(host.pass(&["GRID_T4-1Q"]), changed(0, 0));

    let kind = host.card("0000:81:00.0", "nvidia-222", "GRID T4-1Q", 2);
    assert_eq!(host.pass(&["other"]), changed(0, 0));
    assert_eq!(host.pass(&["GRID_T4-1Q"]), changed(2, 0));
    let uuids = host.appear(&kind, 7);
    assert_eq!(uuids.len(), 2);
    assert_eq!(host.pass(&["nvidia-222"]), changed(0, 0));

    // The same devices after a reboot.
    let again = Host::new();
    let kind = again.card("0000:81:00.0", "nvidia-222", "GRID T4-1Q", 2);
    again.pass(&["GRID_T4-1Q"]);
    assert_eq!(again.appear(&kind, 7), uuids);

    assert_eq!(host.pass(&[]), changed(0, 2));
    for uuid in &uuids {
        let device = format!("sys/bus/mdev/devices/{uuid}/remove");
        assert_eq!(host.read(&device), "1");
    }
}

#[test]
fn failure_on_one_card_does_not_keep_others_from_being_divided() {
    let host = Host::new();
    let broken = host.card("a", "t", "T", 3);
    let other = host.card("b", "t", "T", 1);
    fs::remove_file(host.root.path().join(&broken).join("create")).unwrap();
    let outcome = host.pass(&["t"]);
    assert_eq!((outcome.created, outcome.removed), (1, 0));
    let [problem] = &outcome.problems[..] else {
        panic!("one problem: {:?}", outcome.problems)
    };
    assert!(
        problem.starts_with("cannot make one of type t on a: "),
        "{problem}"
    );
    assert_eq!(host.appear(&other, 1).len(), 1);
}

#[test]
fn device_without_a_removable_entry_is_reported() {
    let host = Host::new();
    let kind = host.card("a", "t", "T", 1);
    host.pass(&["t"]);
    let uuids = host.appear(&kind, 1);
    let device = format!("sys/bus/mdev/devices/{}", uuids[0]);
    fs::remove_dir_all(host.root.path().join(Path::new(&device))).unwrap();
    let outcome = host.pass(&[]);
    assert_eq!(outcome.removed, 0);
    assert!(outcome.problems[0].starts_with("cannot remove "));
}
