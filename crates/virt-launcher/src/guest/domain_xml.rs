//! What the launcher reads from libvirt's XML of a running domain. Pure.

use launcher_channel::InterfaceLink;
use libvirt::AgentState;

use crate::xml::{self, Step, Walk};

/// The name of the guest agent's channel.
const AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";
/// The model of a memory device whose size follows requests.
const VIRTIO_MEMORY: &str = "virtio-mem";

/// Facts that libvirt adds to a domain when it starts it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LiveDomain {
    /// The machine type as libvirt resolved it, such as `pc-q35-10.0`.
    pub(super) machine: Option<String>,
    pub(super) agent: AgentState,
    pub(super) disks: Vec<LiveDisk>,
    pub(super) interfaces: Vec<LiveInterface>,
    /// Virtual CPUs that are plugged in.
    pub(super) vcpus: Option<u32>,
    /// Memory that can grow and shrink.
    pub(super) memory: Option<LiveMemory>,
}

/// A memory device whose size follows requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveMemory {
    /// Bytes that were requested from the guest.
    pub(super) requested: u64,
    /// Bytes that the guest has taken.
    pub(super) plugged: u64,
    /// The XML inside of its element.
    inner: String,
}

impl LiveMemory {
    fn new(inner: &str) -> Result<Self, xml::Error> {
        let mut found = Self {
            requested: 0,
            plugged: 0,
            inner: inner.to_owned(),
        };
        let mut unit = 1;
        let mut walk = Walk::new(inner);
        while let Some(step) = walk.next()? {
            let part = match walk.path() {
                "/target/requested" => &mut found.requested,
                "/target/current" => &mut found.plugged,
                _ => continue,
            };
            match step {
                Step::Start(tag) => unit = unit_of(tag.attribute("unit")?.as_deref()),
                Step::Text(text) => {
                    *part = text.parse::<u64>().unwrap_or(0).saturating_mul(unit);
                }
            }
        }
        Ok(found)
    }

    /// The XML of the device with another request.
    pub(super) fn with_request(&self, bytes: u64) -> Option<String> {
        const END: &str = "</requested>";
        let start = self.inner.find("<requested")?;
        let (head, rest) = self.inner.split_at_checked(start)?;
        let (_, tail) = rest.split_at_checked(rest.find(END)? + END.len())?;
        Some(format!(
            "<memory model=\"{VIRTIO_MEMORY}\">{head}<requested unit=\"b\">{bytes}{END}{tail}</memory>"
        ))
    }
}

/// The bytes of a unit, as libvirt writes them in a live domain.
fn unit_of(name: Option<&str>) -> u64 {
    match name {
        Some("b" | "bytes") => 1,
        Some("MiB") => 1 << 20,
        _ => 1 << 10,
    }
}

/// A disk that the domain has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LiveDisk {
    pub(super) alias: String,
    /// The device name in the guest.
    pub(super) target: String,
    /// The file or device; `None` for a drive without a medium.
    pub(super) source: Option<String>,
    /// The source is a device.
    pub(super) is_device: bool,
    /// The guest sees only so many bytes of the source.
    pub(super) slice_bytes: Option<u64>,
    /// How its driver caches, and accesses the source.
    pub(super) cache: Option<String>,
    pub(super) io: Option<String>,
}

/// An interface that the domain has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LiveInterface {
    pub(super) alias: String,
    pub(super) link: InterfaceLink,
    kind: String,
    /// The XML inside of its element.
    inner: String,
}

impl LiveInterface {
    fn new(kind: Option<String>, inner: &str) -> Self {
        Self {
            alias: String::new(),
            link: InterfaceLink::Up,
            kind: kind.unwrap_or_default(),
            inner: inner.to_owned(),
        }
    }

