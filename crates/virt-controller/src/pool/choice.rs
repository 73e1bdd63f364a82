//! Which members come first, and which count at all: pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use kube::core::{Selector, SelectorExt as _};
use kubevirt_api::pool::{
    VirtualMachinePoolSelectionPolicy as Policy, VirtualMachinePoolSelectors as Selectors,
    VirtualMachinePoolSortPolicy as Order,
};
use serde_json::Value;

use super::observe::Member;
use super::view::Pool;
use crate::vm::Vm;

/// The members that the policy admits, in its order. Another seed gives another random order.
pub(super) fn chosen<'a>(
    members: impl Iterator<Item = &'a Member>,
    policy: Option<&Policy>,
    seed: &str,
) -> Vec<&'a Member> {
    let selectors = policy.and_then(|policy| policy.selectors.as_ref());
    let is_admitted = |member: &&Member| selectors.is_none_or(|all| admit(all, &member.vm));
    let mut all: Vec<&Member> = members.filter(is_admitted).collect();
    all.sort_by_key(|member| member.ordinal);
    match policy.and_then(|policy| policy.sort_policy.as_ref()) {
        Some(Order::AscendingOrder) => {}
        Some(Order::DescendingOrder) => all.reverse(),
        Some(Order::Newest) => all.sort_by_key(|member| Reverse(created(&member.vm))),
        Some(Order::Oldest) => all.sort_by_key(|member| created(&member.vm)),
        None | Some(Order::Random | Order::Other(_)) => {
            all.sort_by_key(|member| drawn(&member.vm, seed));
        }
    }
    all
}

/// The same as long as the spec is the same: after a write without a response, the same VM is the first again.
pub(super) fn seed(pool: &Pool) -> String {
    let uid = pool.metadata.uid.as_deref().unwrap_or_default();
    format!("{uid}/{}", pool.metadata.generation.unwrap_or(0))
}

fn created(vm: &Vm) -> i64 {
    let time = vm.metadata.creation_timestamp.as_ref();
    time.map_or(0, |time| time.0.as_second())
}

fn drawn(vm: &Vm, seed: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&vm.metadata.uid, seed).hash(&mut hasher);
    hasher.finish()
}

/// Both selectors have to match. An invalid one matches nothing.
fn admit(selectors: &Selectors, vm: &Vm) -> bool {
    let by_labels = selectors.label_selector.as_ref().is_none_or(|selector| {
        let selector = Selector::try_from(selector.clone());
        selector.is_ok_and(|selector| selector.matches(&labels(vm)))
    });
    let nodes = texts(vm.spec.template.pointer("/spec/nodeSelector"));
    let requirements = &selectors.node_selector_requirement_matcher;
    by_labels && requirements.iter().all(|one| holds(one, &nodes))
}

/// Labels of the VM and of its template; those of the VM win.
fn labels(vm: &Vm) -> BTreeMap<String, String> {
    let mut all = texts(vm.spec.template.pointer("/metadata/labels"));
    all.extend(vm.metadata.labels.clone().unwrap_or_default());
    all
}

/// The members of an object that are text.
pub(super) fn texts(value: Option<&Value>) -> BTreeMap<String, String> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    let texts =
        members.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    texts.collect()
}

fn holds(requirement: &NodeSelectorRequirement, all: &BTreeMap<String, String>) -> bool {
    let found = all.get(&requirement.key);
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_among = |found: &String| values.contains(found);
    // Both sides must be integers.
    let compared = || {
        let bound: i64 = values.first()?.parse().ok()?;
        let found: i64 = found?.parse().ok()?;
        Some(found.cmp(&bound))
    };
    match requirement.operator.as_str() {
        "In" => found.is_some_and(is_among),
        "NotIn" => !found.is_some_and(is_among),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}
