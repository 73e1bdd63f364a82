//! Disks and the volumes behind them.

use std::collections::BTreeMap;

use kubevirt_api::disks::{DiskErrorPolicy, DriverCache, DriverIo};
use model::{Bus, PciAddress, Target, VolumeSource, paths};

use crate::element::Element;
use crate::io_threads::{Assigned, IoThreads};
use crate::layout::{self, Address};
use crate::sources::{self, Format, Location, Source};
use crate::{Allocation, BlockSizes, DirectIo, Input, Provisioning, RenderError, virtio};

#[derive(Debug)]
pub(crate) struct Disk<'a> {
    parsed: model::Disk<'a>,
    /// Name in the guest, such as `vda`.
    target: String,
    /// Number of the target name on its bus, from 0.
    number: usize,
    source: Option<Source>,
    is_read_only: bool,
    cache: DriverCache,
    provisioning: Provisioning,
    allocation: Allocation,
    /// Model of a virtio disk.
    model: Option<&'static str>,
    queues: Option<u64>,
    io_threads: Option<Assigned>,
    iommu: Option<&'static str>,
    /// The address that the user gave.
    address: Option<PciAddress>,
    blocks: Option<BlockSizes>,
}

pub(crate) fn of<'a>(input: &Input<'a>, threads: &IoThreads) -> Result<Vec<Disk<'a>>, RenderError> {
    let disks = &input.guest.disks;
    let mut names = Names::reserve(input);
    let mut all = Vec::with_capacity(disks.len());
    let mut threads = threads.disks.iter().copied();
    for disk in disks {
        let resolved = resolve(input, *disk, &mut names)?;
        all.push(Disk {
            io_threads: threads.next().flatten(),
            ..resolved
        });
    }
    Ok(all)
}

/// The device name of each disk in the guest, by the name of its volume, in the order of the VMI.
pub fn disk_targets(input: &Input<'_>) -> Result<Vec<(String, String)>, RenderError> {
    let named = |disk: Disk<'_>| (disk.parsed.name().to_owned(), disk.target);
    let disks = of(input, &IoThreads::default())?;
    Ok(disks.into_iter().map(named).collect())
}

/// A disk for a guest that runs already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotDisk {
    /// The device name in the guest.
    pub target: String,
    pub xml: String,
    /// The file or device; `None` for a drive without a medium.
    pub source: Option<String>,
}

/// Renders the disk of a volume for a guest that runs already; libvirt chooses its PCI address. The medium
/// of a drive goes into a drive that is otherwise as at the guest's start.
pub fn hot_disk(input: &Input<'_>, volume: &str) -> Result<HotDisk, RenderError> {
    let disks = of(input, &IoThreads::default())?;
    let disk = disks.into_iter().find(|disk| disk.parsed.name() == volume);
    let disk = disk.ok_or_else(|| RenderError::missing(format!("disk {volume}")))?;
    if disk.parsed.spec.dedicated_io_thread == Some(true) {
        let problem = "a disk gets a thread of its own only at the start of its guest";
        return Err(RenderError::invalid(
            disk.parsed.field("dedicatedIOThread"),
            problem,
        ));
    }
    let medium = disk.source.as_ref();
    let driven = match disk.parsed.target {
        Target::CdRom { .. } => None,
        Target::Disk | Target::Lun { .. } => medium,
    };
    let source = medium.map(|source| match &source.location {
        Location::File(path) | Location::Device(path) => path.clone(),
    });
    Ok(HotDisk {
        xml: disk.render_with(None, driven, medium).to_xml(),
        target: disk.target,
        source,
    })
}