    /// The XML of the interface with another link.
    pub(super) fn with_link(&self, link: InterfaceLink) -> String {
        let state = match link {
            InterfaceLink::Up => "up",
            InterfaceLink::Down => "down",
        };
        let Self { kind, inner, .. } = self;
        let before = inner.find("<link ");
        let old = before.and_then(|start| {
            let length = inner.get(start..)?.find("/>")?;
            Some((start, start + length + "/>".len()))
        });
        let (head, tail) = old.map_or((&**inner, ""), |(start, end)| {
            (
                inner.get(..start).unwrap_or_default(),
                inner.get(end..).unwrap_or_default(),
            )
        });
        format!("<interface type=\"{kind}\">{head}{tail}<link state=\"{state}\"/></interface>")
    }

    fn read(&mut self, part: &str, tag: &xml::Tag<'_>) -> Result<(), xml::Error> {
        match part {
            "alias" => self.alias = tag.attribute("name")?.unwrap_or_default(),
            "link" if tag.has("state", "down")? => self.link = InterfaceLink::Down,
            _ => {}
        }
        Ok(())
    }
}

impl LiveDomain {
    pub(super) fn parse(xml: &str) -> Result<Self, xml::Error> {
        let mut found = Self::default();
        let mut walk = Walk::new(xml);
        while let Some(step) = walk.next()? {
            let tag = match step {
                Step::Start(tag) => tag,
                Step::Text(text) => {
                    if walk.path() == "/domain/vcpu" && found.vcpus.is_none() {
                        found.vcpus = text.parse().ok();
                    }
                    continue;
                }
            };
            match walk.path() {
                "/domain/vcpu" => {
                    let current = tag.attribute("current")?;
                    found.vcpus = current.and_then(|count| count.parse().ok());
                }
                "/domain/devices/memory" if tag.has("model", VIRTIO_MEMORY)? => {
                    found.memory = Some(LiveMemory::new(walk.inner_xml(&tag)?)?);
                }
                "/domain/os/type" => found.machine = tag.attribute("machine")?,
                "/domain/devices/channel/target"
                    if tag.has("name", AGENT_CHANNEL)? && tag.has("state", "connected")? =>
                {
                    found.agent = AgentState::Connected;
                }
                "/domain/devices/disk" => found.disks.push(LiveDisk::default()),
                "/domain/devices/interface" => {
                    let inner = walk.inner_xml(&tag)?;
                    let interface = LiveInterface::new(tag.attribute("type")?, inner);
                    found.interfaces.push(interface);
                }
                path => {
                    if let (Some(interface), Some(part)) = (
                        found.interfaces.last_mut(),
                        path.strip_prefix("/domain/devices/interface/"),
                    ) {
                        interface.read(part, &tag)?;
                    }
                    if let (Some(disk), Some(part)) = (
                        found.disks.last_mut(),
                        path.strip_prefix("/domain/devices/disk/"),
                    ) {
                        disk.read(part, &tag)?;
                    }
                }
            }
        }
        Ok(found)
    }
}

impl LiveDisk {
    /// From the XML inside of its element.
    pub(super) fn parse(inner: &str) -> Result<Self, xml::Error> {
        let mut found = Self::default();
        let mut walk = Walk::new(inner);
        while let Some(step) = walk.next()? {
            if let (Step::Start(tag), Some(part)) = (step, walk.path().strip_prefix('/')) {
                found.read(part, &tag)?;
            }
        }
        Ok(found)
    }

