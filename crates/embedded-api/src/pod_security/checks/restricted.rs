//! Checks of the level `restricted`: the current best practice for hardening pods.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Finding, Pod,
    baseline::added_capabilities,
    words::{named, plural, quoted, setters, uses},
};

/// Volumes with content of the API or of a storage driver.
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// Volumes that are reported by their type; others are `unknown`.
const FORBIDDEN_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

/// Windows has neither capabilities nor privilege escalation of this kind.
fn is_exempt(pod: Pod<'_>) -> bool {
    pod.version.is_at_least(25) && pod.is_windows()
}

pub(super) fn privilege_escalation(pod: Pod<'_>) -> Option<Finding> {
    if is_exempt(pod) {
        return None;
    }
    let may = |container: &Value| container["securityContext"]["allowPrivilegeEscalation"] != false;
    let names = pod.containers(may);
    (!names.is_empty()).then(|| {
        let who = named("container", &names);
        let detail = format!("{who} must set securityContext.allowPrivilegeEscalation=false");
        Finding::new("allowPrivilegeEscalation != false", detail)
    })
}

pub(super) fn capabilities(pod: Pod<'_>) -> Option<Finding> {
    if is_exempt(pod) {
        return None;
    }
    let drops_all = |container: &Value| {
        let dropped = container["securityContext"]["capabilities"]["drop"].as_array();
        dropped.is_some_and(|dropped| dropped.iter().any(|name| name == "ALL"))
    };
    let forbidden =
        |container| added_capabilities(container).filter(|name| *name != "NET_BIND_SERVICE");
    let without_drop = pod.containers(|container| !drops_all(container));
    let adding = pod.containers(|container| forbidden(container).next().is_some());
    let mut details = Vec::new();
    if !without_drop.is_empty() {
        let who = named("container", &without_drop);
        details.push(format!(
            "{who} must set securityContext.capabilities.drop=[\"ALL\"]"
        ));
    }
    if !adding.is_empty() {
        let found: BTreeSet<&str> = super::containers(pod.spec).flat_map(forbidden).collect();
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            named("container", &adding),
            quoted(found)
        ));
    }
    (!details.is_empty()).then(|| Finding::new("unrestricted capabilities", details.join("; ")))
}

pub(super) fn proc_mount(pod: Pod<'_>) -> Option<Finding> {
    let forbidden = |container| {
        let container: &Value = container;
        let kind = container["securityContext"]["procMount"].as_str();
        kind.filter(|kind| *kind != "Default")
    };
    let names = pod.containers(|container| forbidden(container).is_some());
    let found: BTreeSet<&str> = super::containers(pod.spec).filter_map(forbidden).collect();
    (!names.is_empty()).then(|| {
        let detail = format!(
            "{} must not set securityContext.procMount to {}",
            named("container", &names),
            quoted(found)
        );
        Finding::new("procMount", detail)
    })
}

pub(super) fn volumes(pod: Pod<'_>) -> Option<Finding> {
    let volumes = pod.spec["volumes"].as_array().into_iter().flatten();
    let has = |volume: &Value, kinds: &[&'static str]| {
        kinds.iter().copied().find(|kind| volume[*kind].is_object())
    };
    let restricted: Vec<&Value> = volumes
        .filter(|volume| has(volume, &VOLUMES).is_none())
        .collect();
    let names: Vec<&str> = restricted
        .iter()
        .map(|volume| volume["name"].as_str().unwrap_or_default())
        .collect();
    let kinds: BTreeSet<&str> = restricted
        .iter()
        .map(|volume| has(volume, &FORBIDDEN_VOLUMES).unwrap_or("unknown"))
        .collect();
    (!names.is_empty()).then(|| {
        let what = plural("restricted volume type", kinds.len());
        let detail = format!(
            "{} {} {what} {}",
            named("volume", &names),
            uses(names.len()),
            quoted(kinds)
        );
        Finding::new("restricted volume types", detail)
    })
}

pub(super) fn run_as_non_root(pod: Pod<'_>) -> Option<Finding> {
    const REASON: &str = "runAsNonRoot != true";
    if pod.version.is_at_least(35) && pod.has_user_namespace() {
        return None;
    }
    let of = |security: &Value| security["runAsNonRoot"].as_bool();
    let roots = pod.containers(|container| of(&container["securityContext"]) == Some(false));
    if let Some(who) = setters(of(pod.security()) == Some(false), &roots) {
        let detail = format!("{who} must not set securityContext.runAsNonRoot=false");
        return Some(Finding::new(REASON, detail));
    }
    if of(pod.security()) == Some(true) {
        return None;
    }
    let unset = pod.containers(|container| of(&container["securityContext"]).is_none());
    (!unset.is_empty()).then(|| {
        let who = named("container", &unset);
        let detail = format!("pod or {who} must set securityContext.runAsNonRoot=true");
        Finding::new(REASON, detail)
    })
}

pub(super) fn run_as_user(pod: Pod<'_>) -> Option<Finding> {
    if pod.version.is_at_least(35) && pod.has_user_namespace() {
        return None;
    }
    let is_root = |security: &Value| security["runAsUser"] == 0;
    let names = pod.containers(|container| is_root(&container["securityContext"]));
    let who = setters(is_root(pod.security()), &names)?;
    Some(Finding::new(
        "runAsUser=0",
        format!("{who} must not set runAsUser=0"),
    ))
}
