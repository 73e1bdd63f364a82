//! Copies of claims and snapshots, and data sources that stand for them.

use std::sync::Arc;
use std::time::Duration;

use kubevirt_api::annotations;
use reasons::Reason;
use reconcile::Key;
use serde_json::{Value, json};

use super::{ABLE, a_claim, a_pod, check, from_snapshot, observe, read, volume, web};
use crate::data_source::Target;
use crate::data_volume::claim;
use crate::data_volume::named::Named;
use crate::data_volume::observe::{Origin, is_clonable, is_populated};
use crate::data_volume::plan::{Step, plan};
use crate::data_volume::request::{self, Source, Unmet};
use crate::data_volume::transfer::{Link, Transfer};
use crate::view::Claim;

#[test]
fn copy_waits_for_its_source() {
    let copy = json!({"source": {"pvc": {"namespace": "n", "name": "from"}}, "storage": {}});
    let case = |origin: Origin, claim: Option<Value>, phase: &str, reason: &str, steps: &[Step]| {
        let mut observed = observe(volume(&copy), claim, None);
        observed.origin = origin;
        check(&observed, phase, reason, steps);
    };
    let from = || "from".to_owned();
    let ready = || Origin::Ready(Arc::new(read(a_claim("Bound"))));
    let in_use = Origin::InUse {
        claim: from(),
        pod: "p".to_owned(),
    };
    let bound = || Some(a_claim("Bound"));
    case(
        Origin::Missing(from()),
        None,
        "Pending",
        "SourcePVCNotAvailabe",
        &[],
    );
    case(
        Origin::Unpopulated(from()),
        None,
        "Pending",
        "SourcePVCNotAvailabe",
        &[],
    );
    case(ready(), None, "Pending", "", &[Step::CreateClaim]);
    let cloned = Origin::Cloned(Arc::new(read(a_claim("Bound"))));
    case(cloned, None, "Pending", "", &[Step::CreateClaim]);
    // A driver copies at the creation of the claim.
    case(in_use.clone(), None, "Pending", "CloneSourceInUse", &[]);
    case(in_use, bound(), "Pending", "CloneSourceInUse", &[]);
    case(ready(), bound(), "CloneScheduled", "", &[Step::CreatePod]);
}

#[test]
fn storage_clones_what_its_profile_says_it_can() {
    let mut from = a_claim("Bound");
    from["spec"]["storageClassName"] = "fast".into();
    from["status"]["capacity"] = json!({"storage": "100Mi"});
    let profile = json!({
        "storageClass": "fast", "provisioner": "csi.example", "cloneStrategy": "csi-clone",
    });
    let check = |spec: Value, profile: &Value, expected: bool| {
        let copy = json!({"source": {"pvc": {"namespace": "n", "name": "from"}}, "storage": spec});
        let request = request::parse(&read(volume(&copy)), None, ABLE).unwrap();
        let found = is_clonable(&request, &read(from.clone()), &read(profile.clone()));
        assert_eq!(found, expected, "{copy} {profile}");
    };
    let sized = |size: &str| json!({"resources": {"requests": {"storage": size}}});
    check(json!({}), &profile, true);
    check(sized("200Mi"), &profile, true);
    check(sized("10Mi"), &profile, false);
    check(json!({"volumeMode": "Block"}), &profile, false);
    for (field, value) in [
        ("cloneStrategy", "copy"),
        ("cloneStrategy", "snapshot"),
        ("storageClass", "slow"),
        ("provisioner", "ferrovirt.io/local"),
    ] {
        let mut other = profile.clone();
        other[field] = value.into();
        check(json!({}), &other, false);
    }
    let mut made = json!({"spec": {}});
    claim::clone_by_storage(&mut made, &read(from.clone()));
    assert!(read::<Claim>(made).is_cloned);
}

#[test]
fn claim_is_created_from_a_complete_snapshot_that_fits() {
    let case = |origin: Origin, storage: &Value, phase: &str, reason: &str, steps: &[Step]| {
        let mut observed = observe(volume(&from_snapshot(storage)), None, None);
        observed.origin = origin;
        check(&observed, phase, reason, steps);
    };
    let name = || "copy".to_owned();
    let missing = "SourceSnapshotNotAvailable";
    let any = json!({});
    case(Origin::NoSnapshot(name()), &any, "Pending", missing, &[]);
    let incomplete = Origin::IncompleteSnapshot {
        name: name(),
        problem: Some("the disk is full".to_owned()),
    };
    case(incomplete, &any, "Pending", missing, &[]);
    let least = |mib: u64| Origin::Snapshot {
        least: Some(mib << 20),
    };
    let sized = json!({"resources": {"requests": {"storage": "10Mi"}}});
    let create = [Step::CreateClaim];
    case(least(11), &any, "Pending", "", &create);
    case(least(11), &sized, "Pending", "", &create);
    case(
        Origin::Snapshot { least: None },
        &sized,
        "Pending",
        "",
        &create,
    );
    case(least(12), &sized, "Failed", "DiskDoesNotFit", &[]);
}

