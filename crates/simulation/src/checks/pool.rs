//! What must hold of a pool.

use apimachinery::meta;
use serde_json::Value;

use super::ensure;
use crate::cluster::{Cluster, Kind};

pub(super) fn check_all(cluster: &Cluster) -> Result<(), String> {
    let Some(kind) = Kind::named("VirtualMachinePool") else {
        return Ok(());
    };
    for pool in cluster.list(kind) {
        check(cluster, &pool).map_err(|why| format!("pool {}: {why}", meta::name(&pool)))?;
    }
    Ok(())
}

/// It has as many VMs as it should, like its template, and says so.
fn check(cluster: &Cluster, pool: &Value) -> Result<(), String> {
    ensure(!meta::is_deleting(pool), "is still being deleted")?;
    let wanted = pool["spec"]["replicas"].as_u64().unwrap_or(1);
    let vms = cluster.list(Kind::Vm);
    let own = vms
        .iter()
        .filter(|vm| meta::owner_references(vm).any(|owner| owner.uid == meta::uid(pool)));
    let own: Vec<_> = own.collect();
    let count = u64::try_from(own.len()).unwrap_or(u64::MAX);
    ensure(count == wanted, format!("{count} VMs instead of {wanted}"))?;
    for member in ["replicas", "readyReplicas"] {
        let reported = pool["status"][member].as_u64().unwrap_or(0);
        ensure(
            reported == wanted,
            format!("{member} is {reported} instead of {wanted}"),
        )?;
    }
    let memory = |template: &Value| template["spec"]["domain"]["memory"]["guest"].clone();
    let expected = memory(&pool["spec"]["virtualMachineTemplate"]["spec"]["template"]);
    for vm in own {
        let found = memory(&vm["spec"]["template"]);
        ensure(
            found == expected,
            format!("{} has {found} instead of {expected}", meta::name(vm)),
        )?;
    }
    Ok(())
}
