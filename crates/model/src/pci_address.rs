//! Addresses on the guest's PCI bus, as users write them.

use std::fmt;

/// A function of a PCI device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    pub domain: u16,
    pub bus: u8,
    pub slot: u8,
    pub function: u8,
}

const MAX_SLOT: u8 = 0x1f;
const MAX_FUNCTION: u8 = 7;

impl PciAddress {
    /// Reads the form `0000:81:01.0`.
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (slot, function) = rest.split_once('.')?;
        let byte = |text: &str, digits| u8::try_from(hex(text, digits)?).ok();
        let address = Self {
            domain: hex(domain, 4)?,
            bus: byte(bus, 2)?,
            slot: byte(slot, 2)?,
            function: byte(function, 1)?,
        };
        (address.slot <= MAX_SLOT && address.function <= MAX_FUNCTION).then_some(address)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            slot,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{slot:02x}.{function}")
    }
}

/// A number of exactly that many hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u16> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then(|| u16::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_fixed_digits_and_ranges() {
        for text in ["0000:81:01.0", "ffff:ff:1f.7", "0001:00:0a.3"] {
            let address = PciAddress::parse(text).map(|address| address.to_string());
            assert_eq!(address.as_deref(), Some(text));
        }
        for text in [
            "",
            "81:01.0",
            "0000:81:01",
            "0000:81:20.0",
            "0000:81:01.8",
            "0000:081:01.0",
            "0000:81:1.0",
            "0000:81:01.00",
            "+000:81:01.0",
            "0000:8g:01.0",
            "0000.81.01.0",
        ] {
            assert_eq!(PciAddress::parse(text), None, "{text:?}");
        }
    }
}
