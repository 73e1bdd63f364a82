//! Searching the devices of the permitted resources.

use std::{collections::BTreeMap, io, sync::Arc};

use model::DeviceAddress;

use super::{
    DeviceFiles, mediated, pci,
    selection::Permitted,
    usb::{self, KnownUnits},
};

/// What a pod is allocated as one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    /// The same for the same device after a reboot.
    pub(super) id: String,
    pub(super) addresses: Vec<DeviceAddress>,
    /// Its nodes below `/dev`.
    pub(super) nodes: Vec<String>,
    pub(super) numa: Option<u32>,
}

/// The devices of each resource, and why others are not offered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) units: BTreeMap<String, Vec<Unit>>,
    pub(super) problems: Vec<String>,
}

impl Found {
    pub(super) fn add(&mut self, resource: &str, unit: Unit) {
        let units = self.units.entry(resource.to_owned()).or_default();
        units.push(unit);
    }
}

/// Searches on a thread that may block.
pub(super) async fn search(
    files: &DeviceFiles,
    permitted: &Arc<[Permitted]>,
    known: &KnownUnits,
) -> io::Result<Found> {
    let (files, permitted, known) = (files.clone(), Arc::clone(permitted), known.clone());
    let searching = tokio::task::spawn_blocking(move || search_now(&files, &permitted, &known));
    searching.await.map_err(io::Error::other)?
}

/// A device belongs to the first resource that selects it.
pub(super) fn search_now(
    files: &DeviceFiles,
    permitted: &[Permitted],
    known: &KnownUnits,
) -> io::Result<Found> {
    let mut found = Found::default();
    pci::search(files, permitted, &mut found)?;
    mediated::search(files, permitted, &mut found)?;
    usb::search(files, permitted, known, &mut found)?;
    Ok(found)
}
