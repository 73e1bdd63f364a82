//! Profiles of `AppArmor`, `SELinux` and seccomp: the runtime's own or more restrictive ones.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Finding, Pod,
    words::{named, plural, quoted, setters},
};

/// Annotations from before the field `appArmorProfile`, followed by the name of a container.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
/// Annotations from before the field `seccompProfile`.
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// The type of a profile, if one is set.
fn profile<'a>(security: &'a Value, field: &str) -> Option<&'a str> {
    let profile = &security[field];
    (profile.is_object()).then(|| profile["type"].as_str().unwrap_or_default())
}

/// Who sets a type that is not confined, and these types.
struct Misuse<'a> {
    pod: bool,
    containers: Vec<&'a str>,
    types: BTreeSet<&'a str>,
}

fn misuse<'a>(pod: Pod<'a>, field: &str) -> Misuse<'a> {
    let bad = |security: &'a Value| {
        profile(security, field).filter(|kind| !matches!(*kind, "RuntimeDefault" | "Localhost"))
    };
    let all = super::containers(pod.spec).map(|container| &container["securityContext"]);
    Misuse {
        pod: bad(pod.security()).is_some(),
        containers: pod.containers(|container| bad(&container["securityContext"]).is_some()),
        types: all.chain([pod.security()]).filter_map(bad).collect(),
    }
}

pub(super) fn app_armor(pod: Pod<'_>) -> Option<Finding> {
    let found = misuse(pod, "appArmorProfile");
    let is_allowed = |value: &str| {
        value.is_empty() || value == "runtime/default" || value.starts_with("localhost/")
    };
    let annotations: BTreeSet<String> = pod
        .annotations
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(APP_ARMOR))
        .map(|(key, value)| (key, value.as_str().unwrap_or_default()))
        .filter(|(_, value)| !is_allowed(value))
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    let mut who: Vec<String> = setters(found.pod, &found.containers).into_iter().collect();
    if !annotations.is_empty() {
        who.push(plural("annotation", annotations.len()));
    }
    let values = found.types.len().saturating_add(annotations.len());
    (!who.is_empty()).then(|| {
        let list = found.types.iter().copied();
        let list = quoted(list.chain(annotations.iter().map(String::as_str)));
        let who = who.join(" and ");
        let detail = format!("{who} must not set AppArmor profile type to {list}");
        Finding::new(&plural("forbidden AppArmor profile", values), detail)
    })
}

pub(super) fn se_linux(pod: Pod<'_>) -> Option<Finding> {
    let options = |security: &'_ Value| security["seLinuxOptions"].clone();
    let text =
        |options: &Value, field: &str| options[field].as_str().unwrap_or_default().to_owned();
    let is_allowed = |kind: &str| match kind {
        "" | "container_t" | "container_init_t" | "container_kvm_t" => true,
        "container_engine_t" => pod.version.is_at_least(31),
        _ => false,
    };
    let is_bad = |security: &Value| {
        let options = options(security);
        let is_set = |field| !text(&options, field).is_empty();
        !is_allowed(&text(&options, "type")) || is_set("user") || is_set("role")
    };
    let names = pod.containers(|container| is_bad(&container["securityContext"]));
    let who = setters(is_bad(pod.security()), &names)?;
    let all: Vec<Value> = super::containers(pod.spec)
        .map(|container| &container["securityContext"])
        .chain([pod.security()])
        .map(options)
        .collect();
    let types: BTreeSet<String> = all.iter().map(|one| text(one, "type")).collect();
    let types: Vec<&str> = types
        .iter()
        .map(String::as_str)
        .filter(|kind| !is_allowed(kind))
        .collect();
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(named("type", &types));
    }
    for field in ["user", "role"] {
        if all.iter().any(|one| !text(one, field).is_empty()) {
            what.push(format!("{field} may not be set"));
        }
    }
    let detail = format!(
        "{who} set forbidden securityContext.seLinuxOptions: {}",
        what.join("; ")
    );
    Some(Finding::new("seLinuxOptions", detail))
}

pub(super) fn seccomp_baseline(pod: Pod<'_>) -> Option<Finding> {
    if pod.version.is_at_least(19) {
        return seccomp_set(pod);
    }
    let is_allowed = |value: &str| {
        matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/")
    };
    let containers = super::containers(pod.spec);
    let keys = containers.map(|one| {
        let name = one["name"].as_str().unwrap_or_default();
        format!("{SECCOMP_CONTAINER}{name}")
    });
    let forbidden: BTreeSet<String> = keys
        .chain([SECCOMP_POD.to_owned()])
        .filter_map(|key| {
            let value = pod.annotations[&key].as_str()?;
            (!is_allowed(value)).then(|| format!("{key}={value:?}"))
        })
        .collect();
    (!forbidden.is_empty()).then(|| {
        let what = plural("annotation", forbidden.len());
        let list = Vec::from_iter(forbidden).join(", ");
        Finding::new("seccompProfile", format!("forbidden {what} {list}"))
    })
}

fn seccomp_set(pod: Pod<'_>) -> Option<Finding> {
    let found = misuse(pod, "seccompProfile");
    let who = setters(found.pod, &found.containers)?;
    let list = quoted(found.types);
    let detail = format!("{who} must not set securityContext.seccompProfile.type to {list}");
    Some(Finding::new("seccompProfile", detail))
}

/// A profile is required, of the pod or of each container.
pub(super) fn seccomp_restricted(pod: Pod<'_>) -> Option<Finding> {
    if pod.version.is_at_least(25) && pod.is_windows() {
        return None;
    }
    if let Some(found) = seccomp_set(pod) {
        return Some(found);
    }
    if profile(pod.security(), "seccompProfile").is_some() {
        return None;
    }
    let is_without =
        |container: &Value| profile(&container["securityContext"], "seccompProfile").is_none();
    let names = pod.containers(is_without);
    (!names.is_empty()).then(|| {
        let detail = format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \
             \"Localhost\"",
            named("container", &names)
        );
        Finding::new("seccompProfile", detail)
    })
}
