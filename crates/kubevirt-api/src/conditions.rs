//! The shape of conditions, and the only code that changes a list of them. Each kind declares its
//! conditions beside its types, by `condition!`.
//!
//! Pure: the time comes from the caller. Invariants: a type appears once; `lastTransitionTime`
//! changes only when `status` does; lists are in one fixed order, so that equal content means equal
//! lists and no unnecessary writes.

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{self as meta, Time},
    jiff::Timestamp,
};

pub const TRUE: &str = "True";
pub const FALSE: &str = "False";
pub const UNKNOWN: &str = "Unknown";

/// On launcher pods: `False` while the guest is paused.
pub const POD_UNPAUSED: &str = "kubevirt.io/virtual-machine-unpaused";

/// Message of a VMI whose pod is reported as not ready without a reason, as happens to all pods of a node
/// that stopped reporting.
pub const OUT_OF_REACH: &str = "the pod is not ready: its node stopped reporting";

/// The message of a VMI whose pod is being deleted.
pub const POD_TERMINATING: &str = "the pod is being deleted";

/// The value of a condition, without its history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConditionValue<'a> {
    /// One of [`TRUE`], [`FALSE`], [`UNKNOWN`].
    pub status: &'a str,
    /// Stable CamelCase name; empty for none.
    pub reason: &'a str,
    /// Sentence for people; empty for none.
    pub message: &'a str,
}

impl<'a> ConditionValue<'a> {
    pub fn holds() -> Self {
        Self {
            status: TRUE,
            ..Self::default()
        }
    }

    pub fn fails(reason: impl Into<&'a str>, message: &'a str) -> Self {
        Self {
            status: FALSE,
            reason: reason.into(),
            message,
        }
    }

    /// A VMI is not ready for the same reason as its pod.
    pub fn like_its_pod(reason: Option<&'a str>, message: Option<&'a str>) -> Self {
        let reason = reason.unwrap_or_default();
        let message = message.unwrap_or_default();
        let is_explained = !(reason.is_empty() && message.is_empty());
        Self::fails(reason, if is_explained { message } else { OUT_OF_REACH })
    }
}

/// The shape shared by the conditions of all kinds.
pub trait Condition: Clone + PartialEq {
    type Type: Clone + Ord;

    fn new(kind: Self::Type) -> Self;
    fn kind(&self) -> &Self::Type;
    fn status(&self) -> &str;
    /// Empty for none, as is the message.
    fn reason(&self) -> &str;
    fn message(&self) -> &str;
    /// Sets another status, and the time since which it holds.
    fn set_status(&mut self, status: &str, now: &Time);
    fn explain(&mut self, reason: &str, message: &str);
}

/// Implements [`Condition`] for a struct of a kind, with the enumeration of its types.
macro_rules! condition {
    ($condition:ident, $kind:ident) => {
        impl $crate::conditions::Condition for $condition {
            type Type = $kind;

            fn new(kind: $kind) -> Self {
                Self {
                    type_: kind,
                    ..Self::default()
                }
            }

            fn kind(&self) -> &$kind {
                &self.type_
            }

            fn status(&self) -> &str {
                &self.status
            }

            fn reason(&self) -> &str {
                self.reason.as_deref().unwrap_or_default()
            }

            fn message(&self) -> &str {
                self.message.as_deref().unwrap_or_default()
            }

            fn set_status(
                &mut self,
                status: &str,
                now: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
            ) {
                status.clone_into(&mut self.status);
                self.last_transition_time = Some(now.clone());
            }

            fn explain(&mut self, reason: &str, message: &str) {
                let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
                self.reason = filled(reason);
                self.message = filled(message);
            }
        }
    };
}

pub(crate) use condition;

