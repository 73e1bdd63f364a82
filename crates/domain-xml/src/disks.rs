//! Disks and the volumes behind them.

use std::collections::BTreeMap;

use kubevirt_api::disks::{self, DiskBus, DiskErrorPolicy, DriverCache, DriverIo, TrayState};

use crate::element::Element;
use crate::sources::{self, At, Source};
use crate::{DirectIo, Input, RenderError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Disk,
    /// Its commands go to the device as they are.
    Lun,
    CdRom,
}

#[derive(Debug)]
pub(crate) struct Disk<'a> {
    spec: &'a disks::Disk,
    kind: Kind,
    bus: DiskBus,
    /// Such as `vda`.
    target: String,
    /// Number of the target name on its bus, from 0.
    number: usize,
    source: Option<Source>,
    readonly: bool,
    cache: DriverCache,
    /// Virtio model name; only for that bus.
    model: Option<&'static str>,
    queues: Option<u32>,
}

pub(crate) fn of<'a>(input: &Input<'a>) -> Result<Vec<Disk<'a>>, RenderError> {
    let devices = &input.vmi.spec.domain.devices;
    let mut names = Names::reserve(input);
    let mut all = Vec::with_capacity(devices.disks.len());
    for (index, spec) in devices.disks.iter().enumerate() {
        all.push(disk(input, spec, index, &mut names)?);
    }
    Ok(all)
}

/// The device name of each disk in the guest, by the name of its volume, in the order of the VMI.
pub fn disk_targets(input: &Input<'_>) -> Result<Vec<(String, String)>, RenderError> {
    let named = |disk: Disk<'_>| (disk.spec.name.clone(), disk.target);
    Ok(of(input)?.into_iter().map(named).collect())
}

impl Disk<'_> {
    pub(crate) fn is_virtio(&self) -> bool {
        self.bus == DiskBus::Virtio
    }

    pub(crate) fn is_scsi(&self) -> bool {
        self.bus == DiskBus::Scsi
    }

    pub(crate) fn is_usb(&self) -> bool {
        self.bus == DiskBus::Usb
    }

    pub(crate) fn render(&self) -> Element {
        let (device, discard) = match self.kind {
            Kind::Disk => ("disk", Some("unmap")),
            Kind::Lun => ("lun", Some("unmap")),
            Kind::CdRom if self.source.is_none() => ("cdrom", Some("unmap")),
            Kind::CdRom => ("cdrom", None),
        };
        let source = self.source.as_ref();
        let driver = Element::new("driver")
            .attr("name", "qemu")
            .attr("type", source.map_or("raw", |source| source.format))
            .attr_if("cache", source.map(|_| &self.cache))
            .attr("error_policy", self.error_policy())
            .attr_if("io", self.io())
            .attr_if("discard", discard)
            .attr_if("queues", self.queues);
        let is_file = source.is_some_and(|source| matches!(source.at, At::File(_)));
        let source = source.map(|source| match &source.at {
            At::File(path) => Element::new("source").attr("file", path),
            At::Device(path) => Element::new("source").attr("dev", path),
        });
        let order = self
            .spec
            .boot_order
            .map(|order| Element::new("boot").attr("order", order));
        let serial = self
            .spec
            .serial
            .as_deref()
            .filter(|serial| !serial.is_empty());
        Element::new("disk")
            .attr("type", if is_file { "file" } else { "block" })
            .attr("device", device)
            .attr_if("model", self.model)
            .child(driver)
            .children(source)
            .child(self.render_target())
            .children(self.render_block_size())
            .children(self.readonly.then(|| Element::new("readonly")))
            .children((self.spec.shareable == Some(true)).then(|| Element::new("shareable")))
            .children(order)
            .children(serial.map(|serial| Element::new("serial").text(serial)))
            .alias(&self.spec.name)
            .children(self.is_scsi().then(|| self.render_scsi_address()))
    }

    fn render_target(&self) -> Element {
        let tray = self.spec.cdrom.as_ref().map(|cdrom| match cdrom.tray {
            Some(TrayState::Open) => "open",
            _ => "closed",
        });
        Element::new("target")
            .attr("bus", &self.bus)
            .attr("dev", &self.target)
            .attr_if("tray", tray)
    }

    fn render_block_size(&self) -> Option<Element> {
        let custom = self.spec.block_size.as_ref()?.custom.as_ref()?;
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

    /// A device that is opened past the page cache can do without threads.
    fn io(&self) -> Option<DriverIo> {
        let is_device = matches!(&self.source, Some(source) if matches!(source.at, At::Device(_)));
        let native = is_device && self.cache == DriverCache::None;
        let asked = self.spec.io.clone();
        asked.or_else(|| native.then_some(DriverIo::Native))
    }

    fn error_policy(&self) -> &str {
        let policy = self.spec.error_policy.as_ref();
        policy.map_or("stop", DiskErrorPolicy::as_str)
    }
}

