//! The rules of the Pod Security Standards.
//!
//! [`BASELINE`] and [`RESTRICTED`] are the specification: each check has the name, and each finding
//! the words, of the published standards. Pure functions of a pod and a version.

mod baseline;
mod profiles;
mod restricted;
#[cfg(test)]
mod tests;
mod words;

use serde_json::Value;

use super::policy::{Level, LevelVersion, Version};

/// What is wrong with a pod: `hostPort`, and the containers that use one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    reason: String,
    detail: String,
}

impl Finding {
    fn new(reason: &str, detail: String) -> Self {
        Self {
            reason: reason.to_owned(),
            detail,
        }
    }
}

/// All findings about a pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `hostPort, privileged`.
    pub(super) fn reasons(&self) -> String {
        let reasons: Vec<&str> = self.0.iter().map(|one| one.reason.as_str()).collect();
        reasons.join(", ")
    }

    /// `hostPort (container "c" uses hostPort 80), privileged (…)`.
    pub(super) fn details(&self) -> String {
        let found = self.0.iter();
        let details: Vec<String> = found
            .map(|one| format!("{} ({})", one.reason, one.detail))
            .collect();
        details.join(", ")
    }
}

/// A pod as checks see it.
#[derive(Debug, Clone, Copy)]
struct Pod<'a> {
    annotations: &'a Value,
    spec: &'a Value,
    version: Version,
}

impl<'a> Pod<'a> {
    fn security(self) -> &'a Value {
        &self.spec["securityContext"]
    }

    /// The names of the containers that match.
    fn containers(self, matches: impl Fn(&'a Value) -> bool) -> Vec<&'a str> {
        containers(self.spec)
            .filter(|container| matches(container))
            .map(|container| container["name"].as_str().unwrap_or_default())
            .collect()
    }

    fn is_windows(self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Whether the users of the pod are others on the host.
    fn has_user_namespace(self) -> bool {
        self.spec["hostUsers"] == false
    }
}

/// All containers of a pod's spec, in the order of their start.
pub(super) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .filter_map(|list| spec[list].as_array())
        .flatten()
}

/// A rule of a level since a version.
struct Check {
    id: &'static str,
    since: u32,
    /// The check of `baseline` that this one includes.
    includes: &'static str,
    find: fn(Pod<'_>) -> Option<Finding>,
}

const fn check(id: &'static str, since: u32, find: fn(Pod<'_>) -> Option<Finding>) -> Check {
    Check {
        id,
        since,
        includes: "",
        find,
    }
}

/// Ordered by id, as findings are reported.
const BASELINE: &[Check] = &[
    check("appArmorProfile", 0, profiles::app_armor),
    check("capabilities_baseline", 0, baseline::capabilities),
    check("hostNamespaces", 0, baseline::host_namespaces),
    check("hostPathVolumes", 0, baseline::host_paths),
    check("hostPorts", 0, baseline::host_ports),
    check("hostProbesAndHostLifecycle", 34, baseline::probe_hosts),
    check("privileged", 0, baseline::privileged),
    check("procMount_baseline", 0, baseline::proc_mount),
    check("seLinuxOptions", 0, profiles::se_linux),
    check("seccompProfile_baseline", 0, profiles::seccomp_baseline),
    check("sysctls", 0, baseline::sysctls),
    check("windowsHostProcess", 0, baseline::host_process),
];

/// Ordered by id; reported after those of `baseline`.
const RESTRICTED: &[Check] = &[
    check(
        "allowPrivilegeEscalation",
        8,
        restricted::privilege_escalation,
    ),
    Check {
        includes: "capabilities_baseline",
        ..check("capabilities_restricted", 22, restricted::capabilities)
    },
    Check {
        includes: "procMount_baseline",
        ..check("procMount_restricted", 35, restricted::proc_mount)
    },
    Check {
        includes: "hostPathVolumes",
        ..check("restrictedVolumes", 0, restricted::volumes)
    },
    check("runAsNonRoot", 0, restricted::run_as_non_root),
    check("runAsUser", 23, restricted::run_as_user),
    Check {
        includes: "seccompProfile_baseline",
        ..check(
            "seccompProfile_restricted",
            19,
            profiles::seccomp_restricted,
        )
    },
];

/// All violations of a level by a pod.
pub(super) fn evaluate(level: LevelVersion, pod: &Value) -> Findings {
    let pod = Pod {
        annotations: &pod["metadata"]["annotations"],
        spec: &pod["spec"],
        version: level.version,
    };
    let applies = |check: &&Check| level.version.is_at_least(check.since);
    let restricted: Vec<&Check> = match level.level {
        Level::Privileged => return Findings::default(),
        Level::Baseline => Vec::new(),
        Level::Restricted => RESTRICTED.iter().filter(applies).collect(),
    };
    let is_included = |id: &str| restricted.iter().any(|check| check.includes == id);
    let baseline = BASELINE.iter().filter(applies);
    let all = baseline
        .filter(|check| !is_included(check.id))
        .chain(restricted.iter().copied());
    Findings(all.filter_map(|check| (check.find)(pod)).collect())
}
