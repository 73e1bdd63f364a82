//! One method per procedure: encodes the arguments and decodes the reply.

use std::time::Duration;

use crate::connection::{Call, Reply};
use crate::xdr::{Decoder, Encoder};
use crate::{Connection, Domain, DomainState, Error, EventKind, ProtocolError, procedure};

/// The server offers a handful.
const MAX_AUTH_TYPES: usize = 20;
/// The protocol's own bound.
const MAX_MEMORY_STATS: u32 = 1024;
/// The protocol's own bound.
const MAX_MESSAGES: usize = 2048;
/// A screen of 7680 by 4320 pixels with three bytes each, and some reserve.
const MAX_SCREENSHOT: usize = 128 << 20;
/// Starting and stopping wait for QEMU, which may wait for a slow disk.
const LIFECYCLE_LIMIT: Duration = Duration::from_mins(2);

const START_PAUSED: u32 = 1;
const EXPAND_FEATURES: u32 = 1;
const SHUTDOWN_ACPI: u32 = 1;
const REBOOT_ACPI: u32 = 1;
const REBOOT_AGENT: u32 = 2;
const DISK_ERRORS: u32 = 4;
/// Changes the running domain alone; its definition stays as it is.
const AFFECT_LIVE: u32 = 1;

/// The state of a guest after its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartMode {
    Running,
    Paused,
}

impl StartMode {
    fn flags(self) -> u32 {
        match self {
            Self::Running => 0,
            Self::Paused => START_PAUSED,
        }
    }
}

/// Selects domain capabilities; `None` leaves the choice to the server.
#[derive(Debug, Clone, Copy, Default)]
pub struct DomainCapabilitiesQuery<'a> {
    pub emulator: Option<&'a str>,
    pub arch: Option<&'a str>,
    pub machine: Option<&'a str>,
    /// `kvm` or `qemu`.
    pub virt_type: Option<&'a str>,
}

/// A screenshot of a guest.
#[derive(Debug)]
pub struct Screenshot {
    pub mime_type: Option<String>,
    pub bytes: Vec<u8>,
}

/// Calls about the host.
impl Connection {
    /// Checks that the server requires no authentication, then opens the driver at `uri`.
    pub async fn open(&self, uri: &str) -> Result<(), Error> {
        let reply = self
            .call(Call::new(procedure::AUTH_LIST, Encoder::new()))
            .await?;
        if decode_auth_types(&reply.body)?
            .iter()
            .any(|kind| *kind != 0)
        {
            return Err(Error::AuthenticationRequired);
        }
        self.call_for_nothing(
            procedure::CONNECT_OPEN,
            Encoder::new().optional_string(Some(uri)).u32(0),
        )
        .await
    }

    /// Closes the connection in an orderly way.
    pub async fn close(&self) -> Result<(), Error> {
        self.call_for_nothing(procedure::CONNECT_CLOSE, Encoder::new())
            .await
    }

    /// The server's version as `major * 1_000_000 + minor * 1_000 + release`.
    pub async fn lib_version(&self) -> Result<u64, Error> {
        self.call_for_number(procedure::CONNECT_GET_LIB_VERSION)
            .await
    }

    /// QEMU's version, in the same form.
    pub async fn hypervisor_version(&self) -> Result<u64, Error> {
        self.call_for_number(procedure::CONNECT_GET_VERSION).await
    }

    async fn call_for_number(&self, procedure: i32) -> Result<u64, Error> {
        let reply = self.call(Call::new(procedure, Encoder::new())).await?;
        read(&reply, Decoder::u64)
    }

    /// Queries a feature by its number. Querying 10 also enables the server's keepalive pings.
    pub async fn supports_feature(&self, feature: i32) -> Result<bool, Error> {
        let arguments = Encoder::new().i32(feature);
        let reply = self
            .call(Call::new(procedure::CONNECT_SUPPORTS_FEATURE, arguments))
            .await?;
        Ok(read(&reply, Decoder::i32)? != 0)
    }

