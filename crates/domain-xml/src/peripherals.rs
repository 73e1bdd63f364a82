//! Smaller devices: inputs, entropy, balloon, watchdog, sound, panic notifier.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::devices::WatchdogAction;
use kubevirt_api::devices::{Devices, Input as InputDevice, InputBus, Watchdog};
use model::{Architecture, Tpm};

use crate::element::Element;
use crate::layout::{self, Address, Layout};
use crate::{Input, RenderError, virtio};

#[derive(Debug)]
pub(crate) struct Peripherals<'a> {
    devices: &'a Devices,
    model: &'static str,
    balloon_stats_seconds: u32,
    free_page_reporting: bool,
    architecture: Architecture<'a>,
    driver: Option<Element>,
    tpm: Option<Tpm>,
    /// The guest's address on the vsock, if it has one.
    vsock: Option<u32>,
}

pub(crate) fn of<'a>(input: &Input<'a>) -> Result<Peripherals<'a>, RenderError> {
    let annotations = input.guest.vmi.metadata.annotations.as_ref();
    let disabled = annotations
        .and_then(|all| all.get("kubevirt.io/free-page-reporting-disabled"))
        .is_some_and(|value| value == "true");
    Ok(Peripherals {
        vsock: vsock_address(input.guest.vmi)?,
        devices: &input.guest.vmi.spec.domain.devices,
        model: virtio::model(input.guest),
        balloon_stats_seconds: input.facts.balloon_stats_seconds,
        free_page_reporting: input.facts.free_page_reporting
            && !disabled
            && !is_high_performance(input),
        architecture: input.guest.architecture,
        driver: virtio::driver(input.guest),
        tpm: input.guest.tpm(),
    })
}

/// virt-controller gives each guest an address that no other guest has.
fn vsock_address(vmi: &VirtualMachineInstance) -> Result<Option<u32>, RenderError> {
    if vmi.spec.domain.devices.autoattach_vsock != Some(true) {
        return Ok(None);
    }
    let address = vmi.status.as_ref().and_then(|status| status.vsock_cid);
    address.ok_or(RenderError::NoVsockAddress).map(Some)
}

/// Whether memory that the guest gives back would cost it time later.
fn is_high_performance(input: &Input<'_>) -> bool {
    let guest = input.guest;
    guest.has_dedicated_cpus() || guest.page_size().is_some() || guest.is_realtime()
}