/// `addresses` are those of the disks that need one, in order.
pub(crate) fn render(disks: &[Disk<'_>], addresses: &[Option<Address>]) -> Vec<Element> {
    let mut addresses = addresses.iter().copied();
    let rendered = disks.iter().map(|disk| {
        let address = if disk.needs_address() {
            addresses.next().flatten()
        } else {
            None
        };
        disk.render(address)
    });
    rendered.collect()
}

impl Disk<'_> {
    pub(crate) fn is_virtio(&self) -> bool {
        self.parsed.bus == Bus::Virtio
    }

    /// Whether the layout gives it a PCI address.
    pub(crate) fn needs_address(&self) -> bool {
        self.is_virtio() && self.address.is_none()
    }

    /// The PCI address that the user gave.
    pub(crate) fn taken_address(&self) -> Option<PciAddress> {
        self.address
    }

    pub(crate) fn is_scsi(&self) -> bool {
        self.parsed.bus == Bus::Scsi
    }

    pub(crate) fn is_usb(&self) -> bool {
        self.parsed.bus == Bus::Usb
    }

    fn render(&self, address: Option<Address>) -> Element {
        let source = self.source.as_ref();
        self.render_with(address, source, source)
    }

    /// `driven` is the source for which the driver is configured.
    fn render_with(
        &self,
        address: Option<Address>,
        driven: Option<&Source>,
        source: Option<&Source>,
    ) -> Element {
        let discard = match self.provisioning {
            Provisioning::Thin => Some("unmap"),
            Provisioning::Thick => None,
        };
        let (device, discard) = match self.parsed.target {
            Target::Disk => ("disk", discard),
            Target::Lun { .. } => ("lun", discard),
            Target::CdRom { .. } if driven.is_none() => ("cdrom", Some("unmap")),
            Target::CdRom { .. } => ("cdrom", None),
        };
        let driver = Element::new("driver")
            .attr("name", "qemu")
            .attr(
                "type",
                driven.map_or(Format::Raw, |source| source.format).as_str(),
            )
            .attr_if("cache", driven.map(|_| &self.cache))
            .attr("error_policy", self.error_policy())
            .attr_if("io", self.io(driven))
            .attr_if("discard", discard)
            .attr_if("queues", self.queues)
            .attr_if("iommu", self.iommu);
        let driver = match self.io_threads {
            Some(threads) => threads.add_to(driver),
            None => driver,
        };
        let is_file = source.is_some_and(|source| matches!(source.location, Location::File(_)));
        let source = source.map(|source| match &source.location {
            Location::File(path) => Element::new("source").attr("file", path),
            Location::Device(path) => Element::new("source").attr("dev", path),
        });
        let source = source.map(|source| source.children(self.reservations()));
        let spec = self.parsed.spec;
        let order = spec
            .boot_order
            .map(|order| Element::new("boot").attr("order", order));
        let serial = spec.serial.as_deref().filter(|serial| !serial.is_empty());
        Element::new("disk")
            .attr("type", if is_file { "file" } else { "block" })
            .attr("device", device)
            .attr_if("model", self.model)
            .child(driver)
            .children(source)
            .child(self.render_target())
            .children(self.render_block_size())
            .children(self.is_read_only.then(|| Element::new("readonly")))
            .children((spec.shareable == Some(true)).then(|| Element::new("shareable")))
            .children(order)
            .children(serial.map(|serial| Element::new("serial").text(serial)))
            .alias(self.parsed.name())
            .children(self.is_scsi().then(|| self.render_scsi_address()))
            .children(address.map(Address::render))
            .children(self.address.map(layout::render_taken))
    }

    /// The helper that makes the guest's persistent reservations.
    fn reservations(&self) -> Option<Element> {
        let is_reserving = self.parsed.target == Target::Lun { is_reserving: true };
        is_reserving.then(|| {
            let socket = Element::new("source")
                .attr("type", "unix")
                .attr("path", paths::RESERVATIONS_SOCKET)
                .attr("mode", "client");
            Element::new("reservations")
                .attr("managed", "no")
                .child(socket)
        })
    }

    fn render_target(&self) -> Element {
        let tray = match self.parsed.target {
            Target::CdRom { is_tray_open: true } => Some("open"),
            Target::CdRom {
                is_tray_open: false,
            } => Some("closed"),
            Target::Disk | Target::Lun { .. } => None,
        };
        Element::new("target")
            .attr("bus", self.parsed.bus.as_str())
            .attr("dev", &self.target)
            .attr_if("tray", tray)
    }

    fn render_block_size(&self) -> Option<Element> {
        if let Some(blocks) = self.blocks {
            let discard = (blocks.discard > 0).then_some(blocks.discard);
            return Some(
                Element::new("blockio")
                    .attr("logical_block_size", blocks.logical)
                    .attr("physical_block_size", blocks.physical)
                    .attr_if("discard_granularity", discard),
            );
        }
        let custom = self.parsed.spec.block_size.as_ref()?.custom.as_ref()?;
        Some(
            Element::new("blockio")
                .attr_if("logical_block_size", custom.logical)
                .attr_if("physical_block_size", custom.physical)
                .attr_if("discard_granularity", custom.discard_granularity),
        )
    }

    fn render_scsi_address(&self) -> Element {
        Element::new("address")
            .attr("type", "drive")
            .attr("controller", 0)
            .attr("bus", 0)
            .attr("unit", self.number)
    }

    /// A device, or an image without holes, that bypasses the page cache needs no threads.
    fn io(&self, source: Option<&Source>) -> Option<DriverIo> {
        let is_full = source.is_some() && self.allocation == Allocation::Full;
        let is_allocated = is_device(source) || is_full;
        let is_native = is_allocated && self.cache == DriverCache::None;
        let given = self.parsed.spec.io.clone();
        given.or_else(|| is_native.then_some(DriverIo::Native))
    }

    fn error_policy(&self) -> &str {
        let policy = self.parsed.spec.error_policy.as_ref();
        policy.map_or("stop", DiskErrorPolicy::as_str)
    }
}

