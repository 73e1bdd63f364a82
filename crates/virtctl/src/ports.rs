//! The arguments of `port-forward`: `type/name[/namespace]` and `[protocol/]localPort[:targetPort]`; why a local port
//! cannot be offered.

use std::{fmt, io, str::FromStr};

/// A VM or VMI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardTarget {
    /// The plural of its kind.
    pub plural: &'static str,
    pub name: String,
    /// `None`: that of the command line or kubeconfig.
    pub namespace: Option<String>,
}

impl FromStr for ForwardTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text:?} is not of the form vm/NAME, vmi/NAME or vmi/NAME/NAMESPACE");
        let mut parts = text.split('/');
        let (Some(kind), Some(name)) = (parts.next(), parts.next()) else {
            return Err(wrong());
        };
        let namespace = parts.next();
        if parts.next().is_some() || name.is_empty() || namespace == Some("") {
            return Err(wrong());
        }
        let plural = match kind.to_ascii_lowercase().as_str() {
            "vm" | "vms" | "virtualmachine" | "virtualmachines" => "virtualmachines",
            "vmi" | "vmis" | "virtualmachineinstance" | "virtualmachineinstances" => {
                "virtualmachineinstances"
            }
            other => return Err(format!("kind {other:?} is not vm or vmi")),
        };
        Ok(Self {
            plural,
            name: name.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// A local port and the guest's port behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwardedPort {
    pub protocol: Protocol,
    /// 0 chooses a free one.
    pub local: u16,
    pub target: u16,
}

impl FromStr for ForwardedPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (protocol, ports) = match text.split_once('/') {
            None => (Protocol::Tcp, text),
            Some(("tcp", ports)) => (Protocol::Tcp, ports),
            Some(("udp", ports)) => (Protocol::Udp, ports),
            Some((other, _)) => return Err(format!("protocol {other:?} is not tcp or udp")),
        };
        let number = |text: &str| {
            let port = text.parse::<u16>();
            port.map_err(|_| format!("port {text:?} is not a number from 0 to 65535"))
        };
        let (local, target) = match ports.split_once(':') {
            None => (number(ports)?, number(ports)?),
            Some((local, target)) => (number(local)?, number(target)?),
        };
        if target == 0 {
            return Err("the guest's port must not be 0: give LOCAL:TARGET".to_owned());
        }
        Ok(Self {
            protocol,
            local,
            target,
        })
    }
}

/// Why a local port cannot be offered.
pub(crate) fn not_offered(address: &impl fmt::Display, error: io::Error) -> anyhow::Error {
    let at = format!("listen on {address}");
    if error.kind() == io::ErrorKind::AddrInUse {
        anyhow::anyhow!(
            "{at}: another program has this port: choose another one, or 0 for any that is free"
        )
    } else {
        anyhow::Error::new(error).context(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_parse() {
        for (text, plural, name, namespace) in [
            ("vm/a", "virtualmachines", "a", None),
            ("vmi/a", "virtualmachineinstances", "a", None),
            ("VMIs/a.b", "virtualmachineinstances", "a.b", None),
            (
                "virtualmachine/a/tests",
                "virtualmachines",
                "a",
                Some("tests"),
            ),
        ] {
            let target: ForwardTarget = text.parse().unwrap();
            assert_eq!((target.plural, &*target.name), (plural, name));
            assert_eq!(target.namespace.as_deref(), namespace);
        }
        for wrong in ["", "a", "pod/a", "vm/", "vm/a/", "vm/a/b/c"] {
            wrong.parse::<ForwardTarget>().unwrap_err();
        }
    }

    #[test]
    fn ports_parse() {
        for (text, protocol, local, target) in [
            ("8080", Protocol::Tcp, 8080, 8080),
            ("8080:80", Protocol::Tcp, 8080, 80),
            ("0:22", Protocol::Tcp, 0, 22),
            ("udp/53", Protocol::Udp, 53, 53),
            ("tcp/1:2", Protocol::Tcp, 1, 2),
        ] {
            let wanted = ForwardedPort {
                protocol,
                local,
                target,
            };
            assert_eq!(text.parse(), Ok(wanted), "{text}");
        }
        for wrong in [
            "", "0", "65536", "22:", ":22", "sctp/22", "1:2:3", "ssh", "22:0",
        ] {
            wrong.parse::<ForwardedPort>().unwrap_err();
        }
    }
}
