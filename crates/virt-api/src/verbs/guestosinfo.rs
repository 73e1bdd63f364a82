//! `guestosinfo`: all that the guest's agent tells.

use super::AgentVerb;

#[derive(Debug)]
pub(super) struct GuestOsInfo;

impl AgentVerb for GuestOsInfo {
    const NAME: &'static str = "guestosinfo";
}
