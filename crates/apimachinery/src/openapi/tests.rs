//! The parts of the documents that clients use, and discovery from the same list.

use serde_json::json;

use super::*;
use crate::{Subresource, discovery};

fn resources() -> Vec<Resource> {
    let verbs = [
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    let verbs: Vec<String> = verbs.iter().map(|verb| (*verb).to_owned()).collect();
    let status = |kind: &str| Subresource {
        name: "status".to_owned(),
        kind: kind.to_owned(),
        api_version: None,
        verbs: vec!["get".to_owned(), "patch".to_owned(), "update".to_owned()],
    };
    let pod = json!({"type": "object", "title": "Pod",
        "properties": {"spec": {"$ref": "#/$defs/PodSpec"}},
        "$defs": {"PodSpec": {"type": "object", "properties": {
            "containers": {"type": "array", "items": {"$ref": "#/$defs/Container"}}}},
            "Container": {"type": "object", "properties": {"name": {"type": "string"},
                "ports": {"type": "array", "items": {"type": "object"}}}}}});
    let vm = json!({"type": "object", "description": "A machine.", "properties": {
        "metadata": {"type": "object"},
        "spec": {"type": "object", "description": "Desired state.", "properties": {
            "running": {"type": "boolean", "nullable": true, "description": "Should it run?"}}}}});
    vec![
        Resource {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            plural: "pods".to_owned(),
            singular: "pod".to_owned(),
            short_names: vec!["po".to_owned()],
            categories: vec!["all".to_owned()],
            namespaced: true,
            verbs: verbs.clone(),
            subresources: vec![status("Pod")],
            schema: pod,
        },
        Resource {
            group: "kubevirt.io".to_owned(),
            version: "v1".to_owned(),
            kind: "VirtualMachine".to_owned(),
            plural: "virtualmachines".to_owned(),
            singular: "virtualmachine".to_owned(),
            short_names: vec!["vm".to_owned()],
            categories: Vec::new(),
            namespaced: true,
            verbs,
            subresources: vec![status("VirtualMachine")],
            schema: vm,
        },
    ]
}

#[test]
fn version_three_has_what_clients_look_up() {
    let all = resources();
    let index = v3_index(&all);
    let url = index["paths"]["apis/kubevirt.io/v1"]["serverRelativeURL"]
        .as_str()
        .expect("is there");
    assert!(
        url.starts_with("/openapi/v3/apis/kubevirt.io/v1?hash="),
        "{url}"
    );
    let document = v3(&all, "kubevirt.io", "v1", "v1.33.0").expect("is there");
    let item = "/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}";
    let patch = &document["paths"][item]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"]["kind"],
        "VirtualMachine"
    );
    let names: Vec<&Value> = patch["parameters"]
        .as_array()
        .expect("has some")
        .iter()
        .map(|p| &p["name"])
        .collect();
    assert_eq!(
        names,
        ["dryRun", "fieldManager", "fieldValidation", "force"]
    );
    let schemas = &document["components"]["schemas"];
    let vm = &schemas["io.kubevirt.v1.VirtualMachine"];
    assert_eq!(
        vm["x-kubernetes-group-version-kind"][0]["group"],
        "kubevirt.io"
    );
    assert_eq!(
        vm["properties"]["spec"]["properties"]["running"]["nullable"],
        true
    );
    assert!(v3(&all, "kubevirt.io", "v2", "").is_none());
    assert_references_resolve(&document);
}

#[test]
fn built_in_lists_carry_their_merge_keys() {
    for document in [
        v2(&resources(), "v1"),
        v3(&resources(), "", "v1", "v1").expect("is there"),
    ] {
        let schemas = document
            .get("definitions")
            .unwrap_or(&document["components"]["schemas"]);
        let containers = &schemas["PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        let ports = &schemas["Container"]["properties"]["ports"];
        assert_eq!(
            ports["x-kubernetes-list-map-keys"],
            json!(["containerPort", "protocol"])
        );
        assert_references_resolve(&document);
    }
}

#[test]
fn version_two_omits_unsupported_keywords() {
    let document = v2(&resources(), "v1");
    let running = &document["definitions"]["io.kubevirt.v1.VirtualMachine"]["properties"]["spec"]["properties"]
        ["running"];
    assert_eq!(
        running,
        &json!({"type": "boolean", "description": "Should it run?"})
    );
}

#[track_caller]
fn assert_references_resolve(document: &Value) {
    fn visit(node: &Value, document: &Value) {
        match node {
            Value::Object(fields) => {
                if let Some(Value::String(target)) = fields.get("$ref") {
                    assert!(
                        document.pointer(target.trim_start_matches('#')).is_some(),
                        "{target}"
                    );
                }
                fields.values().for_each(|value| visit(value, document));
            }
            Value::Array(items) => items.iter().for_each(|item| visit(item, document)),
            _ => {}
        }
    }
    visit(document, document);
}

#[test]
fn both_discovery_formats_agree() {
    let all = resources();
    let groups = discovery::group_list(&all);
    assert_eq!(
        groups["groups"],
        json!([{"name": "kubevirt.io", "versions": [{"groupVersion": "kubevirt.io/v1", "version": "v1"}],
            "preferredVersion": {"groupVersion": "kubevirt.io/v1", "version": "v1"}}])
    );
    assert_eq!(
        discovery::group(&all, "kubevirt.io").expect("is there")["kind"],
        "APIGroup"
    );
    let list = discovery::resource_list(&all, "kubevirt.io", "v1").expect("is there");
    assert_eq!(list["resources"][1]["name"], "virtualmachines/status");
    assert_eq!(list["resources"][0]["shortNames"], json!(["vm"]));
    let read = discovery::from_resource_list(&list);
    assert_eq!(
        discovery::resource_list(&read, "kubevirt.io", "v1"),
        Some(list)
    );
    let core = discovery::aggregated(&all, discovery::Half::Core);
    assert_eq!(
        core["items"][0]["versions"][0]["resources"][0]["resource"],
        "pods"
    );
    let rest = discovery::aggregated(&all, discovery::Half::Groups);
    assert_eq!(rest["items"][0]["metadata"]["name"], "kubevirt.io");
    let vm = &rest["items"][0]["versions"][0]["resources"][0];
    assert_eq!(
        (&vm["scope"], &vm["subresources"][0]["subresource"]),
        (&json!("Namespaced"), &json!("status"))
    );
}
