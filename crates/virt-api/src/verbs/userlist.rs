//! `userlist`: who is logged in, by the guest's agent.

use super::AgentVerb;

#[derive(Debug)]
pub(super) struct UserList;

impl AgentVerb for UserList {
    const NAME: &'static str = "userlist";
    const REPORT: &'static str = "VirtualMachineInstanceGuestOSUserList";
}
