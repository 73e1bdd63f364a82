//! What must hold after the faults have ended: the actual state matches the desired one, every
//! status is true, and nothing is left over.

mod migrations;
mod pool;

use std::collections::BTreeSet;

use apimachinery::meta;
use serde_json::Value;

use crate::cluster::{Cluster, Id, Kind};
use crate::guests::Guests;

/// Revisions that may be left of one VM: an interrupted start leaves its own.
const MOST_REVISIONS: usize = 2;

/// Fails with the first difference. `launcher` is the one that all guests are to have, if they follow updates.
pub(crate) fn converged(
    cluster: &Cluster,
    guests: &Guests,
    launcher: Option<&str>,
) -> Result<(), String> {
    let running: BTreeSet<String> = guests.running().into_iter().map(|(_, vmi)| vmi).collect();
    for vm in cluster.list(Kind::Vm) {
        check_vm(cluster, &vm).map_err(|why| format!("vm {}: {why}", meta::name(&vm)))?;
    }
    for vmi in cluster.list(Kind::Vmi) {
        let name = meta::name(&vmi);
        check_vmi(cluster, guests, &vmi, &running).map_err(|why| format!("vmi {name}: {why}"))?;
    }
    for pod in cluster.list(Kind::Pod) {
        check_pod(cluster, &pod).map_err(|why| format!("pod {}: {why}", meta::name(&pod)))?;
    }
    for set in cluster.list(Kind::ReplicaSet) {
        check_set(cluster, &set).map_err(|why| format!("set {}: {why}", meta::name(&set)))?;
    }
    migrations::check_all(cluster, guests)?;
    pool::check_all(cluster)?;
    if let Some(launcher) = launcher {
        check_launchers(cluster, launcher)?;
    }
    for revision in cluster.list(Kind::Revision) {
        check_owner(cluster, &revision)
            .map_err(|why| format!("revision {}: {why}", meta::name(&revision)))?;
    }
    Ok(())
}

fn ensure(holds: bool, why: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why.into()) }
}

fn phase(object: &Value) -> &str {
    object["status"]["phase"].as_str().unwrap_or_default()
}

fn is_over(object: &Value) -> bool {
    matches!(phase(object), "Succeeded" | "Failed")
}

fn check_vm(cluster: &Cluster, vm: &Value) -> Result<(), String> {
    ensure(!meta::is_deleting(vm), "is still being deleted")?;
    let status = &vm["status"];
    let requests = status["stateChangeRequests"].as_array();
    ensure(requests.is_none_or(Vec::is_empty), "requests are left")?;
    let vmi = cluster.get(&Id::new(Kind::Vmi, meta::namespace(vm), meta::name(vm)));
    let owned = |vmi: &Value| meta::owner_references(vmi).any(|owner| owner.uid == meta::uid(vm));
    ensure(
        vmi.as_deref().is_none_or(owned),
        "the VMI of its name belongs to another object",
    )?;
    let strategy = vm["spec"]["runStrategy"].as_str().unwrap_or_default();
    let phase_now = vmi.as_deref().map_or("absent", phase);
    let is_right = match strategy {
        "Always" => phase_now == "Running",
        "Halted" => phase_now == "absent",
        // A VM that was never started under this strategy is about to be.
        "RerunOnFailure" => {
            phase_now == "Running" || phase_now == "absent" && status["runStrategy"] == strategy
        }
        "Once" => matches!(phase_now, "Running" | "Succeeded" | "Failed"),
        _ => matches!(phase_now, "Running" | "absent" | "Succeeded" | "Failed"),
    };
    ensure(is_right, format!("{strategy}, but its VMI is {phase_now}"))?;

    let printable = status["printableStatus"].as_str().unwrap_or_default();
    let is_true = match phase_now {
        "Running" => printable == "Running",
        // A VM that kept failing and whose VMI a user deleted stays stopped with its last status.
        "absent" if strategy == "RerunOnFailure" => {
            matches!(printable, "Stopped" | "CrashLoopBackOff")
        }
        "absent" => printable == "Stopped",
        _ => !matches!(
            printable,
            "Running" | "Starting" | "Stopping" | "Terminating"
        ),
    };
    ensure(
        is_true,
        format!("is {printable}, but its VMI is {phase_now}"),
    )?;
    let flag = |member: &str| status[member].as_bool() == Some(true);
    ensure(flag("created") == vmi.is_some(), "created is not true")?;
    ensure(
        flag("ready") == (phase_now == "Running"),
        "ready is not true",
    )?;
    check_restart_condition(cluster, vm, vmi.as_deref())?;
    let revisions = cluster.list(Kind::Revision);
    let own = revisions.iter().filter(|one| owned(one)).count();
    ensure(own <= MOST_REVISIONS, format!("{own} revisions"))
}