#[test]
fn data_source_stands_for_what_is_copied() {
    let spec = json!({"sourceRef": {"kind": "DataSource", "name": "a"}, "storage": {}});
    let parse = |spec: &Value, target: Target| {
        let named = Named { target };
        request::parse(&read(volume(spec)), Some(&named), ABLE)
    };
    let at = |namespace: &str| Key::new(namespace, "from");
    let claim = parse(&spec, Target::Claim(at("n"))).unwrap();
    assert_eq!(claim.source, Source::Claim("from".to_owned()));
    let snapshot = parse(&spec, Target::Snapshot(at("n"))).unwrap();
    assert_eq!(snapshot.source, Source::Snapshot("from".to_owned()));
    let elsewhere = parse(&spec, Target::Claim(at("other"))).unwrap();
    assert_eq!(
        elsewhere.source,
        Source::Elsewhere(Target::Claim(at("other")))
    );
    let mut both = spec.clone();
    both["source"] = json!({"blank": {}});
    parse(&both, Target::Claim(at("n"))).unwrap_err();

    let named = Named {
        target: Target::Claim(at("n")),
    };
    let made = claim::render(&read(volume(&spec)), &claim, Some(1 << 20), Some(&named));
    let notes = &made["metadata"]["annotations"];
    assert_eq!(notes["ferrovirt.io/copied-from"], "pvc/from");
}

fn link() -> Link {
    Link {
        url: "https://virt-export-copy-u.other.svc/volumes/from/disk.img".to_owned(),
        secret: "copy-u-1".to_owned(),
        authority: "PEM".to_owned(),
    }
}

#[test]
fn source_in_another_namespace_is_exported_and_read() {
    let copy = json!({"source": {"pvc": {"namespace": "other", "name": "from"}}, "storage": {}});
    let case =
        |transfer: Transfer, claim: Option<Value>, phase: &str, reason: &str, steps: &[Step]| {
            let mut observed = observe(volume(&copy), claim, None);
            observed.origin = Origin::Ready(Arc::new(read(a_claim("Bound"))));
            observed.transfer = transfer;
            check(&observed, phase, reason, steps);
        };
    let bound = || Some(a_claim("Bound"));
    let scheduled = "CloneScheduled";
    case(Transfer::None, None, "Pending", "", &[Step::CreateClaim]);
    case(
        Transfer::Absent,
        bound(),
        scheduled,
        "",
        &[Step::OpenSource],
    );
    let incomplete = Transfer::Incomplete {
        uid: "e".to_owned(),
    };
    case(incomplete, bound(), scheduled, "", &[Step::CloseSource]);
    let busy = Transfer::Waits {
        reason: Some(Reason::CloneSourceInUse),
        message: "in use".to_owned(),
    };
    case(busy, bound(), scheduled, "CloneSourceInUse", &[]);
    case(
        Transfer::Ready(link()),
        bound(),
        scheduled,
        "",
        &[Step::CreatePod],
    );
}

/// A pod whose server is another one by now can never end.
#[test]
fn pod_reads_from_the_server_that_is_there() {
    let copy = json!({"source": {"pvc": {"namespace": "other", "name": "from"}}, "storage": {}});
    let case = |transfer: Transfer, pod: Value, steps: &[Step]| {
        let mut observed = observe(volume(&copy), Some(a_claim("Bound")), Some(pod));
        observed.transfer = transfer;
        assert_eq!(plan(&observed).steps, steps);
    };
    let running = json!({"state": {"running": {"startedAt": "2026-11-25T11:59:00Z"}}});
    let mut pod = a_pod("Running", &running);
    pod["metadata"]["annotations"][annotations::COPY_LINK] = link().id().into();
    let mut moved = link();
    moved.authority = "OTHER".to_owned();
    case(Transfer::Ready(link()), pod.clone(), &[]);
    case(
        Transfer::Ready(moved.clone()),
        pod.clone(),
        &[Step::DeletePod],
    );
    case(Transfer::Absent, pod.clone(), &[Step::OpenSource]);
    pod["metadata"]["deletionTimestamp"] = "2026-11-25T11:59:30Z".into();
    case(Transfer::Ready(moved.clone()), pod, &[]);
    let ended = json!({"state": {"terminated": {"exitCode": 0}}});
    case(
        Transfer::Ready(moved),
        a_pod("Succeeded", &ended),
        &[Step::MarkClaim],
    );
}

#[test]
fn data_volume_waits_for_its_data_source() {
    let mut observed = observe(volume(&web()), None, None);
    observed.request = Err(Unmet::Waits {
        reason: Reason::SourceNotPermitted,
        message: "not allowed".to_owned(),
        again: Some(Duration::from_mins(1)),
    });
    check(&observed, "Pending", "SourceNotPermitted", &[]);
    assert_eq!(plan(&observed).requeue_in, Some(Duration::from_mins(1)));
    observed.claim = Some(Arc::new(read(a_claim("Bound"))));
    check(&observed, "Pending", "SourceNotPermitted", &[]);
}

#[test]
fn claim_is_copied_after_its_upload() {
    let uploaded = |annotations: Value| {
        let mut claim = a_claim("Bound");
        claim["metadata"]["annotations"] = annotations;
        is_populated(&read(claim), None)
    };
    let target = "cdi.kubevirt.io/storage.upload.target";
    let phase = "cdi.kubevirt.io/storage.pod.phase";
    assert!(uploaded(json!({})));
    assert!(!uploaded(json!({target: ""})));
    assert!(!uploaded(json!({target: "", phase: "Pending"})));
    assert!(!uploaded(json!({target: "", phase: "Running"})));
    assert!(uploaded(json!({target: "", phase: "Succeeded"})));
    assert!(uploaded(
        json!({target: "", annotations::CDI_POPULATED_FOR: "disk"})
    ));
}
