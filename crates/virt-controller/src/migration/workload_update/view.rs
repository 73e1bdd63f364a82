//! The `KubeVirt` object, as far as updates of guests depend on it.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::KubeVirt;
use kubevirt_api::conditions::TRUE;
use kubevirt_api::kubevirt::{
    KubeVirtConditionType as Condition, KubeVirtPhase as Phase, KubeVirtWorkloadUpdateStrategy,
    WorkloadUpdateMethod as Method,
};
use serde::Deserialize;
use serde_json::Value;

use super::plan::Strategy;
use crate::view::Labels;

const BATCH_SIZE: usize = 10;
const BATCH_INTERVAL: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Raw")]
pub(super) struct Installation {
    pub(super) metadata: ObjectMeta,
    /// All components run in the version that is to be installed.
    pub(super) is_complete: bool,
    pub(super) strategy: Strategy,
    /// The published number of guests with an outdated launcher.
    pub(super) outdated: Option<i64>,
}

/// Other parts may have values that this version does not know.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Raw {
    metadata: ObjectMeta,
    spec: Value,
    status: Value,
}

impl From<Raw> for Installation {
    fn from(mut raw: Raw) -> Self {
        let strategy = raw.spec["workloadUpdateStrategy"].take();
        let written: Option<KubeVirtWorkloadUpdateStrategy> =
            serde_json::from_value(strategy).unwrap_or_default();
        let written = written.unwrap_or_default();
        let is_complete = is_complete(&raw.status);
        let size = written.batch_eviction_size;
        let interval = written.batch_eviction_interval;
        // Validated by admission; what it cannot be is as if it were not set.
        let interval = interval.and_then(|text| Duration::try_from(text.parse().ok()?).ok());
        let methods = written.workload_update_methods;
        Self {
            metadata: crate::view::slim(raw.metadata, Labels::Dropped, &[]),
            is_complete,
            strategy: Strategy {
                moves: methods.contains(&Method::LiveMigrate),
                evicts: methods.contains(&Method::Evict),
                batch_size: size.map_or(BATCH_SIZE, |size| usize::try_from(size).unwrap_or(0)),
                batch_interval: interval.unwrap_or(BATCH_INTERVAL),
            },
            outdated: raw.status["outdatedVirtualMachineInstanceWorkloads"].as_i64(),
        }
    }
}

fn is_complete(status: &Value) -> bool {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let is_progressing = conditions
        .any(|one| one["type"] == Condition::Progressing.as_str() && one["status"] == TRUE);
    status["phase"] == Phase::Deployed.as_str()
        && status["observedDeploymentID"] == status["targetDeploymentID"]
        && !is_progressing
}

reconcile::resource_view!(Installation, KubeVirt, NamespaceResourceScope);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn installation_is_complete_once_all_components_are_replaced() {
        let check = |status: Value, expected: bool| {
            assert_eq!(is_complete(&status), expected, "{status}");
        };
        check(json!(null), false);
        check(json!({"phase": "Deploying"}), false);
        check(json!({"phase": "Deployed"}), true);
        let of = |observed: &str, progressing: &str| {
            json!({
                "phase": "Deployed", "targetDeploymentID": "new", "observedDeploymentID": observed,
                "conditions": [
                    {"type": "Available", "status": "True"},
                    {"type": "Progressing", "status": progressing},
                ],
            })
        };
        check(of("new", "False"), true);
        check(of("old", "False"), false);
        check(of("new", "True"), false);
    }

    #[test]
    fn strategy_has_kubevirts_defaults() {
        let check = |written: Value, expected: Strategy| {
            let object = json!({"metadata": {}, "spec": {"workloadUpdateStrategy": written}});
            let found: Installation = serde_json::from_value(object).unwrap();
            assert_eq!(found.strategy, expected, "{written}");
        };
        let none = Strategy {
            moves: false,
            evicts: false,
            batch_size: 10,
            batch_interval: Duration::from_mins(1),
        };
        check(json!(null), none.clone());
        check(json!({}), none.clone());
        check(json!({"batchEvictionInterval": "-1m"}), none);
        check(
            json!({
                "workloadUpdateMethods": ["Evict", "LiveMigrate"],
                "batchEvictionSize": 3, "batchEvictionInterval": "1m30s",
            }),
            Strategy {
                moves: true,
                evicts: true,
                batch_size: 3,
                batch_interval: Duration::from_secs(90),
            },
        );
    }
}
