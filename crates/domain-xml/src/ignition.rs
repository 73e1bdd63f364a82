//! The Ignition configuration, which the guest's first boot reads from the firmware's configuration device.

use kubevirt_api::annotations;
use model::{Architecture, Guest, paths};

use crate::RenderError;
use crate::element::Element;

/// The name by which Ignition looks for it.
const NAME: &str = "opt/com.coreos/config";

pub(crate) fn render(guest: &Guest<'_>) -> Result<Option<Element>, RenderError> {
    if guest.ignition().is_none() {
        return Ok(None);
    }
    if guest.architecture == Architecture::S390x {
        let field = format!("metadata.annotations[{}]", annotations::IGNITION_DATA);
        let problem = "machines of s390x cannot show it to the guest; put the configuration into the user data of \
                       cloudInitConfigDrive";
        return Err(RenderError::invalid(field, problem));
    }
    let file = paths::ignition(guest.namespace(), guest.name());
    let entry = Element::new("entry").attr("name", NAME).attr("file", file);
    Ok(Some(
        Element::new("sysinfo").attr("type", "fwcfg").child(entry),
    ))
}
