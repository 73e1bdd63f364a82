//! Which VMs and guests follow a changed template.

use super::*;

fn parsed_vm(mut vm: Value, revision: &str) -> Value {
    vm["metadata"]["labels"][REVISION] = revision.into();
    vm["spec"]["template"]["metadata"]["labels"][REVISION] = revision.into();
    vm
}

/// A VM of one revision whose guest was started from another.
fn started(ordinal: u32, vm_revision: &str, guest_revision: &str, ready: &str) -> Member {
    Member {
        guest: Some(Arc::new(guest(ordinal, guest_revision, ready))),
        ..member_of(parsed_vm(vm(ordinal), vm_revision))
    }
}

fn with_disks(mut template: Value) -> Value {
    template["spec"]["dataVolumeTemplates"] = json!([{"metadata": {"name": "root"}}]);
    template
}

/// Revision web-1 had less memory, other-1 has the present template, disks-1 had disks.
fn observe_with(spec: Value, members: Vec<Member>) -> Observed {
    let mut observed = observe(pool(spec), members);
    observed.revisions = BTreeMap::from([
        revision("web-1", &vm_template("512Mi")),
        revision("other-1", &vm_template("1Gi")),
        revision("disks-1", &with_disks(vm_template("1Gi"))),
    ]);
    observed
}

const PRUNE_ALL: &str = "prune disks-1, prune other-1, prune web-1";

#[test]
fn vms_follow_the_template_unless_users_do_it() {
    let unmanaged = json!({"updateStrategy": {"unmanaged": {}}});
    let opportunistic = json!({"updateStrategy": {"opportunistic": {}}});
    let cases = [
        (json!({}), "web-1", "keep revision, update web-0"),
        (
            opportunistic.clone(),
            "web-1",
            "keep revision, update web-0",
        ),
        (unmanaged, "web-1", "prune disks-1, prune other-1"),
        (json!({}), "gone-1", "keep revision, update web-0"),
        // The same template under another name, as after a change of the number.
        (json!({}), "other-1", "prune disks-1, prune web-1"),
        (json!({}), "web-2", PRUNE_ALL),
        (opportunistic, "web-2", PRUNE_ALL),
    ];
    for (spec, revision, expected) in cases {
        let member = member_of(parsed_vm(vm(0), revision));
        check(&observe_with(spec, vec![member]), expected);
    }
    let mut unmarked = vm(0);
    unmarked["spec"]["template"]["metadata"]["labels"] = json!({});
    let observed = observe_with(json!({}), vec![member_of(unmarked)]);
    check(&observed, "keep revision, update web-0");
}

#[test]
fn number_comes_before_the_template() {
    let old = || member_of(parsed_vm(vm(0), "web-1"));
    let observed = observe_with(json!({"replicas": 2}), vec![old()]);
    check(&observed, "keep revision, create 1");
    let mut observed = observe_with(json!({"replicas": 2}), vec![old()]);
    observed.awaited = 1;
    check(&observed, "");
}

#[test]
fn guests_follow_their_vms() {
    let opportunistic = json!({"updateStrategy": {"opportunistic": {}}});
    let cases = [
        (json!({}), "web-2", "web-1", "restart web-0"),
        (json!({}), "web-2", "gone-1", "restart web-0"),
        (json!({}), "web-2", "other-1", "relabel web-0 web-2"),
        (json!({}), "web-2", "disks-1", "recreate web-0"),
        (json!({}), "other-1", "web-1", "restart web-0"),
        (json!({}), "web-2", "web-2", PRUNE_ALL),
        (
            opportunistic,
            "web-2",
            "web-1",
            "prune disks-1, prune other-1",
        ),
    ];
    for (spec, vm_revision, guest_revision, expected) in cases {
        for ready in ["True", "False"] {
            let member = started(0, vm_revision, guest_revision, ready);
            check(&observe_with(spec.clone(), vec![member]), expected);
        }
    }
    let mut leaving = guest(0, "web-1", "True");
    leaving.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    let member = Member {
        guest: Some(Arc::new(leaving)),
        ..member_of(vm(0))
    };
    let observed = observe_with(json!({}), vec![member]);
    check(&observed, "prune disks-1, prune other-1");
}

#[test]
fn guests_follow_a_changed_instance_type() {
    let of_type = |name: &str| {
        let mut template = vm_template("1Gi");
        template["spec"]["instancetype"] = json!({"name": name});
        template
    };
    let member = started(0, "large-1", "small-1", "True");
    let mut observed = observe_with(json!({"updateStrategy": {"unmanaged": {}}}), vec![member]);
    observed.revisions = BTreeMap::from([
        revision("small-1", &of_type("small")),
        revision("large-1", &of_type("large")),
    ]);
    let followed = update::guest_step(&observed, &observed.members[0]);
    assert!(matches!(followed, Some(Step::Restart(_))), "{followed:?}");
}

/// Sets the strategy of the VM, and the phase of its guest.
fn under(strategy: &str, phase: &str, requests: Value) -> Member {
    let mut vm = parsed_vm(vm(0), "web-2");
    vm["spec"]["runStrategy"] = strategy.into();
    vm["status"]["stateChangeRequests"] = requests;
    let mut guest = guest(0, "web-1", "True");
    guest.status.phase = phase.into();
    Member {
        guest: Some(Arc::new(guest)),
        ..member_of(vm)
    }
}

