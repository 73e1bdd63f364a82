//! Smaller devices: inputs, entropy, balloon, watchdog, sound, panic notifier.

use kubevirt_api::devices::WatchdogAction;
use kubevirt_api::devices::{Devices, I6300EsbWatchdog, Input as InputDevice, InputBus};

use crate::element::Element;
use crate::{Input, virtio};

#[derive(Debug)]
pub(crate) struct Peripherals<'a> {
    devices: &'a Devices,
    model: &'static str,
    balloon_stats_seconds: u32,
    free_page_reporting: bool,
}

pub(crate) fn of<'a>(input: &Input<'a>) -> Peripherals<'a> {
    let annotations = input.guest.vmi.metadata.annotations.as_ref();
    let disabled = annotations
        .and_then(|all| all.get("kubevirt.io/free-page-reporting-disabled"))
        .is_some_and(|value| value == "true");
    Peripherals {
        devices: &input.guest.vmi.spec.domain.devices,
        model: virtio::model(input.guest),
        balloon_stats_seconds: input.facts.balloon_stats_seconds,
        free_page_reporting: !disabled,
    }
}

impl Peripherals<'_> {
    pub(crate) fn has_usb(&self) -> bool {
        self.devices.inputs.iter().any(|input| !is_virtio(input))
    }

    /// Number of devices that need a PCI Express port.
    pub(crate) fn pcie_devices(&self) -> usize {
        self.devices
            .inputs
            .iter()
            .filter(|input| is_virtio(input))
            .count()
            + usize::from(self.devices.rng.is_some())
            + usize::from(self.has_balloon())
    }

    pub(crate) fn render(&self) -> Vec<Element> {
        let devices = self.devices;
        let mut all: Vec<Element> = devices.inputs.iter().map(input).collect();
        all.extend(devices.rng.as_ref().map(|_| self.rng()));
        all.extend(devices.watchdog.as_ref().and_then(|watchdog| {
            let device = watchdog.i6300esb.as_ref()?;
            Some(i6300esb(device).alias(&watchdog.name))
        }));
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
        all.push(self.balloon());
        all
    }

    fn has_balloon(&self) -> bool {
        self.devices.autoattach_mem_balloon != Some(false)
    }

    fn rng(&self) -> Element {
        let backend = Element::new("backend")
            .attr("model", "random")
            .text("/dev/urandom");
        Element::new("rng").attr("model", self.model).child(backend)
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

fn i6300esb(device: &I6300EsbWatchdog) -> Element {
    let action = device
        .action
        .as_ref()
        .map_or("reset", WatchdogAction::as_str);
    Element::new("watchdog")
        .attr("model", "i6300esb")
        .attr("action", action)
}
