//! What must hold of migrations and of guests that have moved.

use std::collections::BTreeMap;

use apimachinery::meta;
use kubevirt_api::{finalizers, labels};
use serde_json::{Value, json};

use super::{ensure, is_over, phase};
use crate::cluster::{Cluster, Id, Kind};
use crate::guests::Guests;

/// Finished migrations of one guest that may be left.
const MOST_KEPT: usize = 5;

pub(super) fn check_all(cluster: &Cluster, guests: &Guests) -> Result<(), String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for migration in cluster.list(Kind::Migration) {
        let name = meta::name(&migration);
        check(cluster, guests, &migration).map_err(|why| format!("migration {name}: {why}"))?;
        let vmi = migration["spec"]["vmiName"].as_str().unwrap_or_default();
        *counts.entry(vmi.to_owned()).or_default() += 1;
    }
    match counts.iter().find(|(_, count)| **count > MOST_KEPT) {
        Some((vmi, count)) => Err(format!("{count} migrations of {vmi} are left")),
        None => Ok(()),
    }
}

/// It has ended, and says truly how.
fn check(cluster: &Cluster, guests: &Guests, migration: &Value) -> Result<(), String> {
    ensure(!meta::is_deleting(migration), "is still being deleted")?;
    let phase_now = phase(migration);
    ensure(is_over(migration), format!("is {phase_now:?}"))?;
    let has_finalizer = meta::finalizers(migration).any(|one| one == finalizers::MIGRATION);
    ensure(!has_finalizer, "has its finalizer")?;
    let has_moved = guests.has_moved(meta::uid(migration));
    if phase_now == "Succeeded" {
        return ensure(has_moved, "has succeeded, but the guest did not move");
    }
    let name = migration["spec"]["vmiName"].as_str().unwrap_or_default();
    let vmi = cluster.get(&Id::new(Kind::Vmi, meta::namespace(migration), name));
    // If the guest ended after it had moved, the migration may not have seen that.
    let state = vmi.as_deref().map(|vmi| &vmi["status"]["migrationState"]);
    let is_last = state.is_some_and(|state| state["migrationUid"] == meta::uid(migration));
    let is_running = vmi.as_deref().is_some_and(|vmi| phase(vmi) == "Running");
    let is_false = has_moved && is_last && is_running;
    ensure(!is_false, "has failed, but the guest moved")
}

/// The status of a running VMI names the only pod of its guest.
pub(super) fn check_place(vmi: &Value, pod: &Value, guests: &Guests) -> Result<(), String> {
    let (status, uid) = (&vmi["status"], meta::uid(pod));
    let mut running = guests.running().into_iter();
    let runs_here = running.any(|(pod, owner)| pod == uid && owner == meta::uid(vmi));
    ensure(
        runs_here,
        format!("its guest is not in {}", meta::name(pod)),
    )?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let named = status["nodeName"].as_str().unwrap_or_default();
    ensure(named == node, format!("nodeName is {named}, not {node}"))?;
    let label = meta::label(vmi, labels::NODE_NAME).unwrap_or_default();
    ensure(label == node, format!("its label says {label}, not {node}"))?;
    let active = &status["activePods"];
    let expected = json!({uid: node});
    ensure(*active == expected, format!("activePods is {active}"))?;
    let state = &status["migrationState"];
    let is_complete = state["migrationUid"].is_null() || state["completed"] == true;
    ensure(is_complete, "a migration is in progress")?;
    let mark = status["evacuationNodeName"].as_str();
    ensure(
        mark.is_none(),
        format!("has to leave {}", mark.unwrap_or_default()),
    )
}
