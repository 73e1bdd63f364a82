//! The cluster profiler. Components have no profiles to give; while it is off, the answer is that of `KubeVirt`.

use cluster_config::ClusterConfig;

use super::{
    contract::{Answer, Contract},
    entry::{Entry, Level, Object},
    missing::{Checks, Missing, NO_CHECKS, get},
};
use crate::refusal::Refusal;

const FIELD: &str = "spec.configuration.developerConfiguration.clusterProfiler";
const INSTEAD: &str = "Read the components' durations and counts at /metrics";

pub(super) const START: Entry = entry("start-cluster-profiler", Answer::Done, &STARTS);
pub(super) const STOP: Entry = entry("stop-cluster-profiler", Answer::Done, &STOPS);
pub(super) const DUMP: Entry = entry(
    "dump-cluster-profiler",
    Answer::Object("ClusterProfilerResults"),
    &DUMPS,
);

static STARTS: Missing = missing(|config| enabled(config, "start profiler"));
static STOPS: Missing = missing(|config| enabled(config, "stop profiler"));
static DUMPS: Missing = missing(|config| enabled(config, "dump profiler results"));

const fn missing(check: fn(&ClusterConfig) -> Result<(), Refusal>) -> Missing {
    Missing {
        checks: Checks {
            cluster: Some(check),
            ..NO_CHECKS
        },
        instead: INSTEAD,
    }
}

const fn entry(name: &'static str, answer: Answer, missing: &'static Missing) -> Entry {
    let contract = Contract::new(answer, &[403]).with_body("ClusterProfilerRequest");
    Entry {
        level: Level::Everyone,
        ..get(Object::Cluster, name, contract, missing)
    }
}

fn enabled(config: &ClusterConfig, act: &str) -> Result<(), Refusal> {
    let developer = config.written.developer_configuration.as_ref();
    if developer.and_then(|developer| developer.cluster_profiler) == Some(true) {
        return Ok(());
    }
    let message = format!("Unable to {act}. \"ClusterProfiler\" feature gate must be enabled");
    Err(Refusal::forbidden(message).because(FIELD, "not true"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn profiler_that_is_off_is_refused_as_by_kubevirt() {
        let config = |on: bool| {
            let written = json!({"developerConfiguration": {"clusterProfiler": on}});
            ClusterConfig::from_kubevirt(&serde_json::from_value(written).unwrap())
        };
        enabled(&config(true), "start profiler").unwrap();
        let refusal = enabled(&config(false), "start profiler").unwrap_err();
        assert_eq!(
            (refusal.code.as_u16(), &*refusal.message),
            (
                403,
                "Unable to start profiler. \"ClusterProfiler\" feature gate must be enabled"
            )
        );
    }
}
