//! The settings of a migration: those of the cluster, changed by the policy that fits best. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use kubevirt_api::cluster_config::MigrationConfiguration;
use kubevirt_api::migration::VmimConfigurationOptions;
use kubevirt_api::migration_policy::MigrationPolicy;
use serde_json::{Value, json};

type Labels = BTreeMap<String, String>;

/// The fields of a policy that are settings.
const SETTINGS: [&str; 7] = [
    "allowAutoConverge",
    "bandwidthPerMigration",
    "completionTimeoutPerGiB",
    "maxDowntimeMs",
    "allowPostCopy",
    "allowWorkloadDisruption",
    "experimental",
];

/// The policy for a guest with these labels in a namespace with those: all of its selectors match, and
/// most labels of all policies; then most labels of the guest; then the first name.
pub(super) fn choose<'a>(
    policies: &'a [Arc<MigrationPolicy>],
    guest: &Labels,
    namespace: &Labels,
) -> Option<&'a MigrationPolicy> {
    let matches = |selector: &Labels, labels: &Labels| {
        let mut all = selector.iter();
        all.all(|(key, value)| labels.get(key) == Some(value))
    };
    let fitting = policies.iter().filter(|policy| {
        let selectors = &policy.spec.selectors;
        matches(&selectors.virtual_machine_instance_selector, guest)
            && matches(&selectors.namespace_selector, namespace)
    });
    let best = fitting.min_by_key(|policy| {
        let selectors = &policy.spec.selectors;
        let of_guest = selectors.virtual_machine_instance_selector.len();
        let all = of_guest + selectors.namespace_selector.len();
        (
            Reverse(all),
            Reverse(of_guest),
            policy.metadata.name.clone(),
        )
    });
    best.map(Arc::as_ref)
}

/// The settings in force.
pub(super) fn merge(
    cluster: Option<&MigrationConfiguration>,
    policy: Option<&MigrationPolicy>,
) -> VmimConfigurationOptions {
    let mut all = json!({
        "allowAutoConverge": false, "allowPostCopy": false, "allowWorkloadDisruption": false,
        "completionTimeoutPerGiB": 150, "progressTimeout": 150,
        "parallelMigrationsPerCluster": 5, "parallelOutboundMigrationsPerNode": 2,
    });
    let mut overlay = |mut written: Value, fields: Option<&[&str]>| {
        // Who allows post-copy, and does not say whether the guest may be disrupted, allows that, too.
        let post_copy = written["allowPostCopy"].clone();
        if written["allowWorkloadDisruption"].is_null() && !post_copy.is_null() {
            written["allowWorkloadDisruption"] = post_copy;
        }
        for (name, value) in written.as_object().into_iter().flatten() {
            let is_setting = fields.is_none_or(|fields| fields.contains(&name.as_str()));
            if is_setting && !value.is_null() {
                all[name] = value.clone();
            }
        }
    };
    overlay(json!(cluster), None);
    overlay(json!(policy.map(|policy| &policy.spec)), Some(&SETTINGS));
    // Both kinds have the fields of the options, with the same types.
    serde_json::from_value(all).unwrap_or_default()
}
