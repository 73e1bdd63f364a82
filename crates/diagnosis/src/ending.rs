//! Guests that failed.

use kubevirt_api::{
    conditions::Condition,
    vmi_status::{
        VirtualMachineInstanceConditionType as Type, VirtualMachineInstancePhase as Phase,
    },
};
use reasons::Reason;

use crate::{Finding, Observed, log};

pub(crate) const OUT_OF_MEMORY: &str = "The guest's pod exceeded its memory limit, and the kernel \
                                        killed it; raise the limit or remove it.";

pub(crate) fn node_lost(observed: &Observed) -> Vec<Finding> {
    if ending(observed).is_none_or(|(reason, _)| Reason::NodeUnresponsive != *reason) {
        return Vec::new();
    }
    let reason = Reason::NodeUnresponsive;
    let node = observed.node_name().unwrap_or("of the guest");
    let next = if observed.is_deleted_node(node) {
        "kubectl get nodes".to_owned()
    } else {
        format!("kubectl describe node {node}")
    };
    vec![
        Finding::new(format!(
            "Node {node} stopped reporting; the guest was marked Failed"
        ))
        .because(reason)
        .evidence(observed.vmi_object(), "status.reason", reason.as_str())
        .next(next),
    ]
}

pub(crate) fn panicked(observed: &Observed) -> Vec<Finding> {
    let sentence = "The guest kernel panicked; the guest's console has its last messages.";
    ended(observed, Reason::GuestPanicked, sentence)
}

pub(crate) fn qemu_crashed(observed: &Observed) -> Vec<Finding> {
    let sentence = "QEMU exited unexpectedly.";
    ended(observed, Reason::QEMUCrashed, sentence)
}

pub(crate) fn watchdog(observed: &Observed) -> Vec<Finding> {
    let sentence = "The guest hung: it stopped resetting its watchdog, which powered it off.";
    ended(observed, Reason::WatchdogExpired, sentence)
}

pub(crate) fn shutdown_forced(observed: &Observed) -> Vec<Finding> {
    let sentence = "The guest did not shut down within its grace period and was switched off.";
    ended(observed, Reason::ShutdownForced, sentence)
}

pub(crate) fn launcher_unresponsive(observed: &Observed) -> Vec<Finding> {
    let sentence =
        "The launcher in the guest's pod stopped answering, so the guest's state is unknown.";
    ended(observed, Reason::LauncherUnresponsive, sentence)
}

pub(crate) fn postcopy_failed(observed: &Observed) -> Vec<Finding> {
    let sentence = "A migration failed while the guest's memory was split between two nodes; the \
                    guest was lost.";
    ended(observed, Reason::PostcopyFailed, sentence)
}

/// Out of memory according to virt-handler, where the pod does not report it.
pub(crate) fn out_of_memory(observed: &Observed) -> Vec<Finding> {
    ended(observed, Reason::OOMKilled, OUT_OF_MEMORY)
}

/// A finding if the guest failed with this reason.
pub(crate) fn ended(observed: &Observed, reason: Reason, sentence: &str) -> Vec<Finding> {
    let found = ending(observed).filter(|(found, _)| reason == **found);
    let found = found.map(|(_, message)| {
        Finding::new(sentence)
            .because(reason)
            .evidence(
                observed.vmi_object(),
                "status.reason",
                format!("{reason}: {message}"),
            )
            .next(observed.kubectl(&format!("describe vmi {}", observed.name)))
    });
    log::next_is_log(observed, found.into_iter().collect())
}

/// Reason and message of a guest that failed, as virt-handler reports them.
pub(crate) fn ending(observed: &Observed) -> Option<(&str, &str)> {
    let status = observed.own_vmi()?.status.as_ref()?;
    let reason = status.reason.as_deref()?;
    let ready = observed.condition(&Type::Ready);
    let message = ready.map(Condition::message).unwrap_or_default();
    let message = reasons::without_advice(reason, message);
    (observed.phase() == Some(Phase::Failed)).then_some((reason, message))
}
