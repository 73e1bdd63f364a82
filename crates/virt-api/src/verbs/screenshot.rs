//! `vnc/screenshot`: a picture of the guest's screen, as PNG.

use kubevirt_api::VirtualMachineInstance;

use super::{
    BytesVerb, Level, StreamVerb as _,
    contract::{Answer, Contract},
    query,
    vnc::Vnc,
};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Screenshot;

impl BytesVerb for Screenshot {
    const NAME: &'static str = "vnc/screenshot";
    /// A picture shows what others type, so the right to the screen is not enough.
    const LEVEL: Level = Level::Admin;
    const CONTRACT: Contract =
        Contract::new(Answer::Png, &[500]).with_query(&[("moveCursor", "boolean")]);

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        Vnc::admit(vmi)
    }

    fn node_request(query: Option<&str>) -> Result<String, Refusal> {
        let move_cursor = query::flag(query, "moveCursor")?;
        Ok(format!("{}?moveCursor={move_cursor}", Self::NAME))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_request_has_the_flag() {
        let request =
            |query| Screenshot::node_request(query).map_err(|refusal| refusal.code.as_u16());
        assert_eq!(
            request(None),
            Ok("vnc/screenshot?moveCursor=false".to_owned())
        );
        assert_eq!(
            request(Some("moveCursor=1")),
            Ok("vnc/screenshot?moveCursor=true".to_owned())
        );
        assert_eq!(request(Some("moveCursor=maybe")), Err(400));
    }
}
