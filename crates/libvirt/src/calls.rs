//! One method per procedure: its arguments in, its answer out.

use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::connection::{Answer, Call};
use crate::xdr::{Decoder, Encoder};
use crate::{
    Connection, Domain, DomainState, DomainUuid, Error, EventKind, ProtocolError, Stream, procedure,
};

/// A pod holds one domain; a tool that lists a whole host may see more.
const MAX_DOMAINS: usize = 16 << 10;
/// The server offers a handful.
const MAX_AUTH_TYPES: usize = 20;
/// The protocol's own bound.
const MAX_MEMORY_STATS: u32 = 1024;
/// The protocol's own bound.
const MAX_MESSAGES: usize = 2048;
/// A screen of 7680 by 4320 at three bytes a pixel, and a little.
const MAX_SCREENSHOT: usize = 128 << 20;
/// Starting and stopping wait for QEMU, which may wait for a slow disk.
const LIFECYCLE_LIMIT: Duration = Duration::from_mins(2);

const START_PAUSED: u32 = 1;
const EXPAND_FEATURES: u32 = 1;
const SHUTDOWN_ACPI: u32 = 1;
const REBOOT_ACPI: u32 = 1;
const REBOOT_AGENT: u32 = 2;
const LIST_RESULTS: i32 = 1;
const MONITOR_HUMAN: u32 = 1;
const FORCE_CONSOLE: u32 = 1;
const DISK_ERRORS: u32 = 4;

/// How a guest begins.
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

/// What capabilities of domains are asked for; `None` leaves the choice to the server.
#[derive(Debug, Clone, Copy, Default)]
pub struct DomainCapabilitiesQuery<'a> {
    pub emulator: Option<&'a str>,
    pub arch: Option<&'a str>,
    pub machine: Option<&'a str>,
    /// `kvm` or `qemu`.
    pub virt_type: Option<&'a str>,
}

/// A picture of a guest's screen.
#[derive(Debug)]
pub struct Screenshot {
    pub mime_type: Option<String>,
    pub bytes: Vec<u8>,
}

/// The connection itself.
impl Connection {
    /// Says hello: checks that no authentication is wanted, then opens the driver at `uri`.
    pub async fn open(&self, uri: &str) -> Result<(), Error> {
        let answer = self
            .call(Call::new(procedure::AUTH_LIST, Encoder::new()))
            .await?;
        if decode_auth_types(&answer.body)?
            .iter()
            .any(|kind| *kind != 0)
        {
            return Err(Error::AuthenticationRequired);
        }
        self.nothing(
            procedure::CONNECT_OPEN,
            Encoder::new().optional_string(Some(uri)).u32(0),
        )
        .await
    }

    /// Says goodbye.
    pub async fn close(&self) -> Result<(), Error> {
        self.nothing(procedure::CONNECT_CLOSE, Encoder::new()).await
    }

    /// The server's version as `major * 1_000_000 + minor * 1_000 + release`.
    pub async fn lib_version(&self) -> Result<u64, Error> {
        self.number(procedure::CONNECT_GET_LIB_VERSION).await
    }

    /// QEMU's version, in the same form.
    pub async fn hypervisor_version(&self) -> Result<u64, Error> {
        self.number(procedure::CONNECT_GET_VERSION).await
    }

    async fn number(&self, procedure: i32) -> Result<u64, Error> {
        let answer = self.call(Call::new(procedure, Encoder::new())).await?;
        read(&answer, Decoder::u64)
    }

    /// Asks for a feature by its number; asking for 10 also turns the server's pings on.
    pub async fn supports_feature(&self, feature: i32) -> Result<bool, Error> {
        let arguments = Encoder::new().i32(feature);
        let answer = self
            .call(Call::new(procedure::CONNECT_SUPPORTS_FEATURE, arguments))
            .await?;
        Ok(read(&answer, Decoder::i32)? != 0)
    }

