//! Rows of objects in many states.

use serde_json::json;

use super::*;

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().expect("is a time")
}

#[track_caller]
fn cells(layout: &Layout, object: &Value) -> Value {
    let table = layout.render(
        std::slice::from_ref(object),
        &json!({}),
        IncludeObject::None,
        now(),
    );
    assert_eq!(table["rows"][0].get("object"), Some(&Value::Null));
    table["rows"][0]["cells"].clone()
}

fn pod(spec: &Value, status: &Value) -> Value {
    json!({"metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:55:00Z"}, "spec": spec, "status": status})
}

#[track_caller]
fn pod_row(spec: &Value, status: &Value, expected: &Value) {
    let found = cells(&Layout::built_in("", "pods"), &pod(spec, status));
    let shown: Vec<Value> = found
        .as_array()
        .expect("is a row")
        .iter()
        .take(5)
        .cloned()
        .collect();
    assert_eq!(&Value::Array(shown), expected, "{status}");
}

#[test]
fn pod_status_matches_kubectl() {
    let one = json!({"containers": [{"name": "c"}]});
    let running = json!({"name": "c", "ready": true, "restartCount": 0, "state": {"running": {}}});
    pod_row(
        &one,
        &json!({"phase": "Pending"}),
        &json!(["p", "0/1", "Pending", "0", "5m"]),
    );
    pod_row(
        &one,
        &json!({"phase": "Running", "containerStatuses": [running]}),
        &json!(["p", "1/1", "Running", "0", "5m"]),
    );
    pod_row(
        &one,
        &json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 3,
            "lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:00Z"}},
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
        &json!(["p", "0/1", "CrashLoopBackOff", "3 (60s ago)", "5m"]),
    );
    pod_row(
        &one,
        &json!({"phase": "Succeeded", "containerStatuses": [{"name": "c",
            "state": {"terminated": {"reason": "Completed", "exitCode": 0}}}]}),
        &json!(["p", "0/1", "Completed", "0", "5m"]),
    );
    pod_row(
        &one,
        &json!({"phase": "Failed", "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 3}}}]}),
        &json!(["p", "0/1", "ExitCode:3", "0", "5m"]),
    );
    let two =
        json!({"containers": [{"name": "c"}], "initContainers": [{"name": "i"}, {"name": "j"}]});
    pod_row(
        &two,
        &json!({"phase": "Pending", "initContainerStatuses": [
            {"name": "i", "state": {"terminated": {"exitCode": 0}}},
            {"name": "j", "state": {"waiting": {"reason": "PodInitializing"}}}]}),
        &json!(["p", "0/1", "Init:1/2", "0", "5m"]),
    );
    pod_row(
        &two,
        &json!({"phase": "Pending", "initContainerStatuses": [
            {"name": "i", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}),
        &json!(["p", "0/1", "Init:CrashLoopBackOff", "1", "5m"]),
    );
    let mut leaving = pod(&one, &json!({"phase": "Running", "podIP": "10.0.0.1"}));
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:59:00Z".into();
    let row = cells(&Layout::built_in("", "pods"), &leaving);
    assert_eq!(
        row,
        json!([
            "p",
            "0/1",
            "Terminating",
            "0",
            "5m",
            "10.0.0.1",
            "<none>",
            "<none>",
            "<none>"
        ])
    );
}

#[test]
fn every_built_in_kind_has_a_row() {
    let time = "2026-01-01T00:59:30Z";
    let meta = json!({"name": "x", "creationTimestamp": time});
    let small = [
        (
            "",
            "namespaces",
            json!({"metadata": meta, "status": {"phase": "Active"}}),
            json!(["x", "Active", "30s"]),
        ),
        (
            "",
            "configmaps",
            json!({"metadata": meta, "data": {"a": "", "b": ""}}),
            json!(["x", 2, "30s"]),
        ),
        (
            "networking.k8s.io",
            "networkpolicies",
            json!({"metadata": meta, "spec": {"podSelector": {
                "matchLabels": {"a": "b"},
                "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}],
            }}}),
            json!(["x", "a=b,c in (d,e)", "30s"]),
        ),
        (
            "",
            "secrets",
            json!({"metadata": meta, "type": "Opaque"}),
            json!(["x", "Opaque", 0, "30s"]),
        ),
        (
            "",
            "serviceaccounts",
            json!({"metadata": meta}),
            json!(["x", "0", "30s"]),
        ),
        (
            "coordination.k8s.io",
            "leases",
            json!({"metadata": meta, "spec": {"holderIdentity": "h"}}),
            json!(["x", "h", "30s"]),
        ),
    ];
    all_have_rows(&small);
}

#[track_caller]
fn all_have_rows(cases: &[(&str, &str, Value, Value)]) {
    for (group, plural, object, expected) in cases {
        assert_eq!(
            &cells(&Layout::built_in(group, plural), object),
            expected,
            "{plural}"
        );
    }
}

#[test]
fn kinds_with_many_columns_have_a_row() {
    let time = "2026-01-01T00:59:30Z";
    let meta = json!({"name": "x", "creationTimestamp": time});
    let large = [
        (
            "",
            "nodes",
            json!({"metadata": {"name": "x", "creationTimestamp": time, "labels": {"node-role.kubernetes.io/control-plane": ""}},
                "spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kubeletVersion": "v1"}}}),
            json!([
                "x",
                "Ready,SchedulingDisabled",
                "control-plane",
                "30s",
                "v1",
                "<none>",
                "<none>",
                "<unknown>",
                "<unknown>",
                "<unknown>"
            ]),
        ),
        (
            "",
            "events",
            json!({"metadata": meta, "type": "Normal", "reason": "R", "message": "m\n", "lastTimestamp": time,
                "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "c"}}),
            json!([
                "30s",
                "Normal",
                "R",
                "pod/p",
                "",
                "c",
                "m",
                "<unknown>",
                "1",
                "x"
            ]),
        ),
        (
            "",
            "services",
            json!({"metadata": meta, "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1",
                "ports": [{"port": 80, "nodePort": 3}], "selector": {"a": "b"}}}),
            json!([
                "x",
                "ClusterIP",
                "10.0.0.1",
                "<none>",
                "80:3/TCP",
                "30s",
                "a=b"
            ]),
        ),
        (
            "",
            "endpoints",
            json!({"metadata": meta, "subsets": [{"addresses": [{"ip": "1"}, {"ip": "2"}], "ports": [{"port": 1}, {"port": 2}]}]}),
            json!(["x", "1:1,1:2,2:1 + 1 more...", "30s"]),
        ),
        (
            "apiextensions.k8s.io",
            "customresourcedefinitions",
            json!({"metadata": meta}),
            json!(["x", time]),
        ),
        (
            "apiregistration.k8s.io",
            "apiservices",
            json!({"metadata": meta, "status": {"conditions": [{"type": "Available", "status": "False", "reason": "R"}]}}),
            json!(["x", "Local", "False (R)", "30s"]),
        ),
    ];
    all_have_rows(&large);
}

#[test]
fn printer_columns_of_custom_kinds() {
    let columns = json!([
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Status", "type": "string", "jsonPath": ".status.printableStatus"},
        {"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Ready')].status"},
        {"name": "Count", "type": "integer", "jsonPath": ".spec.count", "priority": 1},
        {"name": "Live", "type": "boolean", "jsonPath": ".spec.live"},
    ]);
    let layout = Layout::custom(&columns, "c").expect("reads");
    let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"count": 3, "live": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(
        cells(&layout, &object),
        json!(["x", "60m", null, "True", 3, true])
    );
    let table = layout.render(
        &[object],
        &json!({"resourceVersion": "7"}),
        IncludeObject::Metadata,
        now(),
    );
    assert_eq!(table["metadata"], json!({"resourceVersion": "7"}));
    assert_eq!(table["columnDefinitions"][4]["priority"], 1);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let plain = Layout::custom(&Value::Null, "c").expect("reads");
    assert_eq!(
        cells(&plain, &json!({"metadata": {"name": "x"}})),
        json!(["x", "<unknown>"])
    );
    let wrong = Layout::custom(
        &json!([{"name": "A", "type": "string", "jsonPath": ".a["}]),
        "c",
    );
    assert_eq!(wrong.expect_err("is refused").len(), 1);
}
