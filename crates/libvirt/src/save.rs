//! The whole state of a guest, saved to a file that ends its QEMU, and restored from it.

use std::time::Duration;

use crate::connection::Call;
use crate::xdr::Encoder;
use crate::{Connection, Domain, Error, procedure};

/// Both last as long as the storage needs.
const NO_LIMIT: Duration = Duration::from_hours(24 * 365);
/// The guest is paused after it was restored.
const PAUSED: u32 = 1 << 2;

/// How a file begins that holds a whole state. While it is written it begins with other bytes.
pub const SAVED_MAGIC: &[u8; 16] = b"LibvirtQemudSave";

impl Connection {
    /// Writes memory and devices of a domain to a file on the server's side, and ends its QEMU. If that
    /// fails, the guest goes on.
    pub async fn save(&self, domain: &Domain, path: &str) -> Result<(), Error> {
        let call = Call::new(procedure::DOMAIN_SAVE_FLAGS, save_arguments(domain, path));
        self.with_limit(NO_LIMIT).call(call).await?;
        Ok(())
    }

    /// Starts a domain, paused, from such a file. The XML replaces that of the file, which libvirt refuses
    /// if the guest would see other hardware.
    pub async fn restore_paused(&self, path: &str, xml: &str) -> Result<(), Error> {
        let call = Call::new(
            procedure::DOMAIN_RESTORE_FLAGS,
            restore_arguments(path, xml),
        );
        self.with_limit(NO_LIMIT).call(call).await?;
        Ok(())
    }
}

fn save_arguments(domain: &Domain, path: &str) -> Encoder {
    let arguments = domain.encode(Encoder::new()).string(path);
    arguments.optional_string(None).u32(0)
}

fn restore_arguments(path: &str, xml: &str) -> Encoder {
    let arguments = Encoder::new().string(path);
    arguments.optional_string(Some(xml)).u32(PAUSED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DomainUuid;

    #[test]
    fn state_is_saved_without_and_restored_with_xml() {
        let domain = Domain {
            name: "n_a".to_owned(),
            uuid: DomainUuid::parse("69a61d3f-50cc-4611-b6e2-e53205a02bad").unwrap(),
            id: Some(1),
        };
        let expected = domain.encode(Encoder::new()).string("/d/x").u32(0).u32(0);
        assert_eq!(save_arguments(&domain, "/d/x").finish(), expected.finish());
        let expected = Encoder::new().string("/d/x").u32(1).string("<x/>").u32(4);
        assert_eq!(
            restore_arguments("/d/x", "<x/>").finish(),
            expected.finish()
        );
    }
}
