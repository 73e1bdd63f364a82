//! Faults of the guest that libvirt reports in events: a later query returns fewer details.

use launcher_channel::{DomainState, StopReason};
use libvirt::{Event, Lifecycle};

use super::status::Status;

/// libvirt's number of the watchdog action that powers the guest off.
const WATCHDOG_POWEROFF: i32 = 3;
/// libvirt's number of the action that pauses the guest after an I/O error; the others ignore the
/// error or report it to the guest.
const IO_ERROR_PAUSE: i32 = 1;
/// Characters of a text: names of disks and reasons come from libvirt and QEMU.
const MAX_TEXT: usize = 200;
/// The explanation while no reason is known.
const UNKNOWN: &str = "its storage fails";

/// Faults reported over this launcher's connections.
#[derive(Debug, Default)]
pub(super) struct Faults {
    panicked: bool,
    watchdog: bool,
    /// The disk whose error paused the guest, with the reason.
    disk: Option<String>,
    /// libvirt's message about the disk error that paused the guest; empty if it has none.
    storage: Option<String>,
}

impl Faults {
    pub(super) fn record(&mut self, event: &Event) {
        match event {
            Event::Lifecycle {
                change: Lifecycle::Crashed(_),
                ..
            } => self.panicked = true,
            Event::Watchdog { action, .. } => {
                tracing::warn!(action, "the guest's watchdog expired");
                self.watchdog |= *action == WATCHDOG_POWEROFF;
            }
            Event::IoError {
                device,
                reason,
                action,
                ..
            } => {
                tracing::warn!(device, reason, action, "I/O error of a guest's disk");
                if *action == IO_ERROR_PAUSE {
                    self.disk = Some(explain_disk(device, reason));
                    self.storage = None;
                }
            }
            _ => {}
        }
    }

    /// Replaces a crash of QEMU by the fault that caused it.
    pub(super) fn refine(&self, status: Status) -> Status {
        match status {
            Status::Ended(StopReason::Crashed) if self.panicked => {
                Status::Ended(StopReason::Panicked)
            }
            Status::Ended(StopReason::Crashed) if self.watchdog => {
                Status::Ended(StopReason::Watchdog)
            }
            status => status,
        }
    }

    /// Whether libvirt has to be queried for the reason of an I/O error.
    pub(super) fn needs_disk_errors(&self, status: Status) -> bool {
        status == Status::Alive(DomainState::PausedByIoError) && self.storage.is_none()
    }

    /// Takes libvirt's messages: one for each disk that ever failed.
    pub(super) fn set_disk_errors(&mut self, messages: &[String]) {
        let printable = |char: &char| !char.is_control();
        let newest = messages.iter().max_by_key(|text| member(text, "timestamp"));
        let text = newest.map_or("", |text| member(text, "message").unwrap_or(text));
        self.storage = Some(text.chars().filter(printable).take(MAX_TEXT).collect());
    }

    /// Why a guest in this state is paused. After a restart of the launcher only libvirt knows.
    pub(super) fn explain(&self, state: DomainState) -> Option<String> {
        if state != DomainState::PausedByIoError {
            return None;
        }
        let message = self.storage.as_deref().filter(|text| !text.is_empty());
        match (&self.disk, message) {
            (Some(disk), Some(message)) if disk.ends_with(UNKNOWN) => {
                Some(format!("{disk}: {message}"))
            }
            (Some(disk), _) => Some(disk.clone()),
            (None, message) => message.map(|message| format!("{UNKNOWN}: {message}")),
        }
    }
}

/// A member of a message such as `I/O error: disk='vda', message='No such device'`.
fn member<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, after) = text.split_once(&format!(" {name}='"))?;
    // The message comes last and may contain quotes.
    let value = match name {
        "message" => after.strip_suffix('\''),
        _ => after.split_once('\'').map(|(value, _)| value),
    };
    value.filter(|value| !value.is_empty())
}

fn explain_disk(device: &str, reason: &str) -> String {
    // libvirt prefixes an alias that the XML sets; the rest is the disk's name in the VMI.
    let disk = device.strip_prefix("ua-").unwrap_or(device);
    let explanation = match reason {
        "enospc" => "its storage is full",
        "eio" => "its storage fails to read or write",
        "eperm" | "eacces" => "its storage refuses access",
        // With "message", libvirt has to be queried for the reason.
        "" | "message" => UNKNOWN,
        other => other,
    };
    format!("disk {disk}: {explanation}")
        .chars()
        .take(MAX_TEXT)
        .collect()
}

#[cfg(test)]
mod tests {
    use libvirt::{Domain, DomainUuid};