    /// XML of what the host and its emulators can do.
    pub async fn capabilities(&self) -> Result<String, Error> {
        self.text(procedure::CONNECT_GET_CAPABILITIES, Encoder::new())
            .await
    }

    /// XML of what a domain can have.
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
        self.text(procedure::CONNECT_GET_DOMAIN_CAPABILITIES, arguments)
            .await
    }

    /// XML of the processor `cpu` as a guest would have it, every feature by name.
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
        self.text(procedure::CONNECT_BASELINE_HYPERVISOR_CPU, arguments)
            .await
    }

    /// Every domain, running or not.
    pub async fn domains(&self) -> Result<Vec<Domain>, Error> {
        let arguments = Encoder::new().i32(LIST_RESULTS).u32(0);
        let answer = self
            .call(Call::new(procedure::CONNECT_LIST_ALL_DOMAINS, arguments))
            .await?;
        Ok(decode_domains(&answer.body)?)
    }

    /// Asks for events of every domain; the number takes it back.
    pub async fn subscribe(&self, kind: EventKind) -> Result<i32, Error> {
        let number = procedure::CONNECT_DOMAIN_EVENT_CALLBACK_REGISTER_ANY;
        let arguments = Encoder::new().i32(kind.number()).u32(0);
        let answer = self.call(Call::new(number, arguments)).await?;
        read(&answer, Decoder::i32)
    }

    pub async fn unsubscribe(&self, subscription: i32) -> Result<(), Error> {
        let number = procedure::CONNECT_DOMAIN_EVENT_CALLBACK_DEREGISTER_ANY;
        self.nothing(number, Encoder::new().i32(subscription)).await
    }
}

/// Domains.
impl Connection {
    pub async fn domain_by_name(&self, name: &str) -> Result<Domain, Error> {
        self.domain(
            procedure::DOMAIN_LOOKUP_BY_NAME,
            Encoder::new().string(name),
        )
        .await
    }

    pub async fn domain_by_uuid(&self, uuid: DomainUuid) -> Result<Domain, Error> {
        self.domain(procedure::DOMAIN_LOOKUP_BY_UUID, Encoder::new().uuid(uuid))
            .await
    }

    /// Makes a domain that stays known when it does not run.
    pub async fn define(&self, xml: &str) -> Result<Domain, Error> {
        self.domain(
            procedure::DOMAIN_DEFINE_XML_FLAGS,
            Encoder::new().string(xml).u32(0),
        )
        .await
    }

    /// Makes and starts a domain that is forgotten when it ends.
    pub async fn create_xml(&self, xml: &str, mode: StartMode) -> Result<Domain, Error> {
        let arguments = Encoder::new().string(xml).u32(mode.flags());
        self.with_limit(LIFECYCLE_LIMIT)
            .domain(procedure::DOMAIN_CREATE_XML, arguments)
            .await
    }

    /// Starts a defined domain.
    pub async fn start(&self, domain: &Domain, mode: StartMode) -> Result<Domain, Error> {
        let arguments = domain.encode(Encoder::new()).u32(mode.flags());
        self.with_limit(LIFECYCLE_LIMIT)
            .domain(procedure::DOMAIN_CREATE_WITH_FLAGS, arguments)
            .await
    }

    /// Presses the power button.
    pub async fn press_power_button(&self, domain: &Domain) -> Result<(), Error> {
        let arguments = domain.encode(Encoder::new()).u32(SHUTDOWN_ACPI);
        self.nothing(procedure::DOMAIN_SHUTDOWN_FLAGS, arguments)
            .await
    }

    /// Ends QEMU at once.
    pub async fn destroy(&self, domain: &Domain) -> Result<(), Error> {
        let arguments = domain.encode(Encoder::new()).u32(0);
        self.with_limit(LIFECYCLE_LIMIT)
            .nothing(procedure::DOMAIN_DESTROY_FLAGS, arguments)
            .await
    }

    pub async fn undefine(&self, domain: &Domain) -> Result<(), Error> {
        let arguments = domain.encode(Encoder::new()).u32(0);
        self.nothing(procedure::DOMAIN_UNDEFINE_FLAGS, arguments)
            .await
    }

