//! `guestosinfo`: everything that the guest agent reports.

use super::AgentVerb;

#[derive(Debug)]
pub(super) struct GuestOsInfo;

impl AgentVerb for GuestOsInfo {
    const NAME: &'static str = "guestosinfo";
    const REPORT: &'static str = "VirtualMachineInstanceGuestAgentInfo";
}