    use super::*;

    fn domain() -> Domain {
        Domain {
            name: "a_b".to_owned(),
            uuid: DomainUuid([1; 16]),
            id: None,
        }
    }

    fn after(events: &[Event]) -> Faults {
        let mut faults = Faults::default();
        for event in events {
            faults.record(event);
        }
        faults
    }

    #[test]
    fn crash_of_qemu_is_explained_by_earlier_events() {
        let panic = Event::Lifecycle {
            domain: domain(),
            change: Lifecycle::Crashed(0),
        };
        let watchdog = |action| Event::Watchdog {
            domain: domain(),
            action,
        };
        for (events, expected) in [
            (vec![], StopReason::Crashed),
            (vec![panic.clone()], StopReason::Panicked),
            (vec![watchdog(WATCHDOG_POWEROFF)], StopReason::Watchdog),
            // A watchdog reset does not end the guest: a crash after it is a crash.
            (vec![watchdog(2)], StopReason::Crashed),
            (vec![watchdog(3), panic], StopReason::Panicked),
        ] {
            let faults = after(&events);
            let status = faults.refine(Status::Ended(StopReason::Crashed));
            assert_eq!(status, Status::Ended(expected), "{events:?}");
            let shutdown = Status::Ended(StopReason::Shutdown);
            assert_eq!(faults.refine(shutdown), shutdown);
        }
    }

    fn error(device: &str, reason: &str) -> Event {
        Event::IoError {
            domain: domain(),
            source: "/x".to_owned(),
            device: device.to_owned(),
            action: IO_ERROR_PAUSE,
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn io_error_reported_to_the_guest_is_not_why_it_is_paused() {
        let reported = Event::IoError {
            domain: domain(),
            source: "/y".to_owned(),
            device: "ua-reported".to_owned(),
            action: 2,
            reason: "message".to_owned(),
        };
        let stopped = error("ua-paused", "enospc");
        for (events, expected) in [
            (vec![reported.clone()], None),
            (vec![reported.clone(), stopped.clone()], Some(&stopped)),
            (vec![stopped.clone(), reported], Some(&stopped)),
        ] {
            let (faults, alone) = (after(&events), after(expected.cloned().as_slice()));
            let paused = DomainState::PausedByIoError;
            assert_eq!(faults.explain(paused), alone.explain(paused), "{events:?}");
        }
    }

    #[test]
    fn reason_missing_from_the_event_is_queried() {
        let paused = Status::Alive(DomainState::PausedByIoError);
        let error_message = |time: &str, message: &str| {
            format!("I/O error: disk='vda', path='/x', timestamp='{time}', message='{message}'")
        };
        let old = error_message("2026-11-21 18:00:00.000+0000", "Input/output error");
        let new = error_message("2026-11-21 18:18:41.627+0000", "can't: 'x'");
        let messages = [new, old];
        for (events, messages, expected) in [
            (
                vec![error("ua-root", "message")],
                &messages[..],
                Some("disk root: its storage fails: can't: 'x'"),
            ),
            (
                vec![error("ua-root", "message")],
                &[],
                Some("disk root: its storage fails"),
            ),
            (
                vec![error("ua-root", "enospc")],
                &messages,
                Some("disk root: its storage is full"),
            ),
            // An earlier launcher received the event.
            (vec![], &messages, Some("its storage fails: can't: 'x'")),
            (vec![], &[], None),
        ] {
            let mut faults = after(&events);
            assert!(faults.needs_disk_errors(paused));
            faults.set_disk_errors(messages);
            assert!(!faults.needs_disk_errors(paused));
            let explanation = faults.explain(DomainState::PausedByIoError);
            assert_eq!(explanation.as_deref(), expected);
            // The next error needs a new query.
            faults.record(&error("ua-root", "message"));
            assert!(faults.needs_disk_errors(paused));
            assert!(!faults.needs_disk_errors(Status::Alive(DomainState::Running)));
        }
    }

    #[test]
    fn disk_has_its_name_in_the_vmi() {
        for (event, expected) in [
            (error("ua-root", "enospc"), "disk root: its storage is full"),
            (
                error("virtio-disk0", ""),
                "disk virtio-disk0: its storage fails",
            ),
        ] {
            let faults = after(&[event]);
            let explanation = faults.explain(DomainState::PausedByIoError);
            assert_eq!(explanation.as_deref(), Some(expected));
            assert_eq!(faults.explain(DomainState::Running), None);
        }
        let long = after(&[error(&"x".repeat(10_000), "eio")]);
        assert!(long.explain(DomainState::PausedByIoError).unwrap().len() <= MAX_TEXT);
    }
}