fn check_restart_condition(
    cluster: &Cluster,
    vm: &Value,
    vmi: Option<&Value>,
) -> Result<(), String> {
    let conditions = vm["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let is_reported = conditions.any(|condition| condition["type"] == "RestartRequired");
    let name = vmi.and_then(|vmi| vmi["status"]["virtualMachineRevisionName"].as_str());
    let revision =
        name.and_then(|name| cluster.get(&Id::new(Kind::Revision, meta::namespace(vm), name)));
    let before = revision.map(|revision| revision["data"]["spec"]["template"]["spec"].clone());
    // A pool changes labels of the template, which never reach a running guest.
    let now = &vm["spec"]["template"]["spec"];
    let wanted = now["domain"]["cpu"]["sockets"].as_u64();
    let current = vmi.and_then(|vmi| vmi["status"]["currentCPUTopology"]["sockets"].as_u64());
    let is_other = before
        .as_ref()
        .is_some_and(|before| without_processors(before) != without_processors(now));
    // A guest cannot lose processors.
    let is_running = vmi.is_some_and(|vmi| phase(vmi) == "Running");
    let is_needed = is_other || is_running && wanted < current;
    if !is_running && before.is_some_and(|before| before != *now) {
        // A guest that has ended may have got them before.
        return ensure(is_reported || !is_other, "a restart is not reported");
    }
    if is_running && !is_needed {
        ensure(
            wanted == current,
            format!("has {current:?} sockets instead of {wanted:?}"),
        )?;
    }
    ensure(
        is_reported == is_needed,
        format!("restart needed: {is_needed}, reported: {is_reported}"),
    )
}

/// A guest's spec without what it follows as it runs.
fn without_processors(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(processors) = spec.pointer_mut("/domain/cpu") {
        processors["sockets"] = Value::Null;
    }
    spec
}

fn check_vmi(
    cluster: &Cluster,
    guests: &Guests,
    vmi: &Value,
    running: &BTreeSet<String>,
) -> Result<(), String> {
    ensure(!meta::is_deleting(vmi), "is still being deleted")?;
    if meta::owner_references(vmi).next().is_some() {
        check_owner(cluster, vmi)?;
    }
    let uid = meta::uid(vmi);
    let pods = cluster.list(Kind::Pod);
    let own = pods
        .iter()
        .filter(|pod| meta::owner_references(pod).any(|owner| owner.uid == uid));
    let own: Vec<_> = own.collect();
    let count = own.len();
    if is_over(vmi) {
        ensure(count <= 1, format!("has ended and has {count} pods"))?;
        return ensure(!running.contains(uid), "has ended, but its guest runs");
    }
    let [pod] = &own[..] else {
        return Err(format!("is {} and has {count} pods", phase(vmi)));
    };
    ensure(phase(vmi) == "Running", format!("is {}", phase(vmi)))?;
    ensure(running.contains(uid), "is Running, but no guest runs")?;
    migrations::check_place(vmi, pod, guests)
}

/// All pods of guests that run have the launcher.
fn check_launchers(cluster: &Cluster, launcher: &str) -> Result<(), String> {
    for pod in cluster.list(Kind::Pod).iter().filter(|pod| !is_over(pod)) {
        let containers = pod["spec"]["containers"].as_array();
        let mut containers = containers.into_iter().flatten();
        let has_it = containers.any(|one| one["name"] == "compute" && one["image"] == launcher);
        if !has_it {
            let name = meta::name(pod);
            let status = status_of_owner(cluster, pod);
            let status = status.as_deref().unwrap_or("gone");
            return Err(format!(
                "pod {name} does not have {launcher}; its VMI: {status}"
            ));
        }
    }
    let kind = Kind::named("KubeVirt");
    for one in kind.map(|kind| cluster.list(kind)).unwrap_or_default() {
        let count = &one["status"]["outdatedVirtualMachineInstanceWorkloads"];
        ensure(
            count.as_u64().unwrap_or(0) == 0,
            format!("{count} guests are outdated"),
        )?;
    }
    Ok(())
}

/// The status of the pod's VMI, to find out why it did not follow.
fn status_of_owner(cluster: &Cluster, pod: &Value) -> Option<String> {
    let uid = meta::owner_references(pod).next()?.uid;
    let vmis = cluster.list(Kind::Vmi);
    let vmi = vmis.iter().find(|vmi| meta::uid(vmi) == uid)?;
    Some(vmi["status"].to_string())
}

fn check_pod(cluster: &Cluster, pod: &Value) -> Result<(), String> {
    ensure(!meta::is_deleting(pod), "is still being deleted")?;
    check_owner(cluster, pod)
}

/// Every owner exists, with its UID.
fn check_owner(cluster: &Cluster, object: &Value) -> Result<(), String> {
    let mut owners = meta::owner_references(object).peekable();
    ensure(owners.peek().is_some(), "has no owner")?;
    for owner in owners {
        let kind = Kind::named(owner.kind);
        let id = kind.map(|kind| Id::new(kind, meta::namespace(object), owner.name));
        let found = id.and_then(|id| cluster.get(&id));
        let is_there = found.is_some_and(|found| meta::uid(&found) == owner.uid);
        ensure(is_there, format!("its owner {} is gone", owner.name))?;
    }
    Ok(())
}

fn check_set(cluster: &Cluster, set: &Value) -> Result<(), String> {
    ensure(!meta::is_deleting(set), "is still being deleted")?;
    let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1);
    let vmis = cluster.list(Kind::Vmi);
    let own = vmis
        .iter()
        .filter(|vmi| meta::owner_references(vmi).any(|owner| owner.uid == meta::uid(set)));
    let count = u64::try_from(own.count()).unwrap_or(u64::MAX);
    ensure(
        count == wanted,
        format!("{count} members instead of {wanted}"),
    )?;
    for member in ["replicas", "readyReplicas"] {
        let reported = set["status"][member].as_u64().unwrap_or(0);
        ensure(
            reported == wanted,
            format!("{member} is {reported} instead of {wanted}"),
        )?;
    }
    Ok(())
}
