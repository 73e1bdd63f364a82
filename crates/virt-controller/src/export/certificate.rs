//! The certificate of an export server, from an authority that signs nothing else: its key is thrown away.

use jiff::{SignedDuration, Timestamp};
use serving::{Authority, Identity, Leaf, PkiError, Validity};

/// The server may run a little longer than the export.
const SLACK: SignedDuration = SignedDuration::from_hours(1);
/// A name of its own would say nothing: the authority is taken from the export's status.
const NAME: &str = "ferrovirt export";

/// The certificate with its key, and the authority in PEM.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) identity: Identity,
    pub(super) authority: String,
}

/// For the names of a service, until the export ends.
pub(super) fn issue(
    (service, namespace): (&str, &str),
    now: Timestamp,
    until: Timestamp,
) -> Result<Certificate, PkiError> {
    let lifetime = until.duration_since(now).saturating_add(SLACK);
    let validity = Validity::starting(now, lifetime);
    let authority = Authority::create(NAME, validity)?;
    let mut leaf = Leaf::server(NAME, validity);
    leaf.dns_names = vec![
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.cluster.local"),
        format!("{service}.{namespace}"),
        service.to_owned(),
    ];
    Ok(Certificate {
        identity: authority.issue(&leaf)?,
        authority: authority.trust().pem().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serving::{Trust, believes};

    use super::*;

    #[test]
    fn certificate_is_for_its_service_and_its_time() {
        let now: Timestamp = "2026-11-26T04:00:00Z".parse().unwrap();
        let until = now + SignedDuration::from_hours(2);
        let name = format!("virt-export-{}", "a".repeat(51));
        let made = issue((&name, "ns"), now, until).unwrap();
        let trust = Trust::from_pem(made.authority);
        let check = |name: &str, at: Timestamp, expected: bool| {
            let found = believes(&trust, &made.identity, name, at).unwrap();
            assert_eq!(found, expected, "{name} {at}");
        };
        check(&format!("{name}.ns.svc"), now, true);
        check(&format!("{name}.ns.svc.cluster.local"), now, true);
        check(&name, until, true);
        check(&format!("{name}.other.svc"), now, false);
        check(&name, until + SignedDuration::from_hours(2), false);
    }
}