fn resolve<'a>(
    input: &Input<'a>,
    disk: model::Disk<'a>,
    names: &mut Names,
) -> Result<Disk<'a>, RenderError> {
    if let Bus::Unknown(bus) = disk.bus {
        return Err(RenderError::invalid(
            disk.field("bus"),
            &format!("there is no bus {bus}"),
        ));
    }
    let source = sources::of(input, &disk)?;
    match disk.target {
        Target::Disk | Target::Lun { .. } if source.is_none() => {
            let problem = format!("there is no volume named {:?}", disk.name());
            return Err(RenderError::invalid(disk.field("name"), &problem));
        }
        Target::Lun { .. } if !is_device(source.as_ref()) => {
            let problem = "only a volume that is a block device takes SCSI commands";
            return Err(RenderError::invalid(disk.field("lun"), problem));
        }
        Target::Disk | Target::Lun { .. } | Target::CdRom { .. } => {}
    }
    // QEMU fails to open a read-only source for writing.
    let is_read_only =
        disk.is_read_only || source.as_ref().is_some_and(|source| source.is_read_only);
    let devices = &input.guest.vmi.spec.domain.devices;
    let is_virtio = disk.bus == Bus::Virtio;
    let (target, number) = names.next(disk.name(), is_virtio);
    let volume = input.facts.volumes.get(disk.name());
    let is_multi_queue = is_virtio && devices.block_multi_queue == Some(true);
    Ok(Disk {
        target,
        number,
        source,
        is_read_only,
        cache: cache(input, disk.spec),
        provisioning: volume.map_or(Provisioning::Thin, |volume| volume.provisioning),
        allocation: volume.map_or(Allocation::Sparse, |volume| volume.allocation),
        model: is_virtio.then(|| virtio::model(input.guest)),
        queues: is_multi_queue.then(|| input.guest.topology.vcpus()),
        io_threads: None,
        iommu: is_virtio.then(|| virtio::iommu(input.guest)).flatten(),
        address: pci_address(&disk)?,
        blocks: matched_blocks(input, disk.spec),
        parsed: disk,
    })
}

fn pci_address(disk: &model::Disk<'_>) -> Result<Option<PciAddress>, RenderError> {
    let target = disk.spec.disk.as_ref();
    let text = target.and_then(|target| target.pci_address.as_deref());
    layout::taken(text, || disk.field("disk.pciAddress"))
}

