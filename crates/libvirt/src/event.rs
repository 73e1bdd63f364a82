//! Events from the server.

use tokio::sync::mpsc;

use crate::xdr::Decoder;
use crate::{Domain, ProtocolError, procedure};

/// libvirt's number of the connected state of the guest agent.
const AGENT_CONNECTED: i32 = 1;

/// The events of one connection, oldest first, until the connection ends.
#[derive(Debug)]
pub struct Events(pub(crate) mpsc::Receiver<Event>);

impl Events {
    /// The next event; `None` once the connection has ended.
    pub async fn next(&mut self) -> Option<Event> {
        self.0.recv().await
    }
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    Lifecycle,
    Reboot,
    Watchdog,
    IoError,
    ControlError,
    AgentLifecycle,
    DeviceRemoved,
}

impl EventKind {
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::Lifecycle => 0,
            Self::Reboot => 1,
            Self::Watchdog => 3,
            // With the reason.
            Self::IoError => 6,
            Self::ControlError => 7,
            Self::DeviceRemoved => 15,
            Self::AgentLifecycle => 18,
        }
    }
}

/// Whether the guest agent is connected to its channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentState {
    Connected,
    #[default]
    Disconnected,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Lifecycle {
        domain: Domain,
        change: Lifecycle,
    },
    Reboot {
        domain: Domain,
    },
    IoError {
        domain: Domain,
        source: String,
        device: String,
        action: i32,
        reason: String,
    },
    /// The guest's watchdog expired; `action` is libvirt's number of what it does.
    Watchdog {
        domain: Domain,
        action: i32,
    },
    /// The guest agent connected or disconnected.
    Agent {
        domain: Domain,
        state: AgentState,
    },
    /// The guest has released a device, which is gone.
    DeviceRemoved {
        domain: Domain,
        alias: String,
    },
    /// The server has lost control of this guest's QEMU.
    ControlError {
        domain: Domain,
    },
}

/// A change in a domain's life; the numbers are details that libvirt documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    Defined(i32),
    Undefined(i32),
    Started(i32),
    Suspended(i32),
    Resumed(i32),
    Stopped(i32),
    Shutdown(i32),
    Suspending(i32),
    /// The guest's kernel panicked.
    Crashed(i32),
    Other(i32, i32),
}

impl Lifecycle {
    fn decode(event: i32, detail: i32) -> Self {
        match event {
            0 => Self::Defined(detail),
            1 => Self::Undefined(detail),
            2 => Self::Started(detail),
            3 => Self::Suspended(detail),
            4 => Self::Resumed(detail),
            5 => Self::Stopped(detail),
            6 => Self::Shutdown(detail),
            7 => Self::Suspending(detail),
            8 => Self::Crashed(detail),
            other => Self::Other(other, detail),
        }
    }
}

/// Decodes an event; `None` for one that this crate does not know.
pub(crate) fn decode(number: i32, body: &[u8]) -> Result<Option<Event>, ProtocolError> {
    let mut from = Decoder::new(body);
    let known = [
        procedure::DOMAIN_EVENT_CALLBACK_LIFECYCLE,
        procedure::DOMAIN_EVENT_CALLBACK_REBOOT,
        procedure::DOMAIN_EVENT_CALLBACK_WATCHDOG,
        procedure::DOMAIN_EVENT_CALLBACK_IO_ERROR_REASON,
        procedure::DOMAIN_EVENT_CALLBACK_CONTROL_ERROR,
        procedure::DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE,
        procedure::DOMAIN_EVENT_CALLBACK_DEVICE_REMOVED,
    ];
    if !known.contains(&number) {
        return Ok(None);
    }
    let _callback = from.i32()?;
    let domain = Domain::decode(&mut from)?;
    let event = match number {
        procedure::DOMAIN_EVENT_CALLBACK_LIFECYCLE => Event::Lifecycle {
            domain,
            change: Lifecycle::decode(from.i32()?, from.i32()?),
        },
        procedure::DOMAIN_EVENT_CALLBACK_REBOOT => Event::Reboot { domain },
        procedure::DOMAIN_EVENT_CALLBACK_WATCHDOG => Event::Watchdog {
            domain,
            action: from.i32()?,
        },
        procedure::DOMAIN_EVENT_CALLBACK_AGENT_LIFECYCLE => {
            let state = match from.i32()? {
                AGENT_CONNECTED => AgentState::Connected,
                _ => AgentState::Disconnected,
            };
            let _reason = from.i32()?;
            Event::Agent { domain, state }
        }
        procedure::DOMAIN_EVENT_CALLBACK_DEVICE_REMOVED => Event::DeviceRemoved {
            domain,
            alias: from.string()?,
        },
        procedure::DOMAIN_EVENT_CALLBACK_IO_ERROR_REASON => Event::IoError {
            domain,
            source: from.string()?,
            device: from.string()?,
            action: from.i32()?,
            reason: from.string()?,
        },
        _ => Event::ControlError { domain },
    };
    from.finish()?;
    Ok(Some(event))
}
