use serde_json::{Value, json};

use super::*;

fn volume(source: Value) -> wire::Volume {
    let mut volume = source;
    volume["name"] = json!("v");
    serde_json::from_value(volume).expect("a volume")
}

#[test]
fn every_source_has_its_variant_and_member() {
    for (member, content) in [
        ("hostDisk", json!({"path": "/d/x.img", "type": "Disk"})),
        ("persistentVolumeClaim", json!({"claimName": "c"})),
        ("cloudInitNoCloud", json!({"userData": "u"})),
        ("cloudInitConfigDrive", json!({"userData": "u"})),
        ("sysprep", json!({"secret": {"name": "s"}})),
        ("containerDisk", json!({"image": "i"})),
        (
            "ephemeral",
            json!({"persistentVolumeClaim": {"claimName": "c"}}),
        ),
        ("emptyDisk", json!({"capacity": "1Gi"})),
        ("dataVolume", json!({"name": "d"})),
        ("configMap", json!({"name": "m"})),
        ("secret", json!({"secretName": "s"})),
        ("downwardAPI", json!({"fields": []})),
        ("serviceAccount", json!({"serviceAccountName": "a"})),
        ("downwardMetrics", json!({})),
        ("memoryDump", json!({"claimName": "c"})),
        ("containerPath", json!({"path": "/p"})),
    ] {
        let wire = volume(json!({ member: content }));
        let source = VolumeSource::of(&wire);
        assert_eq!(source.member(), member);
        assert_eq!(VolumeSource::all(&wire).count(), 1, "{member}");
        let parsed = Volume::of(2, &wire);
        assert_eq!(parsed.field(), format!("spec.volumes[2].{member}"));
    }
}

#[test]
fn unknown_source_is_missing() {
    let wire = volume(json!({"tape": {"reel": 1}}));
    let parsed = Volume::of(0, &wire);
    assert_eq!(parsed.source, VolumeSource::Missing);
    assert_eq!(parsed.field(), "spec.volumes[0]");
}

#[test]
fn several_sources_are_all_listed() {
    let wire = volume(json!({"emptyDisk": {"capacity": "1Gi"}, "hostDisk": {"path": "/a"}}));
    let members: Vec<_> = VolumeSource::all(&wire)
        .map(|source| source.member())
        .collect();
    assert_eq!(members, ["hostDisk", "emptyDisk"]);
}

#[test]
fn claims_of_disks_have_name_and_access() {
    let claim = |name, is_read_only, is_hotpluggable| Claim {
        name,
        is_read_only,
        is_hotpluggable,
    };
    for (source, expected) in [
        (
            json!({"persistentVolumeClaim": {"claimName": "c"}}),
            Some(claim("c", false, false)),
        ),
        (
            json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": true, "hotpluggable": true}}),
            Some(claim("c", true, true)),
        ),
        (
            json!({"dataVolume": {"name": "d", "hotpluggable": true}}),
            Some(claim("d", false, true)),
        ),
        (
            json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "e", "readOnly": true}}}),
            Some(claim("e", true, false)),
        ),
        (json!({"ephemeral": {}}), Some(claim("", false, false))),
        (json!({"memoryDump": {"claimName": "m"}}), None),
        (json!({"containerDisk": {"image": "i"}}), None),
    ] {
        let wire = volume(source);
        assert_eq!(VolumeSource::of(&wire).claim(), expected, "{wire:?}");
    }
}

#[test]
fn host_path_is_split_into_directory_and_file() {
    for (path, expected) in [
        ("/data/a.img", Some(("/data", "a.img"))),
        ("/a.img", Some(("/", "a.img"))),
        ("/data/..", None),
        ("/data/.", None),
        ("/data/", None),
        ("data/a.img", None),
        ("a.img", None),
        ("", None),
    ] {
        let file = HostFile::of(path).ok();
        let found = file.map(|file| (file.directory, file.name));
        assert_eq!(found, expected, "{path}");
    }
}

#[test]
fn seed_data_has_every_given_way() {
    let wire = volume(json!({"cloudInitConfigDrive": {
        "userDataBase64": "aGk=", "networkDataSecretRef": {"name": "n"},
    }}));
    let VolumeSource::CloudInit(seed) = VolumeSource::of(&wire) else {
        panic!("{wire:?}");
    };
    let user_data = SeedData {
        base64: Some("aGk="),
        ..SeedData::default()
    };
    let network_data = SeedData {
        secret: Some("n"),
        ..SeedData::default()
    };
    let expected = CloudInit {
        format: CloudInitFormat::ConfigDrive,
        user_data,
        network_data,
    };
    assert_eq!(seed, expected);
}

