//! What must hold once nothing goes wrong any more: everything is as it is asked for, what is
//! said of it is true, and nothing is left over.

use std::collections::BTreeSet;

use apimachinery::meta;
use serde_json::Value;

use crate::cluster::{Cluster, Id, Kind};
use crate::guests::Guests;

/// Copies of specs that may be left of one VM: a start that was cut off leaves its own.
const MOST_REVISIONS: usize = 2;

/// Says what is not as it should be, if anything.
pub(crate) fn settled(cluster: &Cluster, guests: &Guests) -> Result<(), String> {
    let running: BTreeSet<String> = guests.running().into_iter().map(|(_, vmi)| vmi).collect();
    for vm in cluster.list(Kind::Vm) {
        vm_is_settled(cluster, &vm).map_err(|why| format!("vm {}: {why}", meta::name(&vm)))?;
    }
    for vmi in cluster.list(Kind::Vmi) {
        let name = meta::name(&vmi);
        vmi_is_settled(cluster, &vmi, &running).map_err(|why| format!("vmi {name}: {why}"))?;
    }
    for pod in cluster.list(Kind::Pod) {
        pod_is_settled(cluster, &pod).map_err(|why| format!("pod {}: {why}", meta::name(&pod)))?;
    }
    for set in cluster.list(Kind::ReplicaSet) {
        set_is_settled(cluster, &set).map_err(|why| format!("set {}: {why}", meta::name(&set)))?;
    }
    for revision in cluster.list(Kind::Revision) {
        owner_exists(cluster, &revision)
            .map_err(|why| format!("revision {}: {why}", meta::name(&revision)))?;
    }
    Ok(())
}

fn ensure(holds: bool, why: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why.into()) }
}

fn phase(vmi: &Value) -> &str {
    vmi["status"]["phase"].as_str().unwrap_or_default()
}

fn is_over(vmi: &Value) -> bool {
    matches!(phase(vmi), "Succeeded" | "Failed")
}

fn vm_is_settled(cluster: &Cluster, vm: &Value) -> Result<(), String> {
    ensure(!meta::is_deleting(vm), "is still being deleted")?;
    let status = &vm["status"];
    let requests = status["stateChangeRequests"].as_array();
    ensure(requests.is_none_or(Vec::is_empty), "requests are left")?;
    let vmi = cluster.get(&Id::new(Kind::Vmi, meta::namespace(vm), meta::name(vm)));
    let owned = |vmi: &Value| meta::owner_references(vmi).any(|owner| owner.uid == meta::uid(vm));
    ensure(
        vmi.as_deref().is_none_or(owned),
        "an instance of its name is another's",
    )?;
    let strategy = vm["spec"]["runStrategy"].as_str().unwrap_or_default();
    let standing = vmi.as_deref().map_or("absent", phase);
    let is_right = match strategy {
        "Always" => standing == "Running",
        "Halted" => standing == "absent",
        // One that was never started under this strategy is about to be.
        "RerunOnFailure" => {
            standing == "Running" || standing == "absent" && status["runStrategy"] == strategy
        }
        "Once" => matches!(standing, "Running" | "Succeeded" | "Failed"),
        _ => matches!(standing, "Running" | "absent" | "Succeeded" | "Failed"),
    };
    ensure(
        is_right,
        format!("{strategy}, but its instance is {standing}"),
    )?;

    let printable = status["printableStatus"].as_str().unwrap_or_default();
    let is_true = match standing {
        "Running" => printable == "Running",
        // One that kept failing and was deleted by hand stays down, and is still said to fail.
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
        format!("reads {printable}, but its instance is {standing}"),
    )?;
    let says = |member: &str| status[member].as_bool() == Some(true);
    ensure(says("created") == vmi.is_some(), "created is not true")?;
    ensure(
        says("ready") == (standing == "Running"),
        "ready is not true",
    )?;
    restart_is_told(cluster, vm, vmi.as_deref())?;
    let revisions = cluster.list(Kind::Revision);
    let own = revisions.iter().filter(|one| owned(one)).count();
    ensure(own <= MOST_REVISIONS, format!("{own} copies of its spec"))
}

fn restart_is_told(cluster: &Cluster, vm: &Value, vmi: Option<&Value>) -> Result<(), String> {
    let conditions = vm["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let is_told = conditions.any(|condition| condition["type"] == "RestartRequired");
    let name = vmi.and_then(|vmi| vmi["status"]["virtualMachineRevisionName"].as_str());
    let revision =
        name.and_then(|name| cluster.get(&Id::new(Kind::Revision, meta::namespace(vm), name)));
    let before = revision.map(|revision| revision["data"]["spec"]["template"].clone());
    let is_needed = before.is_some_and(|before| before != vm["spec"]["template"]);
    ensure(
        is_told == is_needed,
        format!("restart is needed: {is_needed}, told: {is_told}"),
    )
}

fn vmi_is_settled(
    cluster: &Cluster,
    vmi: &Value,
    running: &BTreeSet<String>,
) -> Result<(), String> {
    ensure(!meta::is_deleting(vmi), "is still being deleted")?;
    if meta::owner_references(vmi).next().is_some() {
        owner_exists(cluster, vmi)?;
    }
    let uid = meta::uid(vmi);
    let pods = cluster.list(Kind::Pod);
    let own = pods
        .iter()
        .filter(|pod| meta::owner_references(pod).any(|owner| owner.uid == uid))
        .count();
    if is_over(vmi) {
        return ensure(!running.contains(uid), "is over, but its guest runs");
    }
    ensure(own == 1, format!("is {} and has {own} pods", phase(vmi)))?;
    ensure(phase(vmi) == "Running", format!("is {}", phase(vmi)))?;
    ensure(running.contains(uid), "reads Running, but no guest runs")
}

fn pod_is_settled(cluster: &Cluster, pod: &Value) -> Result<(), String> {
    ensure(!meta::is_deleting(pod), "is still being deleted")?;
    owner_exists(cluster, pod)
}

/// Every owner is there, under its UID.
fn owner_exists(cluster: &Cluster, object: &Value) -> Result<(), String> {
    let mut owners = meta::owner_references(object).peekable();
    ensure(owners.peek().is_some(), "belongs to nobody")?;
    for owner in owners {
        let mut kinds = Kind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.facts().kind == owner.kind);
        let id = kind.map(|kind| Id::new(kind, meta::namespace(object), owner.name));
        let found = id.and_then(|id| cluster.get(&id));
        let is_there = found.is_some_and(|found| meta::uid(&found) == owner.uid);
        ensure(is_there, format!("its owner {} is gone", owner.name))?;
    }
    Ok(())
}

fn set_is_settled(cluster: &Cluster, set: &Value) -> Result<(), String> {
    ensure(!meta::is_deleting(set), "is still being deleted")?;
    let wanted = set["spec"]["replicas"].as_u64().unwrap_or(1);
    let vmis = cluster.list(Kind::Vmi);
    let own = vmis
        .iter()
        .filter(|vmi| meta::owner_references(vmi).any(|owner| owner.uid == meta::uid(set)));
    let count = u64::try_from(own.count()).unwrap_or(u64::MAX);
    ensure(
        count == wanted,
        format!("{count} members in place of {wanted}"),
    )?;
    for member in ["replicas", "readyReplicas"] {
        let said = set["status"][member].as_u64().unwrap_or(0);
        ensure(
            said == wanted,
            format!("{member} is {said} in place of {wanted}"),
        )?;
    }
    Ok(())
}