    /// The capabilities of the host and its emulators, as XML.
    pub async fn capabilities(&self) -> Result<String, Error> {
        self.call_for_text(procedure::CONNECT_GET_CAPABILITIES, Encoder::new())
            .await
    }

    /// The capabilities of domains, as XML.
    pub async fn domain_capabilities(
        &self,
        query: DomainCapabilitiesQuery<'_>,
    ) -> Result<String, Error> {
        let arguments = Encoder::new()
            .optional_string(query.emulator)
            .optional_string(query.arch)
            .optional_string(query.machine)
            .optional_string(query.virt_type)
            .u32(0);
        self.call_for_text(procedure::CONNECT_GET_DOMAIN_CAPABILITIES, arguments)
            .await
    }

    /// The CPU `cpu` as a guest gets it, as XML with every feature by name.
    pub async fn expanded_cpu(
        &self,
        query: DomainCapabilitiesQuery<'_>,
        cpu: &str,
    ) -> Result<String, Error> {
        let arguments = Encoder::new()
            .optional_string(query.emulator)
            .optional_string(query.arch)
            .optional_string(query.machine)
            .optional_string(query.virt_type)
            .u32(1)
            .string(cpu)
            .u32(EXPAND_FEATURES);
        self.call_for_text(procedure::CONNECT_BASELINE_HYPERVISOR_CPU, arguments)
            .await
    }

    /// Subscribes to events of every domain. Returns the number of the subscription.
    pub async fn subscribe(&self, kind: EventKind) -> Result<i32, Error> {
        let number = procedure::CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY;
        let arguments = Encoder::new().i32(kind.number()).u32(0);
        let reply = self.call(Call::new(number, arguments)).await?;
        read(&reply, Decoder::i32)
    }
}

/// Calls about domains.
impl Connection {
    /// Defines a domain, which libvirt keeps when it is not running.
    pub async fn define(&self, xml: &str) -> Result<Domain, Error> {
        self.call_for_domain(
            procedure::DOMAIN_DEFINE_XML_FLAGS,
            Encoder::new().string(xml).u32(0),
        )
        .await
    }

    /// Starts a defined domain.
    pub async fn start(&self, domain: &Domain, mode: StartMode) -> Result<Domain, Error> {
        let arguments = domain.encode(Encoder::new()).u32(mode.flags());
        self.with_limit(LIFECYCLE_LIMIT)
            .call_for_domain(procedure::DOMAIN_CREATE_WITH_FLAGS, arguments)
            .await
    }

    /// Presses the power button.
    pub async fn press_power_button(&self, domain: &Domain) -> Result<(), Error> {
        let arguments = domain.encode(Encoder::new()).u32(SHUTDOWN_ACPI);
        self.call_for_nothing(procedure::DOMAIN_SHUTDOWN_FLAGS, arguments)
            .await
    }

    /// Kills QEMU.
    pub async fn destroy(&self, domain: &Domain) -> Result<(), Error> {
        let arguments = domain.encode(Encoder::new()).u32(0);
        self.with_limit(LIFECYCLE_LIMIT)
            .call_for_nothing(procedure::DOMAIN_DESTROY_FLAGS, arguments)
            .await
    }

    pub async fn suspend(&self, domain: &Domain) -> Result<(), Error> {
        self.call_for_nothing(procedure::DOMAIN_SUSPEND, domain.encode(Encoder::new()))
            .await
    }

    pub async fn resume(&self, domain: &Domain) -> Result<(), Error> {
        self.call_for_nothing(procedure::DOMAIN_RESUME, domain.encode(Encoder::new()))
            .await
    }

    /// Reboots the guest: through its agent if there is one, else by an ACPI event.
    pub async fn reboot(&self, domain: &Domain) -> Result<(), Error> {
        let methods = REBOOT_ACPI | REBOOT_AGENT;
        self.call_for_nothing(
            procedure::DOMAIN_REBOOT,
            domain.encode(Encoder::new()).u32(methods),
        )
        .await
    }