#[test]
fn references_have_the_field_of_their_name() {
    use Referenced as To;
    let reference = |object, name, field| Reference {
        object,
        name,
        field,
        is_optional: false,
    };
    let secrets = json!({"secretRef": {"name": "u"}, "networkDataSecretRef": {"name": "n"}});
    for (source, expected) in [
        (
            json!({"persistentVolumeClaim": {"claimName": "c"}}),
            vec![reference(To::Claim, "c", "claimName")],
        ),
        (
            json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "c"}}}),
            vec![reference(To::Claim, "c", "persistentVolumeClaim.claimName")],
        ),
        (
            json!({"dataVolume": {"name": ""}}),
            vec![reference(To::DataVolume, "", "name")],
        ),
        (
            json!({ "cloudInitNoCloud": secrets }),
            vec![
                reference(To::Secret, "u", "secretRef.name"),
                reference(To::Secret, "n", "networkDataSecretRef.name"),
            ],
        ),
        (json!({"cloudInitConfigDrive": {"userData": "u"}}), vec![]),
        (
            json!({"containerDisk": {"image": "i", "imagePullSecret": "s"}}),
            vec![reference(To::Secret, "s", "imagePullSecret")],
        ),
        (
            json!({"containerDisk": {"image": "i", "imagePullSecret": ""}}),
            vec![],
        ),
        (
            json!({"configMap": {}}),
            vec![reference(To::ConfigMap, "", "name")],
        ),
        (
            json!({"secret": {"secretName": "s", "optional": true}}),
            vec![Reference {
                is_optional: true,
                ..reference(To::Secret, "s", "secretName")
            }],
        ),
        (
            json!({"sysprep": {"configMap": {"name": "m"}}}),
            vec![reference(To::ConfigMap, "m", "configMap.name")],
        ),
        (
            json!({"serviceAccount": {"serviceAccountName": "a"}}),
            vec![reference(To::ServiceAccount, "a", "serviceAccountName")],
        ),
        (json!({"memoryDump": {"claimName": "c"}}), vec![]),
        (json!({"downwardAPI": {"fields": []}}), vec![]),
    ] {
        let wire = volume(source);
        assert_eq!(VolumeSource::of(&wire).references(), expected, "{wire:?}");
    }
}

#[test]
fn data_is_kept_by_the_pod_a_claim_or_the_node() {
    for (source, expected) in [
        (
            json!({"persistentVolumeClaim": {"claimName": "c"}}),
            "claim c",
        ),
        (json!({"dataVolume": {"name": "d"}}), "claim d"),
        (
            json!({"ephemeral": {"persistentVolumeClaim": {"claimName": "e"}}}),
            "overlaid e",
        ),
        (
            json!({"hostDisk": {"path": "/d/x.img", "type": "Disk"}}),
            "node",
        ),
        (json!({"memoryDump": {"claimName": "m"}}), "pod"),
        (json!({"containerDisk": {"image": "i"}}), "pod"),
        (json!({"configMap": {"name": "m"}}), "pod"),
    ] {
        let wire = volume(source);
        let found = match VolumeSource::of(&wire).storage() {
            Storage::Pod => "pod".to_owned(),
            Storage::Claim(claim) => format!("claim {}", claim.name),
            Storage::OverlaidClaim(claim) => format!("overlaid {}", claim.name),
            Storage::Host(_) => "node".to_owned(),
        };
        assert_eq!(found, expected, "{wire:?}");
    }
}

#[test]
fn another_pod_brings_hot_pluggable_claims_and_those_of_memory_dumps() {
    for (source, expected) in [
        (json!({"memoryDump": {"claimName": "m"}}), Some("m")),
        (
            json!({"persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}),
            Some("c"),
        ),
        (
            json!({"dataVolume": {"name": "d", "hotpluggable": true}}),
            Some("d"),
        ),
        (json!({"persistentVolumeClaim": {"claimName": "c"}}), None),
        (json!({"containerDisk": {"image": "i"}}), None),
    ] {
        let wire = volume(source);
        let source = VolumeSource::of(&wire);
        let plugged = source.is_hotpluggable().then(|| source.plugged_claim());
        assert_eq!(plugged.flatten(), expected, "{wire:?}");
    }
}

#[test]
fn pod_of_a_guest_that_goes_on_has_the_claim_from_its_start() {
    let saved = json!({"name": SAVED_STATE_VOLUME, "memoryDump": {"claimName": "m"}});
    let wire: wire::Volume = serde_json::from_value(saved).expect("a volume");
    let source = VolumeSource::of(&wire);
    assert!(matches!(source, VolumeSource::SavedState(_)));
    assert!(!source.is_hotpluggable());
    assert_eq!(source.claim(), None);
}