    pub async fn suspend(&self, domain: &Domain) -> Result<(), Error> {
        self.nothing(procedure::DOMAIN_SUSPEND, domain.encode(Encoder::new()))
            .await
    }

    pub async fn resume(&self, domain: &Domain) -> Result<(), Error> {
        self.nothing(procedure::DOMAIN_RESUME, domain.encode(Encoder::new()))
            .await
    }

    /// Asks the guest to start anew: by its agent if there is one, else by the power button.
    pub async fn reboot(&self, domain: &Domain) -> Result<(), Error> {
        let how = REBOOT_ACPI | REBOOT_AGENT;
        self.nothing(
            procedure::DOMAIN_REBOOT,
            domain.encode(Encoder::new()).u32(how),
        )
        .await
    }

    pub async fn reset(&self, domain: &Domain) -> Result<(), Error> {
        self.nothing(
            procedure::DOMAIN_RESET,
            domain.encode(Encoder::new()).u32(0),
        )
        .await
    }

    pub async fn state(&self, domain: &Domain) -> Result<DomainState, Error> {
        let arguments = domain.encode(Encoder::new()).u32(0);
        let answer = self
            .call(Call::new(procedure::DOMAIN_GET_STATE, arguments))
            .await?;
        read(&answer, |from| {
            Ok(DomainState::decode(from.i32()?, from.i32()?))
        })
    }

    /// What is known of a running domain's memory, as libvirt's numbers of kinds with values in
    /// KiB. It waits until the server has nothing else in hand for this domain: right after the
    /// server's own start that is the moment when it knows whether QEMU still lives.
    pub async fn memory_stats(&self, domain: &Domain) -> Result<Vec<(i32, u64)>, Error> {
        let arguments = domain.encode(Encoder::new()).u32(MAX_MEMORY_STATS).u32(0);
        let answer = self
            .call(Call::new(procedure::DOMAIN_MEMORY_STATS, arguments))
            .await?;
        Ok(decode_memory_stats(&answer.body)?)
    }

    /// What the server remembers of disks that failed, a sentence each. Those of before their last
    /// success are among them.
    pub async fn disk_errors(&self, domain: &Domain) -> Result<Vec<String>, Error> {
        let arguments = domain.encode(Encoder::new()).u32(DISK_ERRORS);
        let answer = self
            .call(Call::new(procedure::DOMAIN_GET_MESSAGES, arguments))
            .await?;
        Ok(decode_messages(&answer.body)?)
    }

    /// The live XML of a running domain, else the defined one.
    pub async fn xml(&self, domain: &Domain) -> Result<String, Error> {
        self.text(
            procedure::DOMAIN_GET_XML_DESC,
            domain.encode(Encoder::new()).u32(0),
        )
        .await
    }

    pub async fn screenshot(&self, domain: &Domain, screen: u32) -> Result<Screenshot, Error> {
        let arguments = domain.encode(Encoder::new()).u32(screen).u32(0);
        let call = Call::new(procedure::DOMAIN_SCREENSHOT, arguments);
        let (answer, stream) = self.call_with_stream(call).await?;
        let mime_type = read(&answer, Decoder::optional_string)?;
        Ok(Screenshot {
            mime_type,
            bytes: stream.read_to_end(MAX_SCREENSHOT).await?,
        })
    }

    /// Opens a pty of the domain as a stream; whoever had it open loses it.
    pub async fn open_console(
        &self,
        domain: &Domain,
        device: Option<&str>,
    ) -> Result<Stream, Error> {
        let arguments = domain
            .encode(Encoder::new())
            .optional_string(device)
            .u32(FORCE_CONSOLE);
        let call = Call::new(procedure::DOMAIN_OPEN_CONSOLE, arguments);
        let (answer, stream) = self.call_with_stream(call).await?;
        read(&answer, |_| Ok(()))?;
        Ok(stream)
    }