/// The same for a struct whose members besides `type_` are in a member `state`.
macro_rules! condition_with_state {
    ($condition:ident, $kind:ident) => {
        impl $crate::conditions::Condition for $condition {
            type Type = $kind;

            fn new(kind: $kind) -> Self {
                Self {
                    type_: kind,
                    ..Self::default()
                }
            }

            fn kind(&self) -> &$kind {
                &self.type_
            }

            fn status(&self) -> &str {
                &self.state.status
            }

            fn reason(&self) -> &str {
                self.state.reason.as_deref().unwrap_or_default()
            }

            fn message(&self) -> &str {
                self.state.message.as_deref().unwrap_or_default()
            }

            fn set_status(
                &mut self,
                status: &str,
                now: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
            ) {
                status.clone_into(&mut self.state.status);
                self.state.last_transition_time = Some(now.clone());
            }

            fn explain(&mut self, reason: &str, message: &str) {
                let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
                self.state.reason = filled(reason);
                self.state.message = filled(message);
            }
        }
    };
}

pub(crate) use condition_with_state;

/// The conditions of backups and templates.
impl Condition for meta::Condition {
    type Type = String;

    fn new(kind: String) -> Self {
        Self {
            type_: kind,
            last_transition_time: Time(Timestamp::UNIX_EPOCH),
            message: String::new(),
            observed_generation: None,
            reason: String::new(),
            status: String::new(),
        }
    }

    fn kind(&self) -> &String {
        &self.type_
    }

    fn status(&self) -> &str {
        &self.status
    }

    fn reason(&self) -> &str {
        &self.reason
    }

    fn message(&self) -> &str {
        &self.message
    }

    fn set_status(&mut self, status: &str, now: &Time) {
        status.clone_into(&mut self.status);
        self.last_transition_time = now.clone();
    }

    fn explain(&mut self, reason: &str, message: &str) {
        reason.clone_into(&mut self.reason);
        message.clone_into(&mut self.message);
    }
}

/// Finds a condition by its type.
pub fn find<'a, C: Condition>(list: &'a [C], kind: &C::Type) -> Option<&'a C> {
    list.iter().find(|condition| condition.kind() == kind)
}

/// Whether the condition is there and `True`.
pub fn is_true<C: Condition>(list: &[C], kind: &C::Type) -> bool {
    find(list, kind).is_some_and(|condition| condition.status() == TRUE)
}

/// Whether the condition is there and `False`.
pub fn is_false<C: Condition>(list: &[C], kind: &C::Type) -> bool {
    find(list, kind).is_some_and(|condition| condition.status() == FALSE)
}

/// Writes a condition. Keeps the transition time unless the status changes, drops repeated entries
/// of the type, and leaves the list in order.
pub fn set<C: Condition>(list: &mut Vec<C>, kind: C::Type, value: &ConditionValue<'_>, now: &Time) {
    let old = find(list, &kind).cloned();
    remove(list, &kind);
    let mut condition = old.unwrap_or_else(|| C::new(kind));
    if condition.status() != value.status {
        condition.set_status(value.status, now);
    }
    condition.explain(value.reason, value.message);
    list.push(condition);
    sort(list);
}

/// Removes a condition; a list without it stays unchanged.
pub fn remove<C: Condition>(list: &mut Vec<C>, kind: &C::Type) {
    list.retain(|condition| condition.kind() != kind);
}

