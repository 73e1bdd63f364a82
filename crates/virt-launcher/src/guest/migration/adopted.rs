//! The XML of a guest of another VMI, with the paths that this pod has. Pure.
//!
//! Some paths in a pod are made of the UID, or of namespace and name, of its VMI. The other launcher names its own; it
//! is a tenant's process, so they are checked before anything is replaced by them.

use libvirt::DomainUuid;

use super::peer::Origin;

/// Length of a UID in its usual form.
const UID_LENGTH: usize = 36;
/// Longest `<namespace>_<vmi>`.
const MAX_NAME: usize = 63 + 1 + 253;

/// Why a guest was not adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::guest) enum AdoptError {
    #[error("the UID of the other VMI is malformed")]
    Uid,
    #[error("the UUID of the guest is malformed")]
    Uuid,
    #[error("the name of the other VMI is malformed")]
    Name,
}

/// The XML with the paths of this pod in place of those of the other one.
pub(super) fn xml(xml: String, origin: &Origin, own: &Origin) -> Result<String, AdoptError> {
    let is_uid = |uid: &str| {
        let mut signs = uid.bytes();
        uid.len() == UID_LENGTH && signs.all(|sign| sign.is_ascii_hexdigit() || sign == b'-')
    };
    if !is_uid(&origin.vmi_uid) {
        return Err(AdoptError::Uid);
    }
    if DomainUuid::parse(&origin.domain_uuid).is_none() {
        return Err(AdoptError::Uuid);
    }
    let before = directories(&origin.domain_name).ok_or(AdoptError::Name)?;
    let after = directories(&own.domain_name).ok_or(AdoptError::Name)?;
    let mut xml = xml;
    for directory in PARENTS {
        xml = xml.replace(
            &format!("/{directory}/{before}/"),
            &format!("/{directory}/{after}/"),
        );
    }
    // Of the guest's own UUID, should it be the same, nothing is replaced.
    if origin.vmi_uid == origin.domain_uuid {
        let (from, to) = (&origin.vmi_uid, &own.vmi_uid);
        return Ok(xml.replace(&format!("/{from}/"), &format!("/{to}/")));
    }
    Ok(xml.replace(&origin.vmi_uid, &own.vmi_uid))
}

/// Directories with one for each namespace, as in `model::paths`.
const PARENTS: [&str; 2] = ["cloud-init-data", "ignition-data"];

/// `<namespace>/<vmi>` of `<namespace>_<vmi>`.
fn directories(domain_name: &str) -> Option<String> {
    let (namespace, name) = domain_name.split_once('_')?;
    let is_name = |text: &str| {
        let mut signs = text.bytes();
        let is_sign = |sign: u8| {
            sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == b'-' || sign == b'.'
        };
        !text.is_empty() && !text.starts_with('.') && signs.all(is_sign)
    };
    let is_valid = domain_name.len() <= MAX_NAME && is_name(namespace) && is_name(name);
    is_valid.then(|| format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "f741ae22-8952-4f7d-8511-7c2739f234d7";
    const OTHER_UID: &str = "0a1b2c3d-8952-4f7d-8511-7c2739f234d7";
    const UUID: &str = "69a61d3f-50cc-4611-b6e2-e53205a02bad";

    fn origin(vmi_uid: &str, domain_name: &str) -> Origin {
        Origin {
            vmi_uid: vmi_uid.to_owned(),
            domain_name: domain_name.to_owned(),
            domain_uuid: UUID.to_owned(),
        }
    }

    #[test]
    fn guest_gets_the_paths_of_its_new_pod() {
        let written = |uid: &str, place: &str| {
            format!(
                "<uuid>{UUID}</uuid><kubevirt><uid>{uid}</uid></kubevirt>\
                 <source path='/var/run/kubevirt-private/{uid}/virt-serial0'/>\
                 <source file='/var/run/kubevirt-ephemeral-disks/cloud-init-data/{place}/noCloud.iso'/>\
                 <source file='/var/run/kubevirt-private/vmi-disks/{place}/disk.img'/>"
            )
        };
        let found = xml(
            written(UID, "a/vm"),
            &origin(UID, "a_vm"),
            &origin(OTHER_UID, "b_other.vm"),
        )
        .unwrap();
        // Disks have the names of volumes, which are the same at both ends.
        let expected =
            written(OTHER_UID, "b/other.vm").replace("vmi-disks/b/other.vm", "vmi-disks/a/vm");
        assert_eq!(found, expected);
    }

    #[test]
    fn malformed_origin_is_refused() {
        let own = origin(OTHER_UID, "b_vm");
        let check = |other: Origin, expected: AdoptError| {
            let found = xml("<domain/>".to_owned(), &other, &own);
            assert_eq!(found, Err(expected), "{other:?}");
        };
        check(origin("", "a_vm"), AdoptError::Uid);
        check(origin(&"/".repeat(36), "a_vm"), AdoptError::Uid);
        for name in ["", "a", "a_", "_vm", "a/b_vm", "a_..", "a_<vm", "a_VM"] {
            check(origin(UID, name), AdoptError::Name);
        }
        let mut other = origin(UID, "a_vm");
        other.domain_uuid = "x".to_owned();
        check(other, AdoptError::Uuid);
    }
}
