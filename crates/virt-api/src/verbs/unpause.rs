//! `unpause`: resumes a paused guest.

use kubevirt_api::{VirtualMachine, VirtualMachineInstance, subresource_bodies::UnpauseOptions};

use super::{VmiVerb, guest};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Unpause;

impl VmiVerb for Unpause {
    const NAME: &'static str = "unpause";
    const REFUSALS: &'static [u16] = &[404, 409];
    type Body = UnpauseOptions;

    fn dry_run(body: &UnpauseOptions) -> &[String] {
        &body.dry_run
    }

    const ASKS_VM: bool = true;

    /// A snapshot of a running guest may keep it paused.
    fn admit_vm(vm: &VirtualMachine) -> Result<(), Refusal> {
        let status = vm.status.as_ref();
        if status.is_some_and(|status| status.snapshot_in_progress.is_some()) {
            return Err(Refusal::conflict("VM snapshot is in progress"));
        }
        Ok(())
    }

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        guest::require_running(vmi)?;
        if guest::is_paused(vmi) {
            Ok(())
        } else {
            Err(Refusal::conflict("VMI is not paused"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn guest_of_a_vm_with_a_snapshot_in_progress_stays_paused() {
        let check = |status| {
            let vm = json!({"metadata": {"name": "a"}, "spec": {}, "status": status});
            Unpause::admit_vm(&serde_json::from_value(vm).unwrap())
        };
        check(json!({})).unwrap();
        check(json!(null)).unwrap();
        let refusal = check(json!({"snapshotInProgress": "nightly"})).unwrap_err();
        assert_eq!(
            (refusal.code.as_u16(), &*refusal.message),
            (409, "VM snapshot is in progress")
        );
    }
}