/// The blocks of the disk's volume, if the guest is to see them.
fn matched_blocks(input: &Input<'_>, spec: &kubevirt_api::disks::Disk) -> Option<BlockSizes> {
    let matches = spec.block_size.as_ref()?.match_volume.as_ref()?;
    let volume = input.facts.volumes.get(&spec.name);
    let own = BlockSizes {
        logical: input.facts.block_size,
        physical: input.facts.block_size,
        discard: 0,
    };
    (matches.enabled != Some(false)).then(|| volume.map_or(own, |volume| volume.blocks))
}

fn is_device(source: Option<&Source>) -> bool {
    source.is_some_and(|source| matches!(source.location, Location::Device(_)))
}

fn cache(input: &Input<'_>, spec: &kubevirt_api::disks::Disk) -> DriverCache {
    if spec.shareable == Some(true) {
        return DriverCache::None;
    }
    let volume = input.facts.volumes.get(&spec.name);
    let direct_io = volume.map_or(input.facts.direct_io, |volume| volume.direct_io);
    let source = input.guest.volume(&spec.name).map(|volume| volume.source);
    match (&spec.cache, direct_io) {
        (Some(cache), _) => cache.clone(),
        // Its directory is in memory, where not every kernel can bypass the page cache.
        (None, _) if source == Some(VolumeSource::DownwardMetrics) => DriverCache::Writethrough,
        (None, DirectIo::Supported) => DriverCache::None,
        (None, DirectIo::Unsupported) => DriverCache::Writethrough,
    }
}

/// Target names: `vda…` for virtio, `sda…` shared by the other buses. A volume keeps the name that the
/// status already shows, and no other volume gets it.
#[derive(Debug, Default)]
struct Names {
    kept: BTreeMap<String, String>,
    next_virtio: usize,
    next_other: usize,
}

impl Names {
    fn reserve(input: &Input<'_>) -> Self {
        let status = input.guest.vmi.status.as_ref();
        let volumes = status.map_or(&[][..], |status| &status.volume_status);
        let kept = volumes
            .iter()
            .filter(|volume| !volume.target.is_empty())
            .map(|volume| (volume.name.clone(), volume.target.clone()))
            .collect();
        Self {
            kept,
            ..Self::default()
        }
    }

    fn next(&mut self, volume: &str, is_virtio: bool) -> (String, usize) {
        let prefix = if is_virtio { "vd" } else { "sd" };
        if let Some(kept) = self.kept.get(volume)
            && let Some(number) = kept.strip_prefix(prefix).and_then(number_of)
        {
            return (kept.clone(), number);
        }
        loop {
            let counter = if is_virtio {
                &mut self.next_virtio
            } else {
                &mut self.next_other
            };
            let number = *counter;
            *counter += 1;
            let name = format!("{prefix}{}", letters(number));
            if !self.kept.values().any(|kept| *kept == name) {
                return (name, number);
            }
        }
    }
}

/// 0 is `a`, 25 is `z`, 26 is `aa`.
fn letters(number: usize) -> String {
    let mut left = number + 1;
    let mut text = Vec::new();
    while left > 0 {
        left -= 1;
        text.push(char::from(b"abcdefghijklmnopqrstuvwxyz"[left % 26]));
        left /= 26;
    }
    text.iter().rev().collect()
}

fn number_of(letters: &str) -> Option<usize> {
    if letters.is_empty() || letters.len() > 3 {
        return None;
    }
    let mut number = 0_usize;
    for byte in letters.bytes() {
        if !byte.is_ascii_lowercase() {
            return None;
        }
        number = number * 26 + usize::from(byte - b'a') + 1;
    }
    Some(number - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_letters_count_like_spreadsheet_columns() {
        for (number, text) in [
            (0, "a"),
            (25, "z"),
            (26, "aa"),
            (51, "az"),
            (52, "ba"),
            (702, "aaa"),
        ] {
            assert_eq!(letters(number), text);
            assert_eq!(number_of(text), Some(number));
        }
        assert_eq!(number_of("A"), None);
    }
}
