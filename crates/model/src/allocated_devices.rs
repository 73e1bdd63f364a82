//! Devices of the node that its kubelet allocated to a pod: those that device plugins describe in variables of the
//! container, and those of resource claims ([`crate::claimed_device`]).
//!
//! The names of the variables are those that device plugins of others set for `KubeVirt`, too. The text
//! is not trusted: a value with anything but addresses is refused as a whole.

use std::collections::BTreeMap;
use std::fmt;

use crate::PciAddress;

const PCI: &str = "PCI_RESOURCE_";
const MEDIATED: &str = "MDEV_PCI_RESOURCE_";
const USB: &str = "USB_RESOURCE_";

/// The most devices of a pod.
const MAX_DEVICES: usize = 256;

/// The devices of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllocatedDevices {
    /// By the last part of the variable.
    by_resource: BTreeMap<String, Vec<DeviceAddress>>,
    /// By claim and request.
    by_claim: BTreeMap<(String, String), DeviceAddress>,
}

/// Where the node has the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceAddress {
    Pci(PciAddress),
    Mediated(MediatedUuid),
    Usb(UsbAddress),
}

/// The UUID of a mediated device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MediatedUuid(u128);

/// The bus of a USB device, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UsbAddress {
    pub bus: u16,
    pub device: u16,
}

/// A variable that does not hold addresses. It is not quoted, since the pod's processes control it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAllocation {
    #[error("variable {variable} of the pod does not hold addresses of devices")]
    Malformed { variable: String },
    #[error("the variables of the pod name more than {MAX_DEVICES} devices")]
    TooMany,
}

impl AllocatedDevices {
    /// Reads the variables of a container; others are left out.
    pub fn of<'a>(
        variables: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, InvalidAllocation> {
        let mut found = Self::default();
        let mut count = 0;
        for (variable, value) in variables {
            let kinds = [PCI, MEDIATED, USB];
            let matching = kinds.into_iter().find(|kind| variable.starts_with(kind));
            let Some((kind, resource)) =
                matching.and_then(|kind| Some((kind, variable.strip_prefix(kind)?)))
            else {
                continue;
            };
            for text in value.split(',').filter(|text| !text.is_empty()) {
                count += 1;
                if count > MAX_DEVICES {
                    return Err(InvalidAllocation::TooMany);
                }
                let address = DeviceAddress::parse(kind, text.trim());
                let address = address.ok_or_else(|| InvalidAllocation::Malformed {
                    variable: format!("{kind}{resource}"),
                })?;
                let all = found.by_resource.entry(resource.to_owned()).or_default();
                all.push(address);
            }
        }
        Ok(found)
    }

    /// Adds the device of a request in a resource claim.
    #[must_use]
    pub fn with_claimed(mut self, claim: &str, request: &str, device: DeviceAddress) -> Self {
        let key = (claim.to_owned(), request.to_owned());
        self.by_claim.insert(key, device);
        self
    }

    /// The device of a request in a resource claim.
    pub fn of_claim(&self, claim: &str, request: &str) -> Option<DeviceAddress> {
        let key = (claim.to_owned(), request.to_owned());
        self.by_claim.get(&key).copied()
    }

    /// The addresses of all PCI devices.
    pub fn pci(&self) -> impl Iterator<Item = PciAddress> {
        let all = self.by_resource.values().flatten();
        all.chain(self.by_claim.values())
            .filter_map(|device| match device {
                DeviceAddress::Pci(address) => Some(*address),
                DeviceAddress::Mediated(_) | DeviceAddress::Usb(_) => None,
            })
    }

    /// The devices of a resource, in the order of their allocation.
    pub fn of_resource(&self, resource: &str) -> &[DeviceAddress] {
        let all = self.by_resource.get(&variable_part(resource));
        all.map_or(&[], Vec::as_slice)
    }
}

impl DeviceAddress {
    fn parse(kind: &str, text: &str) -> Option<Self> {
        match kind {
            PCI => PciAddress::parse(text).map(Self::Pci),
            MEDIATED => MediatedUuid::parse(text).map(Self::Mediated),
            _ => UsbAddress::parse(text).map(Self::Usb),
        }
    }

    /// The variable that lists the devices of a resource for a container; all of one resource are of a kind.
    pub fn variable(&self, resource: &str) -> String {
        let kind = match self {
            Self::Pci(_) => PCI,
            Self::Mediated(_) => MEDIATED,
            Self::Usb(_) => USB,
        };
        format!("{kind}{}", variable_part(resource))
    }
}

/// How a resource is written in the name of a variable.
fn variable_part(resource: &str) -> String {
    resource.to_uppercase().replace(['/', '.'], "_")
}

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(address) => address.fmt(f),
            Self::Mediated(uuid) => uuid.fmt(f),
            Self::Usb(address) => address.fmt(f),
        }
    }
}

