//! `freeze`: flushes and freezes the guest's file systems, for a copy of its disks.

use kubevirt_api::{VirtualMachineInstance, subresource_bodies::FreezeUnfreezeTimeout};

use super::{VmiVerb, guest};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Freeze;

impl VmiVerb for Freeze {
    const NAME: &'static str = "freeze";
    const REFUSALS: &'static [u16] = &[409, 500];
    type Body = FreezeUnfreezeTimeout;

    fn dry_run(_: &FreezeUnfreezeTimeout) -> &[String] {
        &[]
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        guest::require_running(vmi)?;
        guest::require_agent_for(vmi, "Freeze")
    }

    fn node_request(body: &FreezeUnfreezeTimeout) -> Result<String, Refusal> {
        let Some(timeout) = &body.unfreeze_timeout else {
            let message = "unfreezeTimeout is required: the time after which the guest is thawed \
                           in any case, such as 5m; 0s for never";
            return Err(Refusal::bad_request(message));
        };
        let timeout = timeout.parse();
        let timeout = timeout.map_err(|error| {
            let message = format!("unfreezeTimeout: {error}");
            Refusal::bad_request(message)
        })?;
        match u64::try_from(timeout.as_secs()) {
            Ok(0) if timeout.is_zero() => Ok(Self::NAME.to_owned()),
            // A fraction of a second must not become 0, which means never.
            Ok(seconds) if timeout.is_positive() => {
                let seconds = seconds.max(1);
                Ok(format!("{}?thawAfterSeconds={seconds}", Self::NAME))
            }
            _ => Err(Refusal::bad_request("unfreezeTimeout must not be negative")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_request_has_the_timeout() {
        let request = |timeout: Option<&str>| {
            let body = json!({"unfreezeTimeout": timeout});
            let request = Freeze::node_request(&serde_json::from_value(body).unwrap());
            request.map_err(|refusal| refusal.message)
        };
        assert_eq!(request(Some("0s")), Ok("freeze".to_owned()));
        assert_eq!(
            request(Some("5m")),
            Ok("freeze?thawAfterSeconds=300".to_owned())
        );
        assert_eq!(
            request(Some("10ms")),
            Ok("freeze?thawAfterSeconds=1".to_owned())
        );
        for (timeout, part) in [
            (None, "is required"),
            (Some("-5s"), "negative"),
            (Some("soon"), "is not a duration"),
        ] {
            let message = request(timeout).unwrap_err();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn guest_without_agent_cannot_be_frozen() {
        let admit = |phase: &str, conditions: serde_json::Value| {
            let vmi = json!({"status": {"phase": phase, "conditions": conditions}});
            Freeze::admit(&serde_json::from_value(vmi).unwrap())
        };
        let agent = json!([{"type": "AgentConnected", "status": "True"}]);
        admit("Running", agent.clone()).unwrap();
        admit("Running", json!([])).unwrap_err();
        admit("Scheduled", agent).unwrap_err();
    }
}
