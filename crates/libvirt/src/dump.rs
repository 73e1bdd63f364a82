//! The memory of a running guest, as a file for debuggers.

use std::time::Duration;

use crate::connection::Call;
use crate::xdr::{Decoder, Encoder};
use crate::{Connection, Domain, Error, ProtocolError, procedure};

/// A dump lasts as long as its storage needs.
const NO_LIMIT: Duration = Duration::from_hours(24 * 365);
/// An ELF core, which is not compressed.
const RAW: u32 = 0;
/// libvirt does not pause the guest. QEMU does, and lets it go on at the end, even if libvirtd has died.
const LIVE: u32 = 1 << 1;
/// Only the memory, in a form that needs no QEMU to read.
const MEMORY_ONLY: u32 = 1 << 4;

impl Connection {
    /// Writes the memory of a running domain to a file on the server's side, and returns at the end.
    pub async fn dump_memory(&self, domain: &Domain, path: &str) -> Result<(), Error> {
        let call = Call::new(
            procedure::DOMAIN_CORE_DUMP_WITH_FORMAT,
            arguments(domain, path),
        );
        self.with_limit(NO_LIMIT).call(call).await?;
        Ok(())
    }

    /// Whether a long operation works on a domain, such as a dump that an earlier client has begun.
    pub async fn has_job(&self, domain: &Domain) -> Result<bool, Error> {
        let arguments = domain.encode(Encoder::new()).u32(0);
        let call = Call::new(procedure::DOMAIN_GET_JOB_STATS, arguments);
        Ok(decode_has_job(&self.call(call).await?.body)?)
    }
}

fn arguments(domain: &Domain, path: &str) -> Encoder {
    domain
        .encode(Encoder::new())
        .string(path)
        .u32(RAW)
        .u32(LIVE | MEMORY_ONLY)
}

/// The answer begins with the kind of the job; 0 is none.
pub(crate) fn decode_has_job(body: &[u8]) -> Result<bool, ProtocolError> {
    Ok(Decoder::new(body).i32()? != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DomainUuid;

    #[test]
    fn dump_is_a_live_one_of_the_memory_alone() {
        let domain = Domain {
            name: "n_a".to_owned(),
            uuid: DomainUuid::parse("69a61d3f-50cc-4611-b6e2-e53205a02bad").unwrap(),
            id: Some(1),
        };
        let body = arguments(&domain, "/d/x").finish();
        let expected = domain
            .encode(Encoder::new())
            .string("/d/x")
            .u32(0)
            .u32(0b1_0010)
            .finish();
        assert_eq!(body, expected);
    }

    #[test]
    fn job_of_kind_none_is_no_job() {
        for (kind, expected) in [(0, false), (2, true)] {
            let body = Encoder::new().i32(kind).u32(0).finish();
            assert_eq!(decode_has_job(&body), Ok(expected));
        }
        assert!(decode_has_job(&[]).is_err());
    }
}
