//! What a limit range forbids. Pure; messages are those of Kubernetes.

use std::collections::BTreeMap;

use quantity::{Notation, Written};
use serde_json::Value;

use crate::kinds::{amounts::written, limits::quotient};
use crate::quota::{containers, pod_amounts};

/// Amounts by resource.
type Amounts = BTreeMap<String, Written>;

/// The requests and limits of a container or of a whole pod.
struct Resources {
    requests: Amounts,
    limits: Amounts,
}

/// Why the range forbids the pod.
pub(super) fn of_pod(range: &Value, pod: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for item in items(range) {
        match item["type"].as_str() {
            Some("Container") => {
                let all = containers(pod, "containers").chain(containers(pod, "initContainers"));
                for container in all {
                    let own = Resources {
                        requests: amounts(&container["resources"]["requests"]),
                        limits: amounts(&container["resources"]["limits"]),
                    };
                    check(item, "Container", &own, &mut wrong);
                }
            }
            Some("Pod") => {
                let sums = Resources {
                    requests: sums(pod, "requests"),
                    limits: sums(pod, "limits"),
                };
                check(item, "Pod", &sums, &mut wrong);
            }
            _ => {}
        }
    }
    distinct(wrong)
}

/// Why the range forbids the claim.
pub(super) fn of_claim(range: &Value, claim: &Value) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let requests = amounts(&claim["spec"]["resources"]["requests"]);
    let mut wrong = Vec::new();
    for item in items(range).filter(|item| item["type"] == KIND) {
        for (name, least) in named(&item["min"]) {
            let usage = format!("minimum {name} usage per {KIND} is {least}");
            match requests.get(name) {
                None => wrong.push(format!("{usage}.  No request is specified")),
                Some(found) if found.amount < least.amount => {
                    wrong.push(format!("{usage}, but request is {found}"));
                }
                Some(_) => {}
            }
        }
        for (name, most) in named(&item["max"]) {
            let usage = format!("maximum {name} usage per {KIND} is {most}");
            match requests.get(name) {
                None => wrong.push(format!("{usage}.  No request is specified")),
                Some(found) if found.amount > most.amount => {
                    wrong.push(format!("{usage}, but request is {found}"));
                }
                Some(_) => {}
            }
        }
    }
    distinct(wrong)
}

fn items(range: &Value) -> impl Iterator<Item = &Value> {
    range["spec"]["limits"].as_array().into_iter().flatten()
}

fn named(list: &Value) -> impl Iterator<Item = (&str, Written)> {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(name, value)| Some((name.as_str(), written(value)?)))
}

fn amounts(list: &Value) -> Amounts {
    let owned = named(list).map(|(name, amount)| (name.to_owned(), amount));
    owned.collect()
}

/// What the whole pod has. A sum has the notation of its first part.
fn sums(pod: &Value, part: &str) -> Amounts {
    let notation = |name: &str| {
        let mut all = containers(pod, "containers").chain(containers(pod, "initContainers"));
        let first = all.find_map(|container| written(&container["resources"][part][name]));
        first.map_or(Notation::Decimal, |first| first.notation)
    };
    let sums = pod_amounts(pod, part).into_iter();
    let sums = sums.map(|(name, amount)| {
        let notation = notation(&name);
        (name, Written { amount, notation })
    });
    sums.collect()
}

fn check(item: &Value, kind: &str, found: &Resources, wrong: &mut Vec<String>) {
    for (name, least) in named(&item["min"]) {
        wrong.extend(below_minimum(kind, name, least, found));
    }
    for (name, most) in named(&item["max"]) {
        wrong.extend(above_maximum(kind, name, most, found));
    }
    for (name, ratio) in named(&item["maxLimitRequestRatio"]) {
        wrong.extend(above_ratio(kind, name, ratio, found));
    }
}

fn below_minimum(kind: &str, name: &str, least: Written, found: &Resources) -> Option<String> {
    let usage = format!("minimum {name} usage per {kind} is {least}");
    let Some(request) = found.requests.get(name) else {
        return Some(format!("{usage}.  No request is specified"));
    };
    if request.amount < least.amount {
        return Some(format!("{usage}, but request is {request}"));
    }
    let limit = found.limits.get(name)?;
    if limit.amount >= least.amount {
        return None;
    }
    Some(format!("{usage}, but limit is {limit}"))
}

fn above_maximum(kind: &str, name: &str, most: Written, found: &Resources) -> Option<String> {
    let usage = format!("maximum {name} usage per {kind} is {most}");
    let Some(limit) = found.limits.get(name) else {
        return Some(format!("{usage}.  No limit is specified"));
    };
    if limit.amount > most.amount {
        return Some(format!("{usage}, but limit is {limit}"));
    }
    let request = found.requests.get(name)?;
    if request.amount <= most.amount {
        return None;
    }
    Some(format!("{usage}, but request is {request}"))
}