    /// A socket on which the graphics server of QEMU is the other end.
    pub async fn open_graphics_fd(&self, domain: &Domain, index: u32) -> Result<OwnedFd, Error> {
        let arguments = domain.encode(Encoder::new()).u32(index).u32(0);
        let mut answer = self
            .call(Call::new(procedure::DOMAIN_OPEN_GRAPHICS_FD, arguments))
            .await?;
        read(&answer, |_| Ok(()))?;
        Ok(answer
            .fds
            .pop()
            .ok_or(ProtocolError::Malformed("an answer without its descriptor"))?)
    }

    /// Gives QEMU's graphics server the far end of a socket pair.
    pub async fn open_graphics(
        &self,
        domain: &Domain,
        index: u32,
        far_end: OwnedFd,
    ) -> Result<(), Error> {
        let arguments = domain.encode(Encoder::new()).u32(index).u32(0);
        let call = Call::new(procedure::DOMAIN_OPEN_GRAPHICS, arguments);
        let answer = self
            .call(Call {
                fds: vec![far_end],
                ..call
            })
            .await?;
        read(&answer, |_| Ok(()))
    }

    /// A command in QEMU's own JSON language.
    pub async fn qmp(&self, domain: &Domain, command: &str) -> Result<String, Error> {
        self.monitor_command(domain, command, 0).await
    }

    /// A command as a person types it at QEMU's monitor.
    pub async fn hmp(&self, domain: &Domain, command: &str) -> Result<String, Error> {
        self.monitor_command(domain, command, MONITOR_HUMAN).await
    }

    async fn monitor_command(&self, at: &Domain, command: &str, how: u32) -> Result<String, Error> {
        let arguments = at.encode(Encoder::new()).string(command).u32(how);
        let call = Call::new(procedure::QEMU_DOMAIN_MONITOR_COMMAND, arguments);
        let answer = self
            .call(Call {
                program: procedure::QEMU,
                ..call
            })
            .await?;
        Ok(decode_text(&answer.body)?)
    }

    /// A command in JSON to the guest's agent, and its answer: words of the guest, not to be
    /// trusted in any way. The agent has `seconds` to answer.
    pub async fn agent(&self, at: &Domain, command: &str, seconds: u16) -> Result<String, Error> {
        let arguments = at
            .encode(Encoder::new())
            .string(command)
            .i32(seconds.into())
            .u32(0);
        let call = Call::new(procedure::QEMU_DOMAIN_AGENT_COMMAND, arguments);
        let answer = self
            .call(Call {
                program: procedure::QEMU,
                ..call
            })
            .await?;
        Ok(decode_optional_text(&answer.body)?)
    }
}

/// Shapes that several answers share.
impl Connection {
    async fn nothing(&self, procedure: i32, arguments: Encoder) -> Result<(), Error> {
        let answer = self.call(Call::new(procedure, arguments)).await?;
        read(&answer, |_| Ok(()))
    }

    async fn text(&self, procedure: i32, arguments: Encoder) -> Result<String, Error> {
        let answer = self.call(Call::new(procedure, arguments)).await?;
        Ok(decode_text(&answer.body)?)
    }

    async fn domain(&self, procedure: i32, arguments: Encoder) -> Result<Domain, Error> {
        let answer = self.call(Call::new(procedure, arguments)).await?;
        read(&answer, Domain::decode)
    }
}

fn read<'a, T>(
    answer: &'a Answer,
    value: impl FnOnce(&mut Decoder<'a>) -> Result<T, ProtocolError>,
) -> Result<T, Error> {
    let mut from = Decoder::new(&answer.body);
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

pub(crate) fn decode_domains(body: &[u8]) -> Result<Vec<Domain>, ProtocolError> {
    let mut from = Decoder::new(body);
    let mut domains = Vec::new();
    for _ in 0..from.count(MAX_DOMAINS)? {
        domains.push(Domain::decode(&mut from)?);
    }
    let _count = from.u32()?;
    from.finish()?;
    Ok(domains)
}