impl MediatedUuid {
    pub fn of(value: u128) -> Self {
        Self(value)
    }

    /// Reads the form `8-4-4-4-12` of hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let lengths = [8, 4, 4, 4, 12];
        let mut parts = text.split('-');
        let mut digits = String::new();
        for length in lengths {
            let part = parts.next().filter(|part| part.len() == length)?;
            if !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return None;
            }
            digits.push_str(part);
        }
        let value = u128::from_str_radix(&digits, 16).ok()?;
        parts.next().is_none().then_some(Self(value))
    }
}

impl fmt::Display for MediatedUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = format!("{:032x}", self.0);
        let lengths = [8, 4, 4, 4, 12];
        let mut rest = digits.as_str();
        for (index, length) in lengths.into_iter().enumerate() {
            let (part, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
            let dash = if index == 0 { "" } else { "-" };
            write!(f, "{dash}{part}")?;
            rest = after;
        }
        Ok(())
    }
}

impl UsbAddress {
    /// Reads the form `1:12`, in decimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let (bus, device) = text.split_once(':')?;
        let number = |text: &str| {
            let is_number =
                (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number
                .then(|| text.parse::<u16>().ok())?
                .filter(|number| *number > 0)
        };
        Some(Self {
            bus: number(bus)?,
            device: number(device)?,
        })
    }
}

impl fmt::Display for UsbAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.bus, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "aa618089-8b16-4d01-a136-25a0f3c73123";

    #[test]
    fn devices_are_found_by_the_name_of_their_resource() {
        let variables = [
            ("PATH", "/bin"),
            (
                "PCI_RESOURCE_EXAMPLE_COM_CARD",
                "0000:81:01.0,0000:82:00.1,",
            ),
            ("MDEV_PCI_RESOURCE_EXAMPLE_COM_SLICE", UUID),
            ("USB_RESOURCE_EXAMPLE_COM_DONGLE", "1:12, 003:4"),
        ];
        let found = AllocatedDevices::of(variables.into_iter()).expect("addresses");
        for (resource, expected) in [
            ("example.com/card", vec!["0000:81:01.0", "0000:82:00.1"]),
            ("example.com/slice", vec![UUID]),
            ("Example.com/dongle", vec!["1:12", "3:4"]),
            ("example.com/other", vec![]),
        ] {
            let devices = found.of_resource(resource);
            let texts: Vec<String> = devices.iter().map(ToString::to_string).collect();
            assert_eq!(texts, expected, "{resource}");
            for device in devices {
                let variable = device.variable(resource);
                assert!(
                    variables.iter().any(|(name, _)| *name == variable),
                    "{variable}"
                );
            }
        }
    }

    #[test]
    fn value_with_anything_but_addresses_is_refused() {
        for (variable, value) in [
            ("PCI_RESOURCE_A_B", "0000:81:01.0\"/><x"),
            ("PCI_RESOURCE_A_B", "81:01.0"),
            ("PCI_RESOURCE_A_B", "0000:81:01.0,../x"),
            (
                "MDEV_PCI_RESOURCE_A_B",
                "aa618089-8b16-4d01-a136-25a0f3c7312",
            ),
            ("MDEV_PCI_RESOURCE_A_B", "aa6180898b164d01a13625a0f3c73123"),
            (
                "MDEV_PCI_RESOURCE_A_B",
                "+a618089-8b16-4d01-a136-25a0f3c73123",
            ),
            (
                "MDEV_PCI_RESOURCE_A_B",
                "aa618089-8b16-4d01-a136-25a0f3c73123-",
            ),
            ("USB_RESOURCE_A_B", "1"),
            ("USB_RESOURCE_A_B", "1:0"),
            ("USB_RESOURCE_A_B", "1:+2"),
            ("USB_RESOURCE_A_B", "1:1234"),
            ("USB_RESOURCE_A_B", "0000:81:01.0"),
        ] {
            let error = AllocatedDevices::of([(variable, value)].into_iter()).expect_err(value);
            let expected = InvalidAllocation::Malformed {
                variable: variable.to_owned(),
            };
            assert_eq!(error, expected, "{value}");
        }
    }

    #[test]
    fn number_of_devices_is_limited() {
        let value = |count: usize| vec!["1:2"; count].join(",");
        let read = |value: &str| AllocatedDevices::of([("USB_RESOURCE_A_B", value)].into_iter());
        let found = read(&value(MAX_DEVICES)).expect("few");
        assert_eq!(found.of_resource("a/b").len(), MAX_DEVICES);
        assert_eq!(
            read(&value(MAX_DEVICES + 1)),
            Err(InvalidAllocation::TooMany)
        );
    }
}