/// Puts a list into the fixed order: that of the declaration of the types, unknown ones last.
pub fn sort<C: Condition>(list: &mut [C]) {
    list.sort_by(|a, b| a.kind().cmp(b.kind()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vmi_status::{
        VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as Kind,
    };
    use crate::{backup, clone, export, kubevirt, migration_request, pool, replica_set, snapshot};

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).expect("in range"))
    }

    fn ready(
        value: &ConditionValue<'_>,
        list: &mut Vec<VirtualMachineInstanceCondition>,
        second: i64,
    ) {
        set(list, Kind::Ready, value, &at(second));
    }

    #[test]
    fn transition_time_moves_only_with_the_status() {
        let mut list = Vec::new();
        ready(
            &ConditionValue::fails("PodNotExists", "no pod"),
            &mut list,
            1,
        );
        assert_eq!(list[0].last_transition_time, Some(at(1)));
        ready(
            &ConditionValue::fails("GuestNotRunning", "no guest"),
            &mut list,
            2,
        );
        assert_eq!(list[0].last_transition_time, Some(at(1)));
        assert_eq!(list[0].reason(), "GuestNotRunning");
        ready(&ConditionValue::holds(), &mut list, 3);
        assert_eq!(list[0].last_transition_time, Some(at(3)));
        assert_eq!(
            (list[0].reason.as_ref(), list[0].message.as_ref()),
            (None, None)
        );
        assert!(is_true(&list, &Kind::Ready));
    }

    #[test]
    fn same_statement_changes_nothing() {
        let mut list = Vec::new();
        ready(&ConditionValue::holds(), &mut list, 1);
        let before = list.clone();
        ready(&ConditionValue::holds(), &mut list, 2);
        assert_eq!(list, before);
    }

    #[test]
    fn order_does_not_depend_on_history() {
        let kinds = [
            Kind::Paused,
            Kind::Other("Later".to_owned()),
            Kind::Ready,
            Kind::AgentConnected,
        ];
        let build = |kinds: &mut dyn Iterator<Item = Kind>| {
            let mut list: Vec<VirtualMachineInstanceCondition> = Vec::new();
            for kind in kinds {
                set(&mut list, kind, &ConditionValue::holds(), &at(1));
            }
            list
        };
        let forth = build(&mut kinds.iter().cloned());
        assert_eq!(forth, build(&mut kinds.iter().rev().cloned()));
        let types: Vec<&str> = forth
            .iter()
            .map(|condition| condition.type_.as_str())
            .collect();
        assert_eq!(types, ["Ready", "Paused", "AgentConnected", "Later"]);
    }

    #[test]
    fn repeated_entries_are_cleaned_up() {
        let mut list = Vec::new();
        ready(&ConditionValue::holds(), &mut list, 1);
        let again = list[0].clone();
        list.push(again);
        ready(&ConditionValue::holds(), &mut list, 2);
        assert_eq!(list.len(), 1);
        remove(&mut list, &Kind::Ready);
        assert!(list.is_empty());
        assert!(!is_false(&list, &Kind::Ready));
    }

    fn check_kind<C: Condition<Type: From<&'static str>> + std::fmt::Debug>() {
        let value = ConditionValue::fails("Why", "because");
        let mut list: Vec<C> = Vec::new();
        set(&mut list, C::Type::from("Ready"), &value, &at(1));
        let before = list.clone();
        set(&mut list, C::Type::from("Ready"), &value, &at(2));
        assert_eq!(list, before);
        let [condition] = &list[..] else {
            panic!("{list:?}");
        };
        let found = (condition.status(), condition.reason(), condition.message());
        assert_eq!(found, (FALSE, "Why", "because"));
        set(
            &mut list,
            C::Type::from("Ready"),
            &ConditionValue::holds(),
            &at(2),
        );
        assert!(is_true(&list, &C::Type::from("Ready")));
        assert_eq!((list[0].reason(), list[0].message()), ("", ""));
    }

    #[test]
    fn conditions_of_every_kind_can_be_set() {
        check_kind::<crate::vm_status::VirtualMachineCondition>();
        check_kind::<VirtualMachineInstanceCondition>();
        check_kind::<replica_set::VirtualMachineInstanceReplicaSetCondition>();
        check_kind::<migration_request::VirtualMachineInstanceMigrationCondition>();
        check_kind::<kubevirt::KubeVirtCondition>();
        check_kind::<pool::VirtualMachinePoolCondition>();
        check_kind::<clone::Condition>();
        check_kind::<export::Condition>();
        check_kind::<snapshot::Condition>();
        check_kind::<meta::Condition>();
        let backup = backup::VirtualMachineBackupStatus::default();
        assert!(!is_true(&backup.conditions, &"Complete".to_owned()));
    }
}