fn above_ratio(kind: &str, name: &str, most: Written, found: &Resources) -> Option<String> {
    let usage = format!("{name} max limit to request ratio per {kind} is {most}");
    let given = |amounts: &Amounts| {
        let found = amounts.get(name);
        let millis = found.map(|found| u128::from(found.amount.millis()));
        millis.filter(|millis| *millis > 0)
    };
    let Some(request) = given(&found.requests) else {
        return Some(format!(
            "{usage}, but no request is specified or request is 0"
        ));
    };
    let Some(limit) = given(&found.limits) else {
        return Some(format!("{usage}, but no limit is specified or limit is 0"));
    };
    // In thousandths, both sides.
    if limit * 1000 <= request * u128::from(most.amount.millis()) {
        return None;
    }
    let ratio = quotient(limit, request);
    Some(format!("{usage}, but provided ratio is {ratio}"))
}

/// Containers that are alike give one message.
fn distinct(wrong: Vec<String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for one in wrong {
        if !all.contains(&one) {
            all.push(one);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn range(limits: Value) -> Value {
        let mut range = json!({"spec": {}});
        range["spec"]["limits"] = vec![limits].into();
        range
    }

    #[test]
    fn containers_and_pods_are_within_their_limits() {
        let container = |requests: Value, limits: Value| json!({"name": "c", "resources": {"requests": requests, "limits": limits}});
        let one = || vec![container(json!({"cpu": "1"}), json!({"cpu": "2"}))];
        let two = || [one(), one()].concat();
        let none = || vec![json!({"name": "c"})];
        for (limits, containers, expected) in [
            (
                json!({"type": "Container", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "2"}}),
                one(),
                "",
            ),
            (
                json!({"type": "Container", "min": {"cpu": "1500m"}}),
                one(),
                "minimum cpu usage per Container is 1500m, but request is 1",
            ),
            (
                json!({"type": "Container", "min": {"cpu": "1"}}),
                none(),
                "minimum cpu usage per Container is 1.  No request is specified",
            ),
            (
                json!({"type": "Container", "max": {"cpu": "1500m"}}),
                two(),
                "maximum cpu usage per Container is 1500m, but limit is 2",
            ),
            (
                json!({"type": "Container", "max": {"memory": "1Gi"}}),
                one(),
                "maximum memory usage per Container is 1Gi.  No limit is specified",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "1500m"}}),
                one(),
                "cpu max limit to request ratio per Container is 1500m, but provided ratio is 2.000000",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"memory": "2"}}),
                one(),
                "memory max limit to request ratio per Container is 2, but no request is specified or request is 0",
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
                vec![container(json!({"cpu": "3"}), json!({"cpu": "7"}))],
                "cpu max limit to request ratio per Container is 2, but provided ratio is 2.333333",
            ),
            (
                json!({"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "4"}}),
                two(),
                "",
            ),
            (
                json!({"type": "Pod", "max": {"cpu": "3"}}),
                two(),
                "maximum cpu usage per Pod is 3, but limit is 4",
            ),
            (
                json!({"type": "Container", "max": {"memory": "16G"}}),
                vec![container(json!({}), json!({"memory": "20480M"}))],
                "maximum memory usage per Container is 16G, but limit is 20480M",
            ),
            (
                json!({"type": "Pod", "max": {"memory": "2048"}}),
                [
                    vec![container(json!({}), json!({"memory": "1Ki"}))],
                    vec![container(json!({}), json!({"memory": "3072"}))],
                ]
                .concat(),
                "maximum memory usage per Pod is 2048, but limit is 4Ki",
            ),
            (
                json!({"type": "Pod", "min": {"cpu": "3"}}),
                two(),
                "minimum cpu usage per Pod is 3, but request is 2",
            ),
            (
                json!({"type": "PersistentVolumeClaim", "max": {"storage": "1"}}),
                one(),
                "",
            ),
        ] {
            let pod = json!({"spec": {"containers": containers}});
            let found = of_pod(&range(limits.clone()), &pod);
            assert_eq!(found.join("; "), expected, "{limits} {pod}");
        }
    }

    #[test]
    fn init_containers_are_checked_like_others() {
        let resources = json!({"requests": {"cpu": "1"}, "limits": {"cpu": "3"}});
        let pod = json!({"spec": {"initContainers": [{"name": "i", "resources": resources}]}});
        for kind in ["Container", "Pod"] {
            let found = of_pod(&range(json!({"type": kind, "max": {"cpu": "2"}})), &pod);
            assert_eq!(
                found,
                [format!("maximum cpu usage per {kind} is 2, but limit is 3")]
            );
        }
    }

    #[test]
    fn claims_are_within_their_limits() {
        let kind = "PersistentVolumeClaim";
        let limits = json!({"type": kind, "min": {"storage": "2Gi"}, "max": {"storage": "4Gi"}});
        for (storage, expected) in [
            (
                "1Gi",
                "minimum storage usage per PersistentVolumeClaim is 2Gi, but request is 1Gi",
            ),
            ("2Gi", ""),
            ("4Gi", ""),
            (
                "5Gi",
                "maximum storage usage per PersistentVolumeClaim is 4Gi, but request is 5Gi",
            ),
        ] {
            let claim = json!({"spec": {"resources": {"requests": {"storage": storage}}}});
            let found = of_claim(&range(limits.clone()), &claim);
            assert_eq!(found.join("; "), expected);
        }
        assert_eq!(
            of_claim(
                &range(json!({"type": "Pod", "max": {"storage": "1"}})),
                &json!({})
            ),
            [] as [&str; 0]
        );
    }
}
