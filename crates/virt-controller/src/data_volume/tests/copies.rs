//! Copies of claims and snapshots, and data sources that stand for them.

use std::sync::Arc;
use std::time::Duration;

use kubevirt_api::annotations;
use reasons::Reason;
use reconcile::Key;
use serde_json::{Value, json};

use super::{ABLE, a_claim, check, from_snapshot, observe, read, volume, web};
use crate::data_source::Target;
use crate::data_volume::claim;
use crate::data_volume::named::Named;
use crate::data_volume::observe::{Origin, is_populated};
use crate::data_volume::plan::{Step, plan};
use crate::data_volume::request::{self, Refusal, Source, Unmet};

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
    case(in_use, bound(), "Pending", "CloneSourceInUse", &[]);
    case(ready(), bound(), "CloneScheduled", "", &[Step::CreatePod]);
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
    let Refusal(refusal) = parse(&spec, Target::Claim(at("other"))).unwrap_err();
    assert!(
        refusal.starts_with("spec.sourceRef: it stands for persistentvolumeclaim other/from"),
        "{refusal}"
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
