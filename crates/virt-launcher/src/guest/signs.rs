//! What libvirt's events told of the guest's troubles: asking libvirt afterwards tells less.

use launcher_channel::{DomainState, StopReason};
use libvirt::{Event, Lifecycle};

use super::judge::Verdict;

/// libvirt's numbers of what a watchdog does that ends the guest at once.
const WATCHDOG_POWEROFF: i32 = 3;
/// libvirt's number of a failure of a disk that makes the guest stand still; others are ignored or
/// left to the guest.
const IO_ERROR_PAUSE: i32 = 1;
/// Names of disks and reasons come from libvirt and QEMU; nobody reads more than that.
const LONGEST: usize = 200;
/// Of a disk, as long as nothing more is known.
const UNKNOWN: &str = "its storage fails";

/// The troubles seen over this launcher's connections.
#[derive(Debug, Default)]
pub(super) struct Signs {
    panicked: bool,
    watchdog: bool,
    disk: Option<String>,
    /// What libvirt remembers of disks that failed, while the guest stands still for it.
    storage: Option<String>,
}

impl Signs {
    pub(super) fn note(&mut self, event: &Event) {
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
                tracing::warn!(device, reason, action, "the guest's disk failed");
                if *action == IO_ERROR_PAUSE {
                    self.disk = Some(disk_trouble(device, reason));
                    self.storage = None;
                }
            }
            _ => {}
        }
    }

    /// A QEMU that went away without a word may have been told to.
    pub(super) fn refine(&self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Ended(StopReason::Crashed) if self.panicked => {
                Verdict::Ended(StopReason::Panicked)
            }
            Verdict::Ended(StopReason::Crashed) if self.watchdog => {
                Verdict::Ended(StopReason::Watchdog)
            }
            verdict => verdict,
        }
    }

    /// Whether nobody has told yet why the storage fails.
    pub(super) fn wonders(&self, verdict: Verdict) -> bool {
        verdict == Verdict::Alive(DomainState::PausedByIoError) && self.storage.is_none()
    }

    /// What libvirt remembers when it is asked: one message for each disk that ever failed.
    pub(super) fn hear(&mut self, messages: &[String]) {
        let printable = |char: &char| !char.is_control();
        let newest = messages.iter().max_by_key(|text| member(text, "timestamp"));
        let words = newest.map_or("", |text| member(text, "message").unwrap_or(text));
        self.storage = Some(words.chars().filter(printable).take(LONGEST).collect());
    }

    /// Why a guest in that state stands still. After a restart of the launcher only libvirt knows.
    pub(super) fn why(&self, state: DomainState) -> Option<String> {
        if state != DomainState::PausedByIoError {
            return None;
        }
        let words = self.storage.as_deref().filter(|words| !words.is_empty());
        match (&self.disk, words) {
            (Some(disk), Some(words)) if disk.ends_with(UNKNOWN) => {
                Some(format!("{disk}: {words}"))
            }
            (Some(disk), _) => Some(disk.clone()),
            (None, words) => words.map(|words| format!("{UNKNOWN}: {words}")),
        }
    }
}

/// A member of a message such as `I/O error: disk='vda', message='No such device'`.
fn member<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, after) = text.split_once(&format!(" {name}='"))?;
    // The message itself comes last and may have quotes.
    let value = match name {
        "message" => after.strip_suffix('\''),
        _ => after.split_once('\'').map(|(value, _)| value),
    };
    value.filter(|value| !value.is_empty())
}

fn disk_trouble(device: &str, reason: &str) -> String {
    // An alias of ours is the disk's name after this mark.
    let disk = device.strip_prefix("ua-").unwrap_or(device);
    let what = match reason {
        "enospc" => "its storage is full",
        "eio" => "its storage fails to read or write",
        "eperm" | "eacces" => "its storage refuses access",
        // The second says that libvirt is to be asked.
        "" | "message" => UNKNOWN,
        other => other,
    };
    format!("disk {disk}: {what}")
        .chars()
        .take(LONGEST)
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

    fn after(events: &[Event]) -> Signs {
        let mut signs = Signs::default();
        for event in events {
            signs.note(event);
        }
        signs
    }

    #[test]
    fn a_qemu_that_went_away_is_explained_by_what_came_before() {
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
            // A reset goes on; a crash after it is a crash.
            (vec![watchdog(2)], StopReason::Crashed),
            (vec![watchdog(3), panic], StopReason::Panicked),
        ] {
            let signs = after(&events);
            let verdict = signs.refine(Verdict::Ended(StopReason::Crashed));
            assert_eq!(verdict, Verdict::Ended(expected), "{events:?}");
            let shutdown = Verdict::Ended(StopReason::Shutdown);
            assert_eq!(signs.refine(shutdown), shutdown);
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
    fn a_failure_left_to_the_guest_is_not_why_it_stands_still() {
        let reported = Event::IoError {
            domain: domain(),
            source: "/y".to_owned(),
            device: "ua-told".to_owned(),
            action: 2,
            reason: "message".to_owned(),
        };
        let stopped = error("ua-more", "enospc");
        for (events, expected) in [
            (vec![reported.clone()], None),
            (vec![reported.clone(), stopped.clone()], Some(&stopped)),
            (vec![stopped.clone(), reported], Some(&stopped)),
        ] {
            let (signs, alone) = (after(&events), after(expected.cloned().as_slice()));
            let paused = DomainState::PausedByIoError;
            assert_eq!(signs.why(paused), alone.why(paused), "{events:?}");
        }
    }

    #[test]
    fn libvirt_is_asked_for_what_its_event_does_not_tell() {
        let paused = Verdict::Alive(DomainState::PausedByIoError);
        let told = |time: &str, words: &str| {
            format!("I/O error: disk='vda', path='/x', timestamp='{time}', message='{words}'")
        };
        let old = told("2026-11-21 18:00:00.000+0000", "Input/output error");
        let new = told("2026-11-21 18:18:41.627+0000", "can't: 'x'");
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
            // The launcher that heard of it is gone.
            (vec![], &messages, Some("its storage fails: can't: 'x'")),
            (vec![], &[], None),
        ] {
            let mut signs = after(&events);
            assert!(signs.wonders(paused));
            signs.hear(messages);
            assert!(!signs.wonders(paused));
            let why = signs.why(DomainState::PausedByIoError);
            assert_eq!(why.as_deref(), expected);
            // The next trouble is another one.
            signs.note(&error("ua-root", "message"));
            assert!(signs.wonders(paused));
            assert!(!signs.wonders(Verdict::Alive(DomainState::Running)));
        }
    }

    #[test]
    fn a_disk_is_named_as_the_user_names_it() {
        for (event, expected) in [
            (error("ua-root", "enospc"), "disk root: its storage is full"),
            (
                error("virtio-disk0", ""),
                "disk virtio-disk0: its storage fails",
            ),
        ] {
            let signs = after(&[event]);
            let why = signs.why(DomainState::PausedByIoError);
            assert_eq!(why.as_deref(), Some(expected));
            assert_eq!(signs.why(DomainState::Running), None);
        }
        let long = after(&[error(&"x".repeat(10_000), "eio")]);
        assert!(long.why(DomainState::PausedByIoError).unwrap().len() <= LONGEST);
    }
}
