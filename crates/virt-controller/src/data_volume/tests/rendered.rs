//! The claim and the pod of a data volume.

use kubevirt_api::storage_profile::ClaimPropertySet;
use launcher_pod::{Acceleration, Settings};
use serde_json::{Value, json};

use super::{ABLE, a_claim, check, from_snapshot, observe, read, volume, web, with_source};
use crate::data_volume::plan::Step;
use crate::data_volume::pod::{self, Input};
use crate::data_volume::transfer::Link;
use crate::data_volume::{claim, request};
use crate::view::Claim;

fn owner() -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "name": "disk", "uid": "u",
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn rendered_claim(spec: &Value, source: Option<&Claim>) -> Value {
    let mut whole = volume(spec);
    whole["metadata"]["labels"] = json!({"instancetype.kubevirt.io/default-instancetype": "small"});
    whole["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1",
        "cdi.kubevirt.io/storage.populatedFor": "disk",
    });
    let whole = read(whole);
    let request = request::parse(&whole, None, ABLE).unwrap();
    claim::render(&whole, &request, source.and_then(claim::capacity), None)
}

#[test]
fn claim_has_defaults_owner_and_the_size_for_the_disk() {
    let expected = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "disk", "namespace": "n",
            "labels": {"instancetype.kubevirt.io/default-instancetype": "small"},
            "annotations": {"mine": "1", "cdi.kubevirt.io/storage.contentType": "kubevirt"},
            "ownerReferences": [owner()],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "11Mi"}},
        },
    });
    assert_eq!(rendered_claim(&web(), None), expected);
    let size = |spec: &Value, source: Option<&Claim>| {
        let claim = rendered_claim(spec, source);
        claim["spec"]["resources"]["requests"]["storage"].clone()
    };
    let mut block = web();
    block["storage"]["volumeMode"] = json!("Block");
    assert_eq!(size(&block, None), "10Mi");
    let target = rendered_claim(&with_source(json!({"upload": {}})), None);
    let mark = "cdi.kubevirt.io/storage.upload.target";
    assert_eq!(target["metadata"]["annotations"][mark], "");
    let by_hand = json!({
        "source": {"blank": {}},
        "pvc": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Mi"}}},
    });
    assert_eq!(size(&by_hand, None), "10Mi");
    let copied: Claim = read(a_claim("Bound"));
    let copy = json!({"source": {"pvc": {"name": "from"}}, "storage": {}});
    assert_eq!(size(&copy, Some(&copied)), "11Mi");
}

fn rendered_pod(spec: &Value, claim: &Value, source: Option<&Claim>) -> Value {
    pod_of(spec, claim, source, None)
}

fn pod_of(spec: &Value, claim: &Value, source: Option<&Claim>, link: Option<&Link>) -> Value {
    let mut whole = volume(spec);
    if spec["source"]["http"].is_object() {
        let checksum = format!("sha256:{}", "0".repeat(64));
        whole["metadata"]["annotations"] = json!({"ferrovirt.io/import-checksum": checksum});
    }
    let whole = read(whole);
    let request = request::parse(&whole, None, ABLE).unwrap();
    let settings = Settings::defaults("launcher:1", Acceleration::Kvm);
    let pod = pod::render(&Input {
        whole: &whole,
        request: &request,
        claim: &read(claim.clone()),
        source,
        link,
        settings: &settings,
        restarts: 2,
    });
    json!(pod.unwrap())
}

/// What a guest has written to its disk is never taken for a format.
#[test]
fn pod_reads_the_bytes_of_a_disk_from_an_export() {
    let link = Link {
        url: "https://virt-export-copy-u.other.svc/volumes/from/disk.img".to_owned(),
        secret: "copy-u-1".to_owned(),
        authority: "PEM".to_owned(),
    };
    let spec = json!({"source": {"pvc": {"namespace": "other", "name": "from"}}, "storage": {}});
    let found = pod_of(&spec, &a_claim("Bound"), None, Some(&link));
    let note = &found["metadata"]["annotations"]["ferrovirt.io/copy-link"];
    assert_eq!(note, &json!(link.id()));
    let volumes = &found["spec"]["volumes"];
    let authority = json!({"name": "authorities", "configMap": {"name": link.authority_name("u")}});
    assert_eq!(volumes[2], authority);
    assert_eq!(
        volumes[3],
        json!({"name": "token", "secret": {"secretName": "copy-u-1"}})
    );
    let arguments = found["spec"]["containers"][0]["args"].as_array().unwrap();
    let (_, source) = arguments.split_at(arguments.len() - 7);
    let expected = json!([
        "http",
        link.url,
        "--raw",
        "--authorities",
        "/authorities",
        "--headers-from",
        "/headers"
    ]);
    assert_eq!(json!(source), expected);
}