#[test]
fn guests_are_restarted_as_the_strategy_of_their_vm_permits() {
    let stop = json!([{"action": "Stop", "uid": "guest-0"}, {"action": "Start"}]);
    let other = json!([{"action": "Stop", "uid": "other"}]);
    let none = json!([]);
    let cases = [
        ("Always", "Running", &none, "restart web-0"),
        ("Always", "Succeeded", &none, "restart web-0"),
        ("Manual", "Running", &none, "restart web-0"),
        ("RerunOnFailure", "Running", &none, "restart web-0"),
        ("Once", "Running", &none, "restart web-0"),
        // They have ended, and are not to run again.
        ("Manual", "Succeeded", &none, ""),
        ("RerunOnFailure", "Failed", &none, ""),
        ("Once", "Succeeded", &none, ""),
        // Requests of users come first.
        ("Manual", "Running", &other, ""),
        ("Always", "Running", &other, "restart web-0"),
        ("Always", "Running", &stop, ""),
    ];
    for (strategy, phase, requests, expected) in cases {
        let member = under(strategy, phase, requests.clone());
        assert_eq!(
            member.starts_on_request(),
            ["Manual", "RerunOnFailure"].contains(&strategy)
        );
        let mut observed = observe_with(json!({}), vec![member]);
        observed.revisions.retain(|name, _| name == "web-1");
        check(&observed, expected);
    }
}

#[test]
fn vms_keep_their_template_until_they_get_other_disks() {
    let opportunistic = json!({"updateStrategy": {"opportunistic": {}}});
    let one = json!({"replicas": 2, "maxUnavailable": 1, "updateStrategy": {
        "proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}},
    }});
    let both = |ready: &str| {
        vec![
            started(0, "disks-1", "disks-1", ready),
            started(1, "disks-1", "disks-1", "True"),
        ]
    };
    check(&observe_with(one.clone(), both("True")), "recreate web-0");
    check(&observe_with(one, both("False")), "recreate web-0");
    // The guest never got the disks that the template does not have any more.
    let update = "keep revision, update web-0";
    let member = started(0, "disks-1", "other-1", "True");
    check(&observe_with(json!({}), vec![member]), update);
    let member = started(0, "disks-1", "disks-1", "True");
    check(&observe_with(opportunistic, vec![member]), update);

    // The guest is just being restarted.
    let mut restarting = parsed_vm(vm(0), "disks-1");
    restarting["status"]["created"] = true.into();
    let observed = observe_with(json!({}), vec![member_of(restarting)]);
    check(&observed, "prune other-1, prune web-1");
    let stopped = parsed_vm(vm(0), "disks-1");
    check(&observe_with(json!({}), vec![member_of(stopped)]), update);
    let mut once = parsed_vm(vm(0), "disks-1");
    once["spec"]["runStrategy"] = "Once".into();
    let mut ended = guest(0, "disks-1", "False");
    ended.status.phase = "Succeeded".into();
    let finished = Member {
        guest: Some(Arc::new(ended)),
        ..member_of(once)
    };
    check(&observe_with(json!({}), vec![finished]), update);
}

#[test]
fn only_so_many_guests_are_out_of_service_at_once() {
    let cases = [
        (json!(1), "TTTT", "restart web-0"),
        (json!(2), "TTTT", "restart web-0, restart web-1"),
        (json!("25%"), "TTTT", "restart web-0"),
        (json!("74%"), "TTTT", "restart web-0, restart web-1"),
        // At least one, or nothing would ever be updated.
        (json!("1%"), "TTTT", "restart web-0"),
        (
            json!(null),
            "TTTT",
            "restart web-0, restart web-1, restart web-2, restart web-3",
        ),
        // A guest that is down is free, and counts.
        (json!(1), "TFTT", "restart web-1"),
        (json!(2), "TFTT", "restart web-1, restart web-0"),
        (
            json!("wrong"),
            "TTFF",
            "restart web-2, restart web-3, restart web-0, restart web-1",
        ),
        // So does one whose VM is deleted, or that was restarted, though it still runs.
        (json!(1), "LTTT", ""),
        (json!(2), "LTTT", "restart web-1"),
        (json!(1), "RTTT", ""),
        (json!(2), "RTTT", "restart web-1"),
    ];
    for (limit, ready, expected) in cases {
        let order = json!({"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}});
        let spec = json!({"replicas": 4, "maxUnavailable": limit, "updateStrategy": order});
        let guests = ready.chars().zip(0..).map(|(ready, ordinal)| {
            let is_ready = if ready == 'F' { "False" } else { "True" };
            Member {
                is_leaving: ready == 'L',
                is_restarted: ready == 'R',
                ..started(ordinal, "web-2", "web-1", is_ready)
            }
        });
        let mut observed = observe_with(spec, guests.collect());
        observed.revisions.retain(|name, _| name == "web-1");
        check(&observed, expected);
    }
}

#[test]
fn revisions_in_use_are_not_pruned() {
    let all = vec![
        started(0, "web-2", "other-1", "True"),
        started(1, "disks-1", "disks-1", "True"),
    ];
    let spec = json!({"replicas": 2, "updateStrategy": {"unmanaged": {}}});
    check(&observe_with(spec, all), "prune web-1");
    let mut observed = observe_with(json!({}), members([0]));
    observed.revisions = BTreeMap::from([revision("web-2", &vm_template("1Gi"))]);
    check(&observed, "");
}