    fn read(&mut self, part: &str, tag: &xml::Tag<'_>) -> Result<(), xml::Error> {
        match part {
            "alias" => self.alias = tag.attribute("name")?.unwrap_or_default(),
            "target" => self.target = tag.attribute("dev")?.unwrap_or_default(),
            "driver" => {
                self.cache = tag.attribute("cache")?;
                self.io = tag.attribute("io")?;
            }
            "source" => {
                let file = tag.attribute("file")?;
                self.is_device = file.is_none();
                self.source = file.map_or_else(|| tag.attribute("dev"), |file| Ok(Some(file)))?;
            }
            "source/slices/slice" if tag.has("type", "storage")? => {
                let size = tag.attribute("size")?;
                self.slice_bytes = size.and_then(|size| size.parse().ok());
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(os: &str, target: &str) -> LiveDomain {
        let xml = format!(
            "<domain type='kvm' id='1'>\n  <os>{os}</os>\n  <devices>\
             <channel type='unix'><source mode='bind'/>{target}</channel></devices>\n</domain>\n"
        );
        LiveDomain::parse(&xml).unwrap()
    }

    #[test]
    fn machine_type_is_read() {
        let found = domain("<type arch='x86_64' machine='pc-q35-10.0'>hvm</type>", "");
        assert_eq!(found.machine.as_deref(), Some("pc-q35-10.0"));
        assert_eq!(domain("<type>hvm</type>", "").machine, None);
    }

    #[test]
    fn state_of_the_agent_channel_is_read() {
        for (name, state, expected) in [
            (AGENT_CHANNEL, "connected", AgentState::Connected),
            (AGENT_CHANNEL, "disconnected", AgentState::Disconnected),
            ("org.spice", "connected", AgentState::Disconnected),
        ] {
            let target = format!("<target type='virtio' name='{name}' state='{state}'/>");
            assert_eq!(domain("", &target).agent, expected, "{target}");
        }
        assert_eq!(domain("", "").agent, AgentState::Disconnected);
    }

    #[test]
    fn disks_are_read_without_their_backing_files() {
        let xml = "<domain><devices>\
             <disk type='file' device='disk'><source file='/a.img' index='1'/>\
             <backingStore type='file'><source file='/below'/></backingStore>\
             <target dev='sda' bus='scsi'/><alias name='ua-a'/></disk>\
             <disk type='block' device='cdrom'><target dev='sdb' bus='sata'/>\
             <alias name='ua-b'/></disk></devices></domain>";
        let disk = |alias: &str, target: &str, source: Option<&str>| LiveDisk {
            alias: alias.to_owned(),
            target: target.to_owned(),
            source: source.map(str::to_owned),
            ..LiveDisk::default()
        };
        assert_eq!(
            LiveDomain::parse(xml).unwrap().disks,
            [
                disk("ua-a", "sda", Some("/a.img")),
                disk("ua-b", "sdb", None)
            ]
        );
    }

    #[test]
    fn processors_are_those_that_are_plugged_in() {
        let vcpus = |xml: &str| LiveDomain::parse(xml).unwrap().vcpus;
        let some = "<domain><vcpu placement='static' current='2'>8</vcpu></domain>";
        assert_eq!(vcpus(some), Some(2));
        let all = "<domain><vcpu placement='static'>8</vcpu></domain>";
        assert_eq!(vcpus(all), Some(8));
        assert_eq!(vcpus("<domain/>"), None);
    }

    #[test]
    fn only_the_request_of_a_memory_device_changes() {
        let device = |requested: &str| {
            format!(
                "<target><size unit='KiB'>3145728</size><node>0</node>\
                 <block unit='KiB'>2048</block>{requested}\
                 <current unit='KiB'>524288</current></target>\
                 <alias name='ua-memory'/>"
            )
        };
        let inner = device("<requested unit='KiB'>1048576</requested>");
        let xml = format!(
            "<domain><devices><memory model='dimm'><target/></memory>\
             <memory model='virtio-mem'>{inner}</memory></devices></domain>"
        );
        let memory = LiveDomain::parse(&xml).unwrap().memory.unwrap();
        assert_eq!((memory.requested, memory.plugged), (1 << 30, 1 << 29));
        let changed = memory.with_request(2 << 20).unwrap();
        let inner = device("<requested unit=\"b\">2097152</requested>");
        assert_eq!(
            changed,
            format!("<memory model=\"virtio-mem\">{inner}</memory>")
        );
        let without = LiveMemory::new("<target/>").unwrap();
        assert_eq!(without.with_request(1), None);
    }

    #[test]
    fn malformed_xml_is_an_error() {
        LiveDomain::parse("<domain><os></domain>").unwrap_err();
        LiveDomain::parse("<domain").unwrap_err();
    }
}
