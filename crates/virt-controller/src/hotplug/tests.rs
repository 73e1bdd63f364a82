use std::collections::BTreeMap;
use std::sync::Arc;

use kubevirt_api::vmi_status::VolumeStatus;
use launcher_pod::attachment_pod_name;
use serde_json::{Value, json};

use super::observe::{Observed, Storage};
use super::plan::{Step, carried, leaving, plan, receiving_memory};
use super::view::AttachmentPod;
use crate::view::Guest;

const NOW: &str = "2026-11-25T12:00:10Z";

fn hot(volume: &str, claim: &str) -> Value {
    json!({"name": volume, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": true}})
}

fn entry(volume: &str, phase: &str, claim: &str) -> Value {
    json!({
        "name": volume, "target": "", "phase": phase, "hotplugVolume": {},
        "persistentVolumeClaimInfo": {"claimName": claim},
    })
}

fn root() -> Value {
    json!({"name": "root", "target": "vda"})
}

fn guest(volumes: &[Value], status: &[Value]) -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "n", "uid": "vmi-uid"},
        "spec": {"volumes": volumes, "domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": "n1", "volumeStatus": status},
    })
}

/// A pod that mounts these claims, by volume.
fn attachment(claims: &[(&str, &str)], ready: &str) -> Value {
    let set: BTreeMap<String, String> = claims
        .iter()
        .map(|(volume, claim)| ((*volume).to_owned(), (*claim).to_owned()))
        .collect();
    let volumes: Vec<Value> = claims
        .iter()
        .map(|(volume, claim)| {
            json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}})
        })
        .collect();
    let mounts: Vec<Value> = claims
        .iter()
        .map(|(volume, _)| json!({"name": volume, "mountPath": format!("/volumes/{volume}")}))
        .collect();
    json!({
        "metadata": {
            "name": attachment_pod_name("launcher-uid", &set), "namespace": "n", "uid": "pod-uid",
        },
        "spec": {
            "volumes": volumes,
            "containers": [{"name": "c", "volumeMounts": mounts}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    })
}

fn observe(guest: Value, storage: &[(&str, Storage)], pods: &[Value]) -> Observed {
    let launcher = json!({
        "metadata": {"name": "virt-launcher-a", "namespace": "n", "uid": "launcher-uid"},
        "spec": {"nodeName": "n1", "volumes": [{"name": "hotplug-disks"}]},
        "status": {"phase": "Running"},
    });
    let storage = storage.iter().cloned();
    Observed {
        vmi: Arc::new(serde_json::from_value::<Guest>(guest).unwrap()),
        launcher: Some(Arc::new(serde_json::from_value(launcher).unwrap())),
        storage: storage
            .map(|(volume, storage)| (volume.to_owned(), storage))
            .collect(),
        attachments: pods
            .iter()
            .map(|pod| Arc::new(serde_json::from_value::<AttachmentPod>(pod.clone()).unwrap()))
            .collect(),
        now: NOW.parse().unwrap(),
    }
}

/// The new pod of a guest has the volumes that it had at the hand-over.
#[test]
fn nothing_changes_while_the_guest_moves() {
    for (state, is_frozen) in [
        (json!({}), true),
        (json!({"completed": true}), true),
        (json!({"completed": true, "failed": true}), false),
    ] {
        let mut guest = guest(&[hot("w", "d")], &[entry("v", "Ready", "c")]);
        guest["status"]["migrationState"] = json!({
            "migrationUid": "m", "sourceNode": "n1", "targetNode": "n2",
        });
        for (name, value) in state.as_object().unwrap() {
            guest["status"]["migrationState"][name] = value.clone();
        }
        let observed = observe(
            guest,
            &[("w", bound("d"))],
            &[attachment(&[("v", "c")], "True")],
        );
        let plan = plan(&observed);
        assert_eq!(plan.steps.is_empty(), is_frozen, "{state}");
        assert_eq!(
            plan.volumes == observed.vmi.status.volumes,
            is_frozen,
            "{state}"
        );
    }
}

#[test]
fn guest_takes_the_volumes_along_that_it_may_have() {
    for (phase, claim, is_carried, is_leaving) in [
        ("Pending", Some("c"), false, false),
        ("Bound", Some("c"), false, false),
        ("AttachedToNode", Some("c"), true, false),
        ("MountedToPod", Some("c"), true, false),
        ("Ready", Some("c"), true, false),
        ("Ready", Some("d"), true, true),
        ("Ready", None, true, true),
        ("Detaching", Some("c"), false, true),
        ("Detaching", None, false, true),
        ("UnMountedFromPod", None, false, false),
    ] {
        let volumes: Vec<Value> = claim.iter().map(|claim| hot("v", claim)).collect();
        let vmi = guest(&volumes, &[root(), entry("v", phase, "c")]);
        let vmi: Guest = serde_json::from_value(vmi).unwrap();
        let found = carried(&vmi.status.volumes);
        assert_eq!(found.contains_key("v"), is_carried, "{phase} {claim:?}");
        assert_eq!(leaving(&vmi).is_some(), is_leaving, "{phase} {claim:?}");
    }
}

#[test]
fn guest_whose_memory_is_written_is_not_handed_over() {
    for (phase, is_dump, expected) in [
        ("Bound", true, false),
        ("AttachedToNode", true, true),
        ("MountedToPod", true, true),
        ("MemoryDumpInProgress", true, true),
        ("MemoryDumpCompleted", true, false),
        ("MemoryDumpFailed", true, false),
        ("Ready", false, false),
    ] {
        let mut entry = entry("v", phase, "c");
        if is_dump {
            entry["memoryDumpVolume"] = json!({"claimName": "c"});
        }
        let vmi = guest(&[hot("v", "c")], &[root(), entry]);
        let vmi: Guest = serde_json::from_value(vmi).unwrap();
        let found = receiving_memory(&vmi.status.volumes);
        assert_eq!(found, expected.then_some("v"), "{phase} {is_dump}");
    }
}

fn bound(claim: &str) -> Storage {
    Storage::Bound(serde_json::from_value(json!({"claimName": claim})).unwrap())
}

/// Steps and volumes as text: `create v=a`, `v:Bound:VolumeBound`.
fn shown(observed: &Observed) -> (Vec<String>, Vec<String>) {
    let plan = plan(observed);
    let steps = plan.steps.iter().map(|step| match step {
        Step::Create(claims) => {
            let all = claims
                .iter()
                .map(|(volume, claim)| format!("{volume}={claim}"));
            format!("create {}", all.collect::<Vec<_>>().join(","))
        }
        Step::Delete(_) => "delete".to_owned(),
    });
    let volume = |volume: &VolumeStatus| {
        let phase = volume.phase.as_ref().map_or("-", |phase| phase.as_str());
        let reason = volume.reason.as_deref().unwrap_or("-");
        format!("{}:{phase}:{reason}", volume.name)
    };
    (steps.collect(), plan.volumes.iter().map(volume).collect())
}

fn check(observed: &Observed, steps: &[&str], volumes: &[&str]) {
    let found = shown(observed);
    assert_eq!(found.0, steps, "{observed:?}");
    assert_eq!(found.1, volumes, "{observed:?}");
}

#[test]
fn new_volume_gets_a_pod_once_its_claim_is_usable() {
    let guest = || guest(&[hot("v", "a")], &[root()]);
    let not_bound =
        || Storage::NotBound(serde_json::from_value(json!({"claimName": "a"})).unwrap());
    for (storage, steps, volume) in [
        (Storage::Missing, &[][..], "v:Pending:FailedPvcNotFound"),
        (
            Storage::NotFilled("data volume a is Pending".to_owned()),
            &[][..],
            "v:Pending:VolumePending",
        ),
        (
            Storage::BlockDevice,
            &[][..],
            "v:Pending:VolumeModeNotSupported",
        ),
        // A pod that uses the claim may be what it waits for.
        (not_bound(), &["create v=a"][..], "v:Pending:VolumePending"),
        (bound("a"), &["create v=a"][..], "v:Bound:VolumeBound"),
    ] {
        let observed = observe(guest(), &[("v", storage)], &[]);
        check(&observed, steps, &["root:-:-", volume]);
    }
}

#[test]
fn ready_pod_is_published_and_replaces_the_others() {
    let old = || attachment(&[("v", "a")], "True");
    let both = |ready: &str| attachment(&[("v", "a"), ("w", "b")], ready);
    let spec = [hot("v", "a"), hot("w", "b")];
    let storage = [("v", bound("a")), ("w", bound("b"))];
    let status = [entry("v", "Ready", "a"), entry("w", "Bound", "b")];
    let observed = |pods: &[Value]| observe(guest(&spec, &status), &storage, pods);
    check(
        &observed(&[old()]),
        &["create v=a,w=b"],
        &["v:Ready:-", "w:Bound:-"],
    );
    check(
        &observed(&[old(), both("False")]),
        &[],
        &["v:Ready:-", "w:Bound:-"],
    );
    let last = observed(&[old(), both("True")]);
    check(
        &last,
        &["delete"],
        &["v:Ready:-", "w:AttachedToNode:VolumeAttachedToNode"],
    );
    for volume in plan(&last).volumes {
        let plugged = volume.hotplug_volume.unwrap();
        assert_eq!(plugged.attach_pod_uid.as_deref(), Some("pod-uid"));
    }
}

#[test]
fn volume_stays_in_the_pod_until_it_has_left_the_guest() {
    let pod = || attachment(&[("v", "a")], "True");
    for (phase, pods, steps, volumes) in [
        (
            "Ready",
            vec![pod()],
            &[][..],
            &["v:Detaching:VolumeDetaching"][..],
        ),
        (
            "MountedToPod",
            vec![pod()],
            &[],
            &["v:Detaching:VolumeDetaching"],
        ),
        (
            "AttachedToNode",
            vec![pod()],
            &[],
            &["v:Detaching:VolumeDetaching"],
        ),
        ("Detaching", vec![pod()], &[], &["v:Detaching:-"]),
        (
            "UnMountedFromPod",
            vec![pod()],
            &["delete"],
            &["v:UnMountedFromPod:-"],
        ),
        ("UnMountedFromPod", vec![], &[], &[]),
        // It never got into the guest's pod.
        ("Bound", vec![pod()], &["delete"], &[]),
        ("Pending", vec![], &[], &[]),
    ] {
        let observed = observe(guest(&[], &[entry("v", phase, "a")]), &[], &pods);
        check(&observed, steps, volumes);
    }
}

#[test]
fn volume_of_another_claim_leaves_before_it_comes() {
    let pod = || attachment(&[("v", "a")], "True");
    let storage = || [("v", bound("b"))];
    let spec = || [hot("v", "b")];
    let status = |phase| [entry("v", phase, "a")];
    let leaving = observe(guest(&spec(), &status("Ready")), &storage(), &[pod()]);
    check(&leaving, &[], &["v:Detaching:VolumeDetaching"]);
    let left = observe(
        guest(&spec(), &status("UnMountedFromPod")),
        &storage(),
        &[pod()],
    );
    check(&left, &["delete"], &["v:UnMountedFromPod:-"]);
    let gone = observe(guest(&spec(), &[]), &storage(), &[]);
    check(&gone, &["create v=b"], &["v:Bound:VolumeBound"]);
}

/// The class of CVE-2025-64435: anyone who may create pods can choose a name.
#[test]
fn pod_that_mounts_other_claims_is_not_published() {
    let mut forged = attachment(&[("v", "a")], "True");
    forged["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] = json!("other");
    let mut host_path = attachment(&[("v", "a")], "True");
    host_path["spec"]["volumes"][0] = json!({"name": "v", "hostPath": {"path": "/"}});
    for pod in [forged, host_path] {
        let status = [entry("v", "Bound", "a")];
        let observed = observe(
            guest(&[hot("v", "a")], &status),
            &[("v", bound("a"))],
            &[pod],
        );
        check(&observed, &[], &["v:Bound:AttachmentPodFailed"]);
    }
}

#[test]
fn ended_pod_is_replaced_and_a_guest_that_ended_needs_none() {
    let mut ended = attachment(&[("v", "a")], "False");
    ended["status"]["phase"] = json!("Failed");
    let status = [entry("v", "Ready", "a")];
    let running = guest(&[hot("v", "a")], &status);
    let storage = [("v", bound("a"))];
    check(
        &observe(running.clone(), &storage, &[ended]),
        &["delete"],
        &["v:Ready:-"],
    );
    let mut over = running;
    over["status"]["phase"] = json!("Succeeded");
    let pod = attachment(&[("v", "a")], "True");
    check(
        &observe(over, &storage, &[pod]),
        &["delete"],
        &["v:Ready:-"],
    );
}

/// A node under pressure refuses each pod as soon as it is bound to it.
#[test]
fn pods_that_end_at_once_are_not_replaced_at_once() {
    for (created, steps, wait) in [
        ("2026-11-25T12:00:07Z", &[][..], Some(7)),
        ("2026-11-25T12:00:00Z", &["delete"][..], None),
    ] {
        let mut ended = attachment(&[("v", "a")], "False");
        ended["metadata"]["creationTimestamp"] = json!(created);
        ended["status"]["phase"] = json!("Failed");
        ended["status"]["message"] = json!("The node had condition: [DiskPressure].");
        let status = [entry("v", "Bound", "a")];
        let guest = guest(&[hot("v", "a")], &status);
        let observed = observe(guest, &[("v", bound("a"))], &[ended]);
        check(&observed, steps, &["v:Bound:AttachmentPodFailed"]);
        let found = plan(&observed);
        assert_eq!(found.requeue_in.map(|wait| wait.as_secs()), wait);
        let message = found.volumes[0].message.clone().unwrap();
        assert!(message.contains("DiskPressure"), "{message}");
    }
}

#[test]
fn volume_of_a_memory_dump_comes_like_a_disk_and_stays_until_it_leaves_the_spec() {
    let dump = || json!({"name": "v", "memoryDump": {"claimName": "a"}});
    let storage = || [("v", bound("a"))];
    let new = observe(guest(&[dump()], &[root()]), &storage(), &[]);
    check(&new, &["create v=a"], &["root:-:-", "v:Bound:VolumeBound"]);
    let info = plan(&new).volumes[1].memory_dump_volume.clone().unwrap();
    assert_eq!(info.claim_name.as_deref(), Some("a"));
    let pod = || attachment(&[("v", "a")], "True");
    for phase in [
        "MemoryDumpInProgress",
        "MemoryDumpCompleted",
        "MemoryDumpFailed",
    ] {
        let status = [entry("v", phase, "a")];
        let stays = observe(guest(&[dump()], &status), &storage(), &[pod()]);
        check(&stays, &[], &[&format!("v:{phase}:-")]);
        let leaves = observe(guest(&[], &status), &[], &[pod()]);
        check(&leaves, &[], &["v:Detaching:VolumeDetaching"]);
    }
}

#[test]
fn volume_of_the_start_is_left_alone() {
    // The gate was off when the guest started.
    let known = json!({"name": "v", "target": "vdb"});
    let observed = observe(
        guest(&[hot("v", "a")], &[root(), known]),
        &[("v", bound("a"))],
        &[],
    );
    check(&observed, &[], &["root:-:-", "v:-:-"]);
}