    pub async fn reset(&self, domain: &Domain) -> Result<(), Error> {
        self.call_for_nothing(
            procedure::DOMAIN_RESET,
            domain.encode(Encoder::new()).u32(0),
        )
        .await
    }

    pub async fn state(&self, domain: &Domain) -> Result<DomainState, Error> {
        let arguments = domain.encode(Encoder::new()).u32(0);
        let reply = self
            .call(Call::new(procedure::DOMAIN_GET_STATE, arguments))
            .await?;
        read(&reply, |from| {
            Ok(DomainState::decode(from.i32()?, from.i32()?))
        })
    }

    /// Adds a device to a running domain.
    pub async fn attach_device(&self, domain: &Domain, xml: &str) -> Result<(), Error> {
        self.call_for_nothing(
            procedure::DOMAIN_ATTACH_DEVICE_FLAGS,
            domain.encode(Encoder::new()).string(xml).u32(AFFECT_LIVE),
        )
        .await
    }

    /// Changes a device of a running domain, such as the medium of a drive.
    pub async fn update_device(&self, domain: &Domain, xml: &str) -> Result<(), Error> {
        self.call_for_nothing(
            procedure::DOMAIN_UPDATE_DEVICE_FLAGS,
            domain.encode(Encoder::new()).string(xml).u32(AFFECT_LIVE),
        )
        .await
    }

    /// Plugs in virtual CPUs until a running domain has this many of them.
    pub async fn set_vcpus(&self, domain: &Domain, count: u32) -> Result<(), Error> {
        self.with_limit(LIFECYCLE_LIMIT)
            .call_for_nothing(
                procedure::DOMAIN_SET_VCPUS_FLAGS,
                domain.encode(Encoder::new()).u32(count).u32(AFFECT_LIVE),
            )
            .await
    }

    /// Requests the removal of a device from a running domain; [`Event::DeviceRemoved`] follows once the
    /// guest has released it.
    ///
    /// [`Event::DeviceRemoved`]: crate::Event::DeviceRemoved
    pub async fn request_removal(&self, domain: &Domain, alias: &str) -> Result<(), Error> {
        self.call_for_nothing(
            procedure::DOMAIN_DETACH_DEVICE_ALIAS,
            domain.encode(Encoder::new()).string(alias).u32(AFFECT_LIVE),
        )
        .await
    }

    /// The memory statistics of a running domain: libvirt's numbers of the kinds, and values in KiB.
    /// The server executes this call after all pending work for the domain: right after the server's
    /// own start, the reply means that it knows whether QEMU still lives.
    pub async fn memory_stats(&self, domain: &Domain) -> Result<Vec<(i32, u64)>, Error> {
        let arguments = domain.encode(Encoder::new()).u32(MAX_MEMORY_STATS).u32(0);
        let reply = self
            .call(Call::new(procedure::DOMAIN_MEMORY_STATS, arguments))
            .await?;
        Ok(decode_memory_stats(&reply.body)?)
    }

    /// The server's messages about disk errors, including errors before the last success.
    pub async fn disk_errors(&self, domain: &Domain) -> Result<Vec<String>, Error> {
        let arguments = domain.encode(Encoder::new()).u32(DISK_ERRORS);
        let reply = self
            .call(Call::new(procedure::DOMAIN_GET_MESSAGES, arguments))
            .await?;
        Ok(decode_messages(&reply.body)?)
    }

    /// The live XML of a running domain, or the XML of its definition.
    pub async fn xml(&self, domain: &Domain) -> Result<String, Error> {
        self.call_for_text(
            procedure::DOMAIN_GET_XML_DESC,
            domain.encode(Encoder::new()).u32(0),
        )
        .await
    }

    pub async fn screenshot(&self, domain: &Domain, screen: u32) -> Result<Screenshot, Error> {
        let arguments = domain.encode(Encoder::new()).u32(screen).u32(0);
        let call = Call::new(procedure::DOMAIN_SCREENSHOT, arguments);
        let (reply, stream) = self.call_with_stream(call).await?;
        let mime_type = read(&reply, Decoder::optional_string)?;
        Ok(Screenshot {
            mime_type,
            bytes: stream.read_to_end(MAX_SCREENSHOT).await?,
        })
    }