#[test]
fn pod_is_unprivileged_and_has_what_the_source_needs() {
    let mut spec = web();
    spec["source"]["http"] = json!({
        "url": "https://example.com/disk.qcow2", "secretRef": "login", "certConfigMap": "authorities",
        "extraHeaders": ["a: b"], "secretExtraHeaders": ["token"],
    });
    let found = rendered_pod(&spec, &a_claim("Bound"), None);
    let metadata = json!({
        "name": "importer-u", "namespace": "n", "labels": {"kubevirt.io": "disk-import"},
        "annotations": {"ferrovirt.io/import-claim": "c", "ferrovirt.io/import-restarts": "2"},
        "ownerReferences": [owner()],
    });
    assert_eq!(found["metadata"], metadata);
    let security = json!({
        "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true, "fsGroup": 107,
        "seccompProfile": {"type": "RuntimeDefault"},
    });
    let found = &found["spec"];
    assert_eq!(found["securityContext"], security);
    assert_eq!(found["automountServiceAccountToken"], false);
    let volumes = json!([
        {"name": "data", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "credentials", "secret": {"secretName": "login"}},
        {"name": "authorities", "configMap": {"name": "authorities"}},
        {"name": "headers-0", "secret": {"secretName": "token"}},
    ]);
    assert_eq!(found["volumes"], volumes);
    let container = json!({
        "name": "importer", "image": "launcher:1", "imagePullPolicy": "IfNotPresent",
        "command": ["/usr/bin/disk-import"],
        "args": [
            "--directory", "/data", "--size", "10485760", "--scratch", "/scratch",
            "http", "https://example.com/disk.qcow2",
            "--checksum", format!("sha256:{}", "0".repeat(64)),
            "--credentials", "/credentials", "--authorities", "/authorities",
            "--header=a: b", "--headers-from", "/headers/0",
        ],
        "resources": {
            "requests": {"cpu": "100m", "memory": "64M"},
            "limits": {"cpu": "1", "memory": "600M"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true,
        },
        "volumeMounts": [
            {"name": "data", "mountPath": "/data", "readOnly": false},
            {"name": "scratch", "mountPath": "/scratch", "readOnly": false},
            {"name": "credentials", "mountPath": "/credentials", "readOnly": true},
            {"name": "authorities", "mountPath": "/authorities", "readOnly": true},
            {"name": "headers-0", "mountPath": "/headers/0", "readOnly": true},
        ],
    });
    assert_eq!(found["containers"], json!([container]));
    spec["source"]["http"]["url"] = json!("https://example.com/$(HOME)/$$a");
    let escaped = rendered_pod(&spec, &a_claim("Bound"), None);
    assert_eq!(
        escaped["spec"]["containers"][0]["args"][7],
        "https://example.com/$$(HOME)/$$$$a"
    );
    let arguments = |spec: &Value, claim: &Value, source: Option<&Claim>| {
        let pod = rendered_pod(spec, claim, source);
        let arguments = pod["spec"]["containers"][0]["args"].clone();
        let arguments: Vec<String> = read(arguments);
        arguments.join(" ")
    };
    let mut block = a_claim("Bound");
    block["spec"]["volumeMode"] = json!("Block");
    assert_eq!(
        arguments(&with_source(json!({"blank": {}})), &block, None),
        "--device /dev/import --scratch /scratch blank"
    );
    assert_eq!(
        arguments(
            &with_source(json!({"registry": {"url": "docker://a/b:c"}})),
            &a_claim("Bound"),
            None
        ),
        "--directory /data --size 10485760 --scratch /scratch image /source"
    );
    let copy = json!({"source": {"pvc": {"name": "from"}}, "storage": {}});
    let (files, device): (Claim, Claim) = (read(a_claim("Bound")), read(block));
    assert_eq!(
        arguments(&copy, &a_claim("Bound"), Some(&files)),
        "--directory /data --size 10899456 --scratch /scratch clone /source"
    );
    assert!(arguments(&copy, &a_claim("Bound"), Some(&device)).ends_with("clone /dev/source"));
}

#[test]
fn objects_in_buckets_are_read_with_their_keys() {
    let arguments = |source: Value| {
        let mut pod = rendered_pod(&with_source(source), &a_claim("Bound"), None);
        let all = pod["spec"]["containers"][0]["args"].take();
        let all: Vec<String> = read(all);
        (all[6..].join(" "), pod["spec"]["volumes"].clone())
    };
    let (found, volumes) = arguments(json!({"s3": {
        "url": "https://minio/images/a", "secretRef": "keys", "certConfigMap": "authorities"}}));
    let expected =
        "s3 https://minio/images/a --credentials /credentials --authorities /authorities";
    assert_eq!(found, expected);
    let secret = json!({"name": "credentials", "secret": {"secretName": "keys"}});
    assert!(volumes.as_array().unwrap().contains(&secret), "{volumes}");
    let (found, _) = arguments(json!({"s3": {"url": "s3://images/a"}}));
    assert_eq!(found, "s3 s3://images/a");
    let (found, _) = arguments(json!({"gcs": {"url": "gs://images/a"}}));
    assert_eq!(found, "http https://storage.googleapis.com/images/a");
    let (found, _) = arguments(json!({"gcs": {"url": "gs://images/a", "secretRef": "account"}}));
    let expected = "http https://storage.googleapis.com/images/a --credentials /credentials";
    assert_eq!(found, expected);
}

#[test]
fn claim_of_a_snapshot_is_made_by_its_driver_and_the_pod_expands_its_disk() {
    let spec = from_snapshot(&json!({}));
    let whole = read(volume(&spec));
    let request = request::parse(&whole, None, ABLE).unwrap();
    let claim = claim::render(&whole, &request, Some(11 << 20), None);
    let expected = json!({
        "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
        "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot",
                       "name": "copy"},
        "resources": {"requests": {"storage": "11Mi"}},
    });
    assert_eq!(claim["spec"], expected);
    let pod = rendered_pod(&spec, &a_claim("Bound"), None);
    let arguments = pod["spec"]["containers"][0]["args"].as_array().unwrap();
    assert_eq!(arguments.last().unwrap(), "expand");
    let observed = observe(volume(&spec), Some(a_claim("Bound")), None);
    check(&observed, "CloneScheduled", "", &[Step::CreatePod]);
}

#[test]
fn modes_follow_the_profile_unless_they_are_given() {
    let sets: Vec<ClaimPropertySet> = read(json!([
        {"accessModes": ["ReadWriteMany"], "volumeMode": "Block"},
        {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"},
    ]));
    let modes = |spec: Value| {
        let whole = read(volume(&spec));
        let mut request = request::parse(&whole, None, ABLE).unwrap();
        request.complete(&sets);
        let claim = claim::render(&whole, &request, Some(11 << 20), None);
        let text = |member: &str| claim["spec"][member].to_string();
        text("accessModes") + &text("volumeMode")
    };
    assert_eq!(modes(web()), r#"["ReadWriteMany"]"Block""#);
    let mut files = web();
    files["storage"]["volumeMode"] = json!("Filesystem");
    assert_eq!(modes(files), r#"["ReadWriteOnce"]"Filesystem""#);
    let mut once = web();
    once["storage"]["accessModes"] = json!(["ReadOnlyMany"]);
    assert_eq!(modes(once), r#"["ReadOnlyMany"]"Filesystem""#);
    let copy = from_snapshot(&json!({}));
    assert_eq!(modes(copy), r#"["ReadWriteOnce"]"Filesystem""#);
}
