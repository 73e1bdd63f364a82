//! What data volumes may ask for.

use launcher_pod::ContainerDisks;
use serde_json::{Value, json};

use super::{ABLE, check, observe, read, volume, web, with_source};
use crate::Uploads;
use crate::data_volume::plan::plan;
use crate::data_volume::request::{self, Abilities};

/// The data volume fails with a message that begins so.
#[track_caller]
fn check_refusal(spec: &Value, notes: Value, expected: &str) {
    let mut whole = volume(spec);
    whole["metadata"]["annotations"] = notes;
    let observed = observe(whole, None, None);
    check(&observed, "Failed", "ImportNotSupported", &[]);
    let message = plan(&observed).outcome.unwrap().running.message;
    assert!(message.starts_with(expected), "{message}");
}

#[test]
fn what_the_importer_cannot_do_is_refused() {
    let case = |spec: Value, notes: Value, expected: &str| check_refusal(&spec, notes, expected);
    let none = || json!({});
    for source in ["imageio", "vddk"] {
        let expected = format!("spec.source.{source}: ");
        case(with_source(json!({source: {}})), none(), &expected);
    }
    case(with_source(json!({})), none(), "spec.source: ");
    case(
        with_source(json!({"blank": {}, "pvc": {"name": "a"}})),
        none(),
        "spec.source: ",
    );
    case(
        with_source(json!({"blank": {}, "upload": {}})),
        none(),
        "spec.source: ",
    );
    for url in ["a/b", "http://a/b"] {
        let source = json!({"gcs": {"url": url}});
        case(with_source(source), none(), "spec.source.gcs.url: ");
    }
    case(
        with_source(json!({"s3": {"url": "gs://a/b"}})),
        none(),
        "spec.source.s3.url: ",
    );
    case(
        with_source(json!({"http": {"url": "ftp://a"}})),
        none(),
        "spec.source.http.url: ",
    );
    case(
        with_source(json!({"pvc": {"namespace": "other"}})),
        none(),
        "spec.source.pvc.name: ",
    );
    case(
        with_source(json!({"pvc": {"namespace": "own/../other", "name": "a"}})),
        none(),
        "spec.source.pvc: ",
    );
    case(
        with_source(json!({"snapshot": {}})),
        none(),
        "spec.source.snapshot.name: ",
    );
    for field in ["imageStream", "secretRef", "certConfigMap"] {
        case(
            with_source(json!({"registry": {"url": "docker://a/b:c", field: "x"}})),
            none(),
            &format!("spec.source.registry.{field}: "),
        );
    }
    case(
        with_source(json!({"registry": {"url": "oci-archive://a"}})),
        none(),
        "spec.source.registry.url: ",
    );
}

#[test]
fn options_that_the_importer_lacks_are_refused() {
    let case = |spec: Value, notes: Value, expected: &str| check_refusal(&spec, notes, expected);
    let none = || json!({});
    for (field, value) in [
        ("contentType", json!("archive")),
        ("checkpoints", json!([{"previous": "", "current": "a"}])),
        ("preallocation", json!(true)),
    ] {
        let mut spec = web();
        spec[field] = value;
        case(spec, none(), &format!("spec.{field}: "));
    }
    let mut spec = web();
    spec["storage"] = json!({});
    case(spec, none(), "spec.storage.resources.requests.storage: ");
    let mut spec = web();
    spec["storage"]["dataSource"] = json!({"kind": "X", "name": "a"});
    case(spec, none(), "spec.storage.dataSource: ");
    let mut spec = web();
    spec["pvc"] = spec["storage"].clone();
    case(spec, none(), "spec: ");
    let checksum = |text: &str| json!({"ferrovirt.io/import-checksum": text});
    for wrong in ["md5:00", "sha256:00", "00"] {
        case(
            web(),
            checksum(wrong),
            "annotation ferrovirt.io/import-checksum: ",
        );
    }
    let valid = format!("sha256:{}", "0".repeat(64));
    case(
        with_source(json!({"blank": {}})),
        checksum(&valid),
        "annotation ferrovirt.io/import-checksum: ",
    );
    let mut whole = volume(&web());
    whole["metadata"]["annotations"] = checksum(&valid);
    assert!(observe(whole, None, None).request.is_ok());
}

#[test]
fn images_are_refused_where_nodes_cannot_mount_them() {
    let whole = volume(&with_source(json!({"registry": {"url": "docker://a/b:c"}})));
    let whole = read(whole);
    assert!(request::parse(&whole, None, ABLE).is_ok());
    let unable = Abilities {
        images: ContainerDisks::Copied,
        ..ABLE
    };
    let refusal = request::parse(&whole, None, unable).unwrap_err();
    assert!(
        refusal.0.starts_with("spec.source.registry: "),
        "{refusal:?}"
    );
}

#[test]
fn uploads_are_refused_where_no_proxy_receives_them() {
    let whole = read(volume(&with_source(json!({"upload": {}}))));
    assert!(request::parse(&whole, None, ABLE).is_ok());
    let unable = Abilities {
        uploads: Uploads::Refused,
        ..ABLE
    };
    let refusal = request::parse(&whole, None, unable).unwrap_err();
    assert!(refusal.0.starts_with("spec.source.upload: "), "{refusal:?}");
}