    /// Sends a JSON command to QEMU's monitor and returns its response. libvirt marks the domain as
    /// tainted, so this is only for commands that libvirt has no call for.
    pub async fn monitor(&self, domain: &Domain, command: &str) -> Result<String, Error> {
        let arguments = domain.encode(Encoder::new()).string(command).u32(0);
        let call = Call::new(procedure::QEMU_DOMAIN_MONITOR_COMMAND, arguments);
        let reply = self
            .call(Call {
                program: procedure::QEMU,
                ..call
            })
            .await?;
        Ok(decode_text(&reply.body)?)
    }

    /// Sends a JSON command to the guest agent and returns its response, which is untrusted. The
    /// agent has `seconds` to respond.
    pub async fn agent(&self, at: &Domain, command: &str, seconds: u16) -> Result<String, Error> {
        let arguments = at
            .encode(Encoder::new())
            .string(command)
            .i32(seconds.into())
            .u32(0);
        let call = Call::new(procedure::QEMU_DOMAIN_AGENT_COMMAND, arguments);
        let reply = self
            .call(Call {
                program: procedure::QEMU,
                ..call
            })
            .await?;
        Ok(decode_optional_text(&reply.body)?)
    }
}

/// Replies that several calls share.
impl Connection {
    async fn call_for_nothing(&self, procedure: i32, arguments: Encoder) -> Result<(), Error> {
        let reply = self.call(Call::new(procedure, arguments)).await?;
        read(&reply, |_| Ok(()))
    }

    async fn call_for_text(&self, procedure: i32, arguments: Encoder) -> Result<String, Error> {
        let reply = self.call(Call::new(procedure, arguments)).await?;
        Ok(decode_text(&reply.body)?)
    }

    async fn call_for_domain(&self, procedure: i32, arguments: Encoder) -> Result<Domain, Error> {
        let reply = self.call(Call::new(procedure, arguments)).await?;
        read(&reply, Domain::decode)
    }
}

fn read<'a, T>(
    reply: &'a Reply,
    value: impl FnOnce(&mut Decoder<'a>) -> Result<T, ProtocolError>,
) -> Result<T, Error> {
    let mut from = Decoder::new(&reply.body);
    let value = value(&mut from)?;
    from.finish()?;
    Ok(value)
}

pub(crate) fn decode_text(body: &[u8]) -> Result<String, ProtocolError> {
    let mut from = Decoder::new(body);
    let text = from.string()?;
    from.finish()?;
    Ok(text)
}

pub(crate) fn decode_optional_text(body: &[u8]) -> Result<String, ProtocolError> {
    let mut from = Decoder::new(body);
    let text = from.optional_string()?;
    from.finish()?;
    Ok(text.unwrap_or_default())
}

pub(crate) fn decode_auth_types(body: &[u8]) -> Result<Vec<i32>, ProtocolError> {
    let mut from = Decoder::new(body);
    let types = (0..from.count(MAX_AUTH_TYPES)?)
        .map(|_| from.i32())
        .collect::<Result<_, _>>()?;
    from.finish()?;
    Ok(types)
}

pub(crate) fn decode_memory_stats(body: &[u8]) -> Result<Vec<(i32, u64)>, ProtocolError> {
    let mut from = Decoder::new(body);
    let limit = usize::try_from(MAX_MEMORY_STATS).unwrap_or(usize::MAX);
    let mut stats = Vec::new();
    for _ in 0..from.count(limit)? {
        stats.push((from.i32()?, from.u64()?));
    }
    from.finish()?;
    Ok(stats)
}

pub(crate) fn decode_messages(body: &[u8]) -> Result<Vec<String>, ProtocolError> {
    let mut from = Decoder::new(body);
    let messages = (0..from.count(MAX_MESSAGES)?)
        .map(|_| from.string())
        .collect::<Result<_, _>>()?;
    from.finish()?;
    Ok(messages)
}
