//! Encryption of the guest's memory.

use kubevirt_api::annotations;
use kubevirt_api::domain::Sev;
use model::{Architecture, Guest};

use crate::element::Element;

/// The host cannot debug the guest.
const SEV_POLICY: u32 = 0x1;
/// The registers of the guest are encrypted, too.
const SEV_ES_POLICY: u32 = 0x4;
/// Simultaneous threads are permitted, and a reserved bit that must be set.
const SNP_POLICY: u32 = 0x3_0000;

/// Guests of s390x encrypt their memory themselves.
pub(crate) fn render(guest: &Guest<'_>) -> Option<Element> {
    let security = guest.vmi.spec.domain.launch_security.as_ref()?;
    if guest.architecture == Architecture::S390x {
        return None;
    }
    let element = |kind: &str| Element::new("launchSecurity").attr("type", kind);
    if security.snp.is_some() {
        return Some(element("sev-snp").child(policy(SNP_POLICY)));
    }
    if security.tdx.is_some() {
        let annotated = guest.vmi.metadata.annotations.as_ref();
        let socket = annotated.and_then(|all| all.get(annotations::QGS_SOCKET_PATH));
        let service = socket.map(|path| Element::new("quoteGenerationService").attr("path", path));
        return Some(element("tdx").children(service));
    }
    security.sev.as_ref().map(|sev| {
        let owner = [("dhCert", &sev.dh_cert), ("session", &sev.session)];
        let owner = owner.into_iter().filter_map(|(name, value)| {
            let value = value.as_deref().filter(|value| !value.is_empty())?;
            Some(Element::new(name).text(value))
        });
        element("sev")
            .child(policy(sev_policy(sev)))
            .children(owner)
    })
}

fn sev_policy(sev: &Sev) -> u32 {
    let policy = sev.policy.as_ref();
    let has_state = policy.is_some_and(|policy| policy.encrypted_state == Some(true));
    if has_state {
        SEV_POLICY | SEV_ES_POLICY
    } else {
        SEV_POLICY
    }
}

fn policy(bits: u32) -> Element {
    Element::new("policy").text(format!("{bits:#x}"))
}
