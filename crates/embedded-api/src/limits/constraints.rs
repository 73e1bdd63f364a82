//! What a limit range forbids. Pure; messages are those of Kubernetes.

use quantity::Amount;
use serde_json::Value;

use crate::kinds::limits::amount;
use crate::quota::{Usage, amounts, containers, pod_amounts};

/// The requests and limits of a container or of a whole pod.
struct Resources {
    requests: Usage,
    limits: Usage,
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
                    requests: pod_amounts(pod, "requests"),
                    limits: pod_amounts(pod, "limits"),
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
                Some(found) if *found < least => {
                    wrong.push(format!("{usage}, but request is {found}"));
                }
                Some(_) => {}
            }
        }
        for (name, most) in named(&item["max"]) {
            let usage = format!("maximum {name} usage per {KIND} is {most}");
            match requests.get(name) {
                None => wrong.push(format!("{usage}.  No request is specified")),
                Some(found) if *found > most => {
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

fn named(list: &Value) -> impl Iterator<Item = (&str, Amount)> {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(name, value)| Some((name.as_str(), amount(value)?)))
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

fn below_minimum(kind: &str, name: &str, least: Amount, found: &Resources) -> Option<String> {
    let usage = format!("minimum {name} usage per {kind} is {least}");
    let Some(request) = found.requests.get(name) else {
        return Some(format!("{usage}.  No request is specified"));
    };
    if *request < least {
        return Some(format!("{usage}, but request is {request}"));
    }
    let limit = found.limits.get(name).filter(|limit| **limit < least)?;
    Some(format!("{usage}, but limit is {limit}"))
}

fn above_maximum(kind: &str, name: &str, most: Amount, found: &Resources) -> Option<String> {
    let usage = format!("maximum {name} usage per {kind} is {most}");
    let Some(limit) = found.limits.get(name) else {
        return Some(format!("{usage}.  No limit is specified"));
    };
    if *limit > most {
        return Some(format!("{usage}, but limit is {limit}"));
    }
    let request = found
        .requests
        .get(name)
        .filter(|request| **request > most)?;
    Some(format!("{usage}, but request is {request}"))
}

fn above_ratio(kind: &str, name: &str, most: Amount, found: &Resources) -> Option<String> {
    let usage = format!("{name} max limit to request ratio per {kind} is {most}");
    let given = |amounts: &Usage| {
        let millis = amounts.get(name).map(|amount| u128::from(amount.millis()));
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
    if limit * 1000 <= request * u128::from(most.millis()) {
        return None;
    }
    let millionths = (limit * 1_000_000 + request / 2) / request;
    let (whole, rest) = (millionths / 1_000_000, millionths % 1_000_000);
    Some(format!("{usage}, but provided ratio is {whole}.{rest:06}"))
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
        json!({"spec": {"limits": [limits]}})
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
