//! Exports as they are read, and when they are over.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

fn volume() -> Key {
    Key::new("n", "disk")
}

fn export() -> Value {
    json!({
        "metadata": {"name": "copy-u", "namespace": "images", "uid": "e", "annotations": {
            "ferrovirt.io/copy-for": "n/disk/u", "ferrovirt.io/copy-complete": "true"}},
        "spec": {"source": {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "fedora"},
                 "tokenSecretRef": "copy-u-1"},
        "status": {"phase": "Ready", "links": {"internal": {"cert": "PEM", "volumes": [
            {"name": "fedora", "formats": [
                {"format": "gzip", "url": "https://virt-export-copy-u.images.svc/volumes/fedora/disk.img.gz"},
                {"format": "raw", "url": "https://virt-export-copy-u.images.svc/volumes/fedora/disk.img"}]}]}}},
    })
}

fn found(export: Value) -> Transfer {
    let export: VirtualMachineExport = serde_json::from_value(export).unwrap();
    read(Some(&export), &volume(), "u")
}

#[test]
fn export_that_is_ready_has_the_link() {
    let link = |url: &str| {
        Transfer::Ready(Link {
            url: url.to_owned(),
            secret: "copy-u-1".to_owned(),
            authority: "PEM".to_owned(),
        })
    };
    let raw = "https://virt-export-copy-u.images.svc/volumes/fedora/disk.img";
    assert_eq!(found(export()), link(raw));
    // A claim that is not marked as a disk.
    let mut files = export();
    files["status"]["links"]["internal"]["volumes"][0]["formats"] = json!([
        {"format": "dir", "url": "https://virt-export-copy-u.images.svc/volumes/fedora/dir"}]);
    let file = "https://virt-export-copy-u.images.svc/volumes/fedora/dir/disk.img";
    assert_eq!(found(files), link(file));
}

#[test]
fn export_of_anybody_else_gets_no_secret_and_no_request() {
    let unusable = |change: &dyn Fn(&mut Value)| {
        let mut changed = export();
        change(&mut changed);
        let found = found(changed);
        assert!(matches!(found, Transfer::Waits { .. }), "{found:?}");
    };
    unusable(&|one| one["spec"]["tokenSecretRef"] = json!("password"));
    unusable(&|one| one["spec"]["tokenSecretRef"] = json!("copy-u2-1"));
    unusable(&|one| one["spec"]["tokenSecretRef"] = Value::Null);
    unusable(&|one| one["metadata"]["annotations"]["ferrovirt.io/copy-for"] = json!("n/disk/v"));
    unusable(&|one| one["metadata"]["deletionTimestamp"] = json!("2026-11-25T12:00:00Z"));
    let mut other = export();
    other["metadata"]["annotations"]["ferrovirt.io/copy-for"] = json!("n/disk/v");
    let expected = Transfer::Waits {
        reason: None,
        message: "VirtualMachineExport images/copy-u was not made for this copy: delete it"
            .to_owned(),
    };
    assert_eq!(found(other), expected);
    for url in [
        "https://other.n.svc/volumes/fedora/disk.img",
        "http://virt-export-copy-u.images.svc/volumes/fedora/disk.img",
        "https://images.svc/volumes/fedora/disk.img",
        "https://example.com",
        "https://.images.svc/volumes/fedora/disk.img",
        "https://example.com#.images.svc/volumes/fedora/disk.img",
        "https://example.com?.images.svc/volumes/fedora/disk.img",
        "https://example.com\\.images.svc/volumes/fedora/disk.img",
        "https://me@virt-export-copy-u.images.svc/volumes/fedora/disk.img",
        "https://a.b.images.svc/volumes/fedora/disk.img",
    ] {
        unusable(&|one| {
            one["status"]["links"]["internal"]["volumes"][0]["formats"] =
                json!([{"format": "raw", "url": url}]);
        });
    }
}

#[test]
fn export_that_is_not_ready_says_why() {
    assert_eq!(read(None, &volume(), "u"), Transfer::Absent);
    let mut one = export();
    one["metadata"]["annotations"] = json!({"ferrovirt.io/copy-for": "n/disk/u"});
    let uid = "e".to_owned();
    assert_eq!(found(one), Transfer::Incomplete { uid });
    let mut one = export();
    one["status"] = json!({"phase": "Pending", "conditions": [{
        "type": "Ready", "status": "False", "reason": "InUse", "message": "pod a uses claim fedora"}]});
    let expected = Transfer::Waits {
        reason: Some(Reason::CloneSourceInUse),
        message: "the source is not exported yet: pod a uses claim fedora".to_owned(),
    };
    assert_eq!(found(one), expected);
}

#[test]
fn export_is_over_with_its_data_volume() {
    let export: VirtualMachineExport = serde_json::from_value(export()).unwrap();
    let is_over = |found: Option<Value>| {
        over(&export, |key| {
            assert_eq!(*key, volume());
            found.map(|one| Arc::new(serde_json::from_value(one).unwrap()))
        })
    };
    let one = |phase: &str, uid: &str| json!({"metadata": {"name": "disk", "uid": uid}, "status": {"phase": phase}});
    assert!(!is_over(Some(one("CloneInProgress", "u"))));
    assert!(!is_over(Some(one("Pending", "u"))));
    assert!(is_over(Some(one("Succeeded", "u"))));
    assert!(is_over(Some(one("Failed", "u"))));
    assert!(is_over(Some(one("CloneInProgress", "v"))));
    assert!(is_over(None));
    let mut of_user = export.clone();
    of_user.metadata.annotations = None;
    assert!(!over(&of_user, |_| None));
}

#[test]
fn another_server_is_another_link() {
    let link = |authority: &str| Link {
        url: "https://a.b.svc/disk.img".to_owned(),
        secret: "copy-u-1".to_owned(),
        authority: authority.to_owned(),
    };
    assert_eq!(link("a").id(), link("a").id());
    assert_ne!(link("a").id(), link("b").id());
    assert!(link("a").authority_name("u").starts_with("importer-u-"));
}
