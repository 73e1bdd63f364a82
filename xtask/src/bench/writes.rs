//! How often objects are written in a start: what a watch shows between creation and the end of a
//! window after Running.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::{
    sightings::{Kind, Sighting, Sightings},
    starts::Start,
};

/// Writes that follow the start belong to it.
const WINDOW: Duration = Duration::from_secs(5);
/// How our components call themselves as writers.
const OURS: &str = "virt-";

/// Writes of one start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Writes {
    /// To the VMI by anybody, its creation aside.
    pub(super) vmi: u64,
    /// To the pod by our components, its creation aside.
    pub(super) pod: u64,
}

/// Waits for the end of the window and counts.
pub(super) async fn of_start(sightings: &Sightings, start: &Start) -> Result<Writes> {
    let end = start.running + WINDOW;
    tokio::time::sleep_until(end.into()).await;
    let seen = sightings.of(&start.name);
    let history = |kind: Kind| -> Vec<&Sighting> {
        let ours = seen.iter().filter(|one| one.kind == kind);
        ours.filter(|one| is_in(one, end)).collect()
    };
    let versions: BTreeSet<&str> = history(Kind::Vmi)
        .iter()
        .map(|one| one.version.as_str())
        .collect();
    let vmi = versions.len().checked_sub(1).context("no VMI was seen")?;
    let pods = history(Kind::Pod);
    let by_us = pods.windows(2).filter(|pair| match pair {
        [before, after] => ours(before) != ours(after),
        _ => false,
    });
    Ok(Writes {
        vmi: vmi as u64,
        pod: by_us.count() as u64,
    })
}

fn is_in(one: &Sighting, end: Instant) -> bool {
    one.at <= end && !one.is_gone
}

/// What the object notes of our components' writes.
fn ours(one: &Sighting) -> Vec<&(String, serde_json::Value)> {
    let all = one.managers.iter();
    all.filter(|(name, _)| name.starts_with(OURS)).collect()
}
