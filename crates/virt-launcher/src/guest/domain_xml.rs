//! What the launcher reads from libvirt's XML of a running domain. Pure.

use launcher_channel::InterfaceLink;
use libvirt::AgentState;

use crate::xml::{self, Step, Walk};

/// The name of the guest agent's channel.
const AGENT_CHANNEL: &str = "org.qemu.guest_agent.0";

/// Facts that libvirt adds to a domain when it starts it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LiveDomain {
    /// The machine type as libvirt resolved it, such as `pc-q35-10.0`.
    pub(super) machine: Option<String>,
    pub(super) agent: AgentState,
    pub(super) disks: Vec<LiveDisk>,
    pub(super) interfaces: Vec<LiveInterface>,
}

/// A disk that the domain has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LiveDisk {
    pub(super) alias: String,
    /// The device name in the guest.
    pub(super) target: String,
    /// The file or device; `None` for a drive without a medium.
    pub(super) source: Option<String>,
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
            let Step::Start(tag) = step else { continue };
            match walk.path() {
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
    fn read(&mut self, part: &str, tag: &xml::Tag<'_>) -> Result<(), xml::Error> {
        match part {
            "alias" => self.alias = tag.attribute("name")?.unwrap_or_default(),
            "target" => self.target = tag.attribute("dev")?.unwrap_or_default(),
            "source" => {
                let file = tag.attribute("file")?;
                self.source = file.map_or_else(|| tag.attribute("dev"), |file| Ok(Some(file)))?;
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
    fn malformed_xml_is_an_error() {
        LiveDomain::parse("<domain><os></domain>").unwrap_err();
        LiveDomain::parse("<domain").unwrap_err();
    }
}