impl Peripherals<'_> {
    pub(crate) fn has_usb(&self) -> bool {
        let mut inputs = self.devices.inputs.iter();
        inputs.any(|input| !is_virtio(input)) || self.devices.client_passthrough.is_some()
    }

    /// Adds the devices that need a PCI address.
    pub(crate) fn count(&self, all: &mut layout::Devices) {
        let inputs = self.devices.inputs.iter();
        all.inputs = inputs.filter(|input| is_virtio(input)).count();
        all.vsocks = usize::from(self.vsock.is_some());
        all.entropy_sources = usize::from(self.devices.rng.is_some());
        all.balloons = usize::from(self.has_balloon());
        let watchdog = self.devices.watchdog.as_ref();
        let has_watchdog = watchdog.is_some_and(|watchdog| watchdog.i6300esb.is_some());
        let sound = self.devices.sound.as_ref();
        let has_card = sound.is_some_and(|sound| sound.model.as_deref() == Some("ac97"));
        all.conventional = usize::from(has_watchdog) + usize::from(has_card);
    }

    pub(crate) fn render(&self, layout: &Layout) -> Vec<Element> {
        let devices = self.devices;
        let mut addresses = layout.inputs.iter().copied();
        let inputs = devices.inputs.iter().map(|device| {
            let address = if is_virtio(device) {
                addresses.next().flatten()
            } else {
                None
            };
            input(device).children(address.map(Address::render))
        });
        let mut all: Vec<Element> = inputs.collect();
        all.extend(self.default_inputs());
        let entropy = layout.entropy.map(Address::render);
        all.extend(devices.rng.as_ref().map(|_| self.rng().children(entropy)));
        all.extend(devices.watchdog.as_ref().and_then(watchdog));
        all.extend(self.tpm.map(tpm));
        all.extend(devices.sound.as_ref().map(|sound| {
            let model = sound.model.as_deref().filter(|model| !model.is_empty());
            Element::new("sound")
                .attr("model", model.unwrap_or("ich9"))
                .alias(&sound.name)
        }));
        all.extend(
            devices
                .panic_devices
                .iter()
                .map(|panic| Element::new("panic").attr_if("model", panic.model.as_ref())),
        );
        all.extend(self.vsock.map(|address| {
            let cid = Element::new("cid")
                .attr("auto", "no")
                .attr("address", address);
            Element::new("vsock")
                .attr("model", self.model)
                .child(cid)
                .children(self.driver.clone())
                .children(layout.vsock.map(Address::render))
        }));
        all.push(self.balloon().children(layout.balloon.map(Address::render)));
        all
    }

    fn has_balloon(&self) -> bool {
        self.devices.autoattach_mem_balloon != Some(false)
    }

    /// Inputs for the screen of a machine that has none built in.
    fn default_inputs(&self) -> Vec<Element> {
        if self.devices.autoattach_graphics_device == Some(false) {
            return Vec::new();
        }
        let new = |kind: &str, bus: &str| Element::new("input").attr("type", kind).attr("bus", bus);
        let mut given = self.devices.inputs.iter();
        match self.architecture {
            Architecture::Arm64 => {
                let has_tablet = given.any(|input| input.type_.as_str() == "tablet");
                let tablet = (!has_tablet).then(|| new("tablet", "usb"));
                tablet.into_iter().chain([new("keyboard", "usb")]).collect()
            }
            Architecture::S390x => vec![new("keyboard", "virtio")],
            Architecture::Amd64 | Architecture::Unknown(_) => Vec::new(),
        }
    }

    fn rng(&self) -> Element {
        let backend = Element::new("backend")
            .attr("model", "random")
            .text("/dev/urandom");
        Element::new("rng")
            .attr("model", self.model)
            .child(backend)
            .children(self.driver.clone())
    }

    fn balloon(&self) -> Element {
        // Explicit, since libvirt adds a balloon by default.
        if !self.has_balloon() {
            return Element::new("memballoon").attr("model", "none");
        }
        let reporting = if self.free_page_reporting {
            "on"
        } else {
            "off"
        };
        let period = self.balloon_stats_seconds;
        let stats = (period > 0).then(|| Element::new("stats").attr("period", period));
        Element::new("memballoon")
            .attr("model", self.model)
            .attr("freePageReporting", reporting)
            .children(stats)
            .children(self.driver.clone())
    }
}

fn is_virtio(input: &InputDevice) -> bool {
    input.bus == Some(InputBus::Virtio)
}

fn input(device: &InputDevice) -> Element {
    let (bus, model) = if is_virtio(device) {
        ("virtio", Some("virtio"))
    } else {
        ("usb", None)
    };
    let kind = device.type_.as_str();
    Element::new("input")
        .attr("type", if kind.is_empty() { "tablet" } else { kind })
        .attr("bus", bus)
        .attr_if("model", model)
        .alias(&device.name)
}

fn watchdog(device: &Watchdog) -> Option<Element> {
    let i6300esb = device
        .i6300esb
        .as_ref()
        .map(|one| ("i6300esb", &one.action));
    let diag288 = device.diag288.as_ref().map(|one| ("diag288", &one.action));
    let (model, action) = i6300esb.or(diag288)?;
    let action = action.as_ref().map_or("reset", WatchdogAction::as_str);
    let element = Element::new("watchdog")
        .attr("model", model)
        .attr("action", action);
    Some(element.alias(&device.name))
}

/// A TPM by software; one that keeps its contents has the interface that newer guests expect.
fn tpm(device: Tpm) -> Element {
    let (model, persistent) = if device.is_persistent {
        ("tpm-crb", Some("yes"))
    } else {
        ("tpm-tis", None)
    };
    let backend = Element::new("backend")
        .attr("type", "emulator")
        .attr("version", "2.0")
        .attr_if("persistent_state", persistent);
    Element::new("tpm").attr("model", model).child(backend)
}
