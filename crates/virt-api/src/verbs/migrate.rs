//! `migrate`: moves the running guest of a VM to another pod, by a `VirtualMachineInstanceMigration`.

use kubevirt_api::{
    conditions,
    subresource_bodies::MigrateOptions,
    vmi_status::{
        VirtualMachineInstanceConditionType as Condition, VirtualMachineInstancePhase as Phase,
    },
};

use super::{Change, Entry, Level, ObservedVm, VmVerb, guest::phase, on_vm};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Migrate;

/// Only users with a role of its own may choose where guests run.
pub(super) const ENTRY: Entry = Entry {
    level: Level::Migrate,
    ..on_vm::entry::<Migrate>()
};

impl VmVerb for Migrate {
    const NAME: &'static str = "migrate";
    const REFUSALS: &'static [u16] = &[404, 409, 500];
    type Body = MigrateOptions;

    fn dry_run(body: &MigrateOptions) -> &[String] {
        &body.dry_run
    }

    fn decide(observed: &ObservedVm<'_>, body: &MigrateOptions) -> Result<Vec<Change>, Refusal> {
        let vmi = observed.vmi.filter(|vmi| phase(vmi) == Phase::Running);
        let vmi = vmi.ok_or_else(|| Refusal::conflict("VM is not running"))?;
        let mut all = vmi.status.iter().flat_map(|status| &status.conditions);
        let condition = all
            .find(|one| one.type_ == Condition::LiveMigratable && one.status == conditions::FALSE);
        if let Some(condition) = condition {
            let why = condition.message.as_deref().unwrap_or_default();
            let message = format!("the guest cannot be migrated: {why}");
            return Err(Refusal::conflict(message));
        }
        Ok(vec![Change::Migrate(body.added_node_selector.clone())])
    }
}

#[cfg(test)]
mod tests {
    use kubevirt_api::{VirtualMachine, VirtualMachineInstance};
    use serde_json::{Value, json};

    use super::*;

    fn decide(vmi: Option<Value>) -> Result<Vec<Change>, Refusal> {
        let vm = VirtualMachine::default();
        let vmi: Option<VirtualMachineInstance> =
            vmi.map(|vmi| serde_json::from_value(vmi).unwrap());
        let observed = ObservedVm {
            vm: &vm,
            vmi: vmi.as_ref(),
        };
        let body = json!({"addedNodeSelector": {"zone": "a"}});
        Migrate::decide(&observed, &serde_json::from_value(body).unwrap())
    }

    #[test]
    fn only_a_migratable_guest_that_runs_is_migrated() {
        let with = |phase: &str, migratable: &str| {
            json!({"status": {"phase": phase, "conditions": [{
                "type": "LiveMigratable", "status": migratable, "message": "a disk is local",
            }]}})
        };
        assert_eq!(decide(None).unwrap_err().code, 409);
        assert_eq!(
            decide(Some(with("Scheduling", "True"))).unwrap_err().code,
            409
        );
        let refusal = decide(Some(with("Running", "False"))).unwrap_err();
        assert!(
            refusal.message.contains("a disk is local"),
            "{}",
            refusal.message
        );
        let changes = decide(Some(with("Running", "True"))).unwrap();
        let selector = [("zone".to_owned(), "a".to_owned())].into();
        assert_eq!(changes, [Change::Migrate(selector)]);
    }
}