fn disk<'a>(
    input: &Input<'a>,
    spec: &'a disks::Disk,
    index: usize,
    names: &mut Names,
) -> Result<Disk<'a>, RenderError> {
    let field = |rest: &str| format!("spec.domain.devices.disks[{index}]{rest}");
    refuse_unsupported(spec, &field)?;
    let (kind, bus, readonly) = match (&spec.disk, &spec.lun, &spec.cdrom) {
        (Some(disk), _, _) => (Kind::Disk, &disk.bus, disk.readonly == Some(true)),
        (None, Some(lun), _) => (Kind::Lun, &lun.bus, lun.readonly == Some(true)),
        (None, None, Some(cdrom)) => (Kind::CdRom, &cdrom.bus, cdrom.readonly != Some(false)),
        (None, None, None) => (Kind::Disk, &None, false),
    };
    let bus = bus.clone().unwrap_or(DiskBus::Sata);
    if !bus.is_known() {
        return Err(RenderError::invalid(
            field(".bus"),
            format!("there is no bus {bus}"),
        ));
    }
    let source = sources::of(input, &spec.name, &field)?;
    if source.is_none() && kind != Kind::CdRom {
        let problem = format!("there is no volume named {:?}", spec.name);
        return Err(RenderError::invalid(field(".name"), problem));
    }
    if kind == Kind::Lun && !matches!(&source, Some(source) if matches!(source.at, At::Device(_))) {
        let problem = "only a volume that is a block device takes SCSI commands";
        return Err(RenderError::invalid(field(".lun"), problem));
    }
    // What nobody may write to cannot be opened for writing.
    let readonly = readonly || source.as_ref().is_some_and(|source| source.is_read_only);
    let devices = &input.vmi.spec.domain.devices;
    let is_virtio = bus == DiskBus::Virtio;
    let (target, number) = names.next(&spec.name, is_virtio);
    let many_queues = is_virtio && devices.block_multi_queue == Some(true);
    Ok(Disk {
        kind,
        target,
        number,
        source,
        readonly,
        cache: cache(input, spec),
        model: is_virtio.then(|| crate::controllers::virtio_model(input.vmi)),
        queues: many_queues.then(|| crate::interfaces::vcpus(input.vmi)),
        bus,
        spec,
    })
}

fn refuse_unsupported(
    spec: &disks::Disk,
    field: &impl Fn(&str) -> String,
) -> Result<(), RenderError> {
    let address = spec
        .disk
        .as_ref()
        .and_then(|disk| disk.pci_address.as_ref());
    let block_size = spec.block_size.as_ref();
    let lun = spec.lun.as_ref();
    let uses = [
        (
            ".lun.reservation",
            lun.is_some_and(|lun| lun.reservation == Some(true)),
        ),
        (
            ".disk.pciAddress",
            address.is_some_and(|address| !address.is_empty()),
        ),
        (".dedicatedIOThread", spec.dedicated_io_thread == Some(true)),
        (
            ".changedBlockTracking",
            spec.changed_block_tracking == Some(true),
        ),
        (
            ".blockSize.matchVolume",
            block_size.is_some_and(|b| b.match_volume.is_some()),
        ),
    ];
    match uses.into_iter().find(|(_, used)| *used) {
        None => Ok(()),
        Some((rest, _)) => Err(RenderError::unsupported(field(rest))),
    }
}

fn cache(input: &Input<'_>, spec: &disks::Disk) -> DriverCache {
    if spec.shareable == Some(true) {
        return DriverCache::None;
    }
    let volume = input.facts.volumes.get(&spec.name);
    let direct_io = volume.map_or(input.facts.direct_io, |volume| volume.direct_io);
    match (&spec.cache, direct_io) {
        (Some(cache), _) => cache.clone(),
        (None, DirectIo::Supported) => DriverCache::None,
        (None, DirectIo::Unsupported) => DriverCache::Writethrough,
    }
}

/// Target names: `vda…` for virtio, `sda…` shared by the other buses. A name that the status
/// already shows for a volume is kept, and given to no other.
#[derive(Debug, Default)]
struct Names {
    kept: BTreeMap<String, String>,
    next_virtio: usize,
    next_other: usize,
}

impl Names {
    fn reserve(input: &Input<'_>) -> Self {
        let status = input.vmi.status.as_ref();
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
    fn target_letters_count_like_columns() {
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
