//! Access to the guest for users and programs: serial console, screen, agent channel, port for metrics,
//! USB devices of clients.

use model::{Architecture, paths};

use crate::element::Element;
use crate::{Input, RenderError};

pub(crate) fn render(input: &Input<'_>) -> Result<Vec<Element>, RenderError> {
    let uid = input.guest.vmi.metadata.uid.as_deref();
    let uid = uid.ok_or_else(|| RenderError::missing("metadata.uid"))?;
    let devices = &input.guest.vmi.spec.domain.devices;
    let mut all = Vec::new();
    if devices.autoattach_serial_console != Some(false) {
        all.extend(serial(uid, devices.log_serial_console != Some(false)));
    }
    all.push(agent_channel());
    all.extend(devices.downward_metrics.as_ref().map(|_| metrics_channel()));
    if devices.autoattach_graphics_device != Some(false) {
        let video = devices
            .video
            .as_ref()
            .and_then(|video| video.type_.as_deref());
        all.push(graphics(uid));
        let given = video.filter(|kind| !kind.is_empty());
        all.push(match (given, input.guest.architecture) {
            (Some(kind), _) => with_memory(kind),
            (None, Architecture::Arm64 | Architecture::S390x) => video_device("virtio", None),
            (None, Architecture::Amd64 | Architecture::Unknown(_)) => with_memory("vga"),
        });
    }
    if devices.client_passthrough.is_some() {
        all.extend((0..paths::USB_SLOTS).map(|slot| usb_slot(uid, slot)));
    }
    Ok(all)
}

/// A socket that QEMU listens on. Console data bypasses libvirt and the launcher, so both may restart
/// while a console is open.
fn serial(uid: &str, is_logged: bool) -> [Element; 2] {
    let source = Element::new("source")
        .attr("mode", "bind")
        .attr("path", paths::serial_socket(uid));
    let log = is_logged.then(|| {
        Element::new("log")
            .attr("file", paths::serial_log(uid))
            .attr("append", "on")
    });
    let target = Element::new("target").attr("port", 0);
    [
        Element::new("serial")
            .attr("type", "unix")
            .child(source)
            .children(log)
            .child(target),
        Element::new("console").attr("type", "pty").child(
            Element::new("target")
                .attr("type", "serial")
                .attr("port", 0),
        ),
    ]
}

/// A place for a USB device of a client, who connects to its socket.
fn usb_slot(uid: &str, slot: usize) -> Element {
    let source = Element::new("source")
        .attr("mode", "bind")
        .attr("path", paths::usb_socket(uid, slot));
    Element::new("redirdev")
        .attr("bus", "usb")
        .attr("type", "unix")
        .child(source)
}

fn agent_channel() -> Element {
    let target = Element::new("target")
        .attr("name", "org.qemu.guest_agent.0")
        .attr("type", "virtio");
    Element::new("channel").attr("type", "unix").child(target)
}

/// QEMU listens; the launcher connects, and answers the guest's requests.
fn metrics_channel() -> Element {
    let source = Element::new("source")
        .attr("mode", "bind")
        .attr("path", paths::DOWNWARD_METRICS_SOCKET);
    let target = Element::new("target")
        .attr("name", "org.github.vhostmd.1")
        .attr("type", "virtio");
    Element::new("channel")
        .attr("type", "unix")
        .child(source)
        .child(target)
}

fn graphics(uid: &str) -> Element {
    let listen = Element::new("listen")
        .attr("type", "socket")
        .attr("socket", paths::vnc_socket(uid));
    Element::new("graphics").attr("type", "vnc").child(listen)
}

fn with_memory(kind: &str) -> Element {
    video_device(kind, Some(16_384))
}

fn video_device(kind: &str, kibibytes: Option<u32>) -> Element {
    let model = Element::new("model")
        .attr("type", kind)
        .attr("heads", 1)
        .attr_if("vram", kibibytes);
    Element::new("video").child(model)
}
