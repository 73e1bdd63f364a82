//! The parts of the documents that clients use, and discovery from the same list.

use serde_json::json;

use super::*;
use crate::{
    Subresource, discovery, meta,
    protobuf::wire::{Wire, fields},
};

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
            takes_strategic_patches: true,
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
            takes_strategic_patches: false,
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
    // A field that may be null has no type: kubectl would refuse the null.
    assert_eq!(running, &json!({"description": "Should it run?"}));
}

#[test]
fn version_two_does_not_describe_what_may_be_unknown() {
    let with = |schema: Value| Resource {
        schema,
        ..resources().into_iter().next().expect("a kind")
    };
    let described = |schema: Value| {
        let resource = with(schema);
        let name = definitions::name_of(&resource);
        v2(&[resource], "v1")["definitions"][name].clone()
    };
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                      "properties": {"a": {"type": "string"}}});
    let root = described(open.clone());
    assert_eq!(root["type"], "object");
    assert!(root["properties"].is_null() && root["x-kubernetes-preserve-unknown-fields"].is_null());
    let inner = described(json!({"type": "object", "properties": {"free": open}}));
    let free = &inner["properties"]["free"];
    assert_eq!(free, &json!({"x-kubernetes-preserve-unknown-fields": true}));
    let version = inner["properties"]["apiVersion"]["description"].as_str();
    assert!(version.is_some_and(|text| text.starts_with("APIVersion defines")));
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

#[test]
fn strategic_patches_are_offered_for_built_in_kinds_only() {
    let paths = &v2(&resources(), "v1")["paths"];
    let types = |path: &str| paths[path]["patch"]["consumes"].to_string();
    let strategic = "application/strategic-merge-patch+json";
    assert!(types("/api/v1/namespaces/{namespace}/pods/{name}").contains(strategic));
    let vms = types("/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}");
    assert!(vms.contains("merge-patch") && !vms.contains(strategic));
}

#[test]
fn document_of_an_aggregated_server_is_merged_below_its_group() {
    let own = "/apis/sub.x.io/v1/namespaces/{namespace}/things/{name}/start";
    let mut schemas = Map::new();
    let inner = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/Other"}}});
    schemas.insert("Options".to_owned(), inner);
    let mut paths = Map::new();
    let put = json!({"put": {"responses": {"202": {"description": "Accepted"}}}});
    paths.insert(own.to_owned(), put.clone());
    paths.insert("/api/v1/pods".to_owned(), put.clone());
    let other = document(Dialect::V2, "x", &paths, schemas.clone());
    let reference = &other["definitions"]["Options"]["properties"]["a"]["$ref"];
    assert_eq!(reference, "#/definitions/Other");
    let third = document(Dialect::V3, "x", &paths, schemas);
    let reference = &third["components"]["schemas"]["Options"]["properties"]["a"]["$ref"];
    assert_eq!(reference, "#/components/schemas/Other");

    let mut merged = v2(&resources(), "v1.33.0");
    let before = merged.clone();
    merge(&mut merged, &other, "/apis/sub.x.io/v1/");
    assert_eq!(merged["paths"][own], put);
    assert_eq!(merged["definitions"]["Options"]["type"], "object");
    for (part, added) in [("paths", own), ("definitions", "Options")] {
        let own = meta::object_mut(&mut merged[part]);
        own.shift_remove(added);
    }
    assert_eq!(merged, before, "everything else is as it was");
}

/// The strings and messages in that field of a message.
fn parts(message: &[u8], number: u64) -> Vec<&[u8]> {
    let fields = fields(message).map(|field| field.expect("it is well formed"));
    fields
        .filter_map(|field| match field {
            (found, Wire::Bytes(bytes)) if found == number => Some(bytes),
            _ => None,
        })
        .collect()
}

/// The only string or message at the end of a path of fields.
#[track_caller]
fn part<'a>(message: &'a [u8], path: &[u64]) -> &'a [u8] {
    path.iter().fold(message, |message, number| {
        let found = parts(message, *number);
        assert_eq!(found.len(), 1, "field {number} of {path:?}");
        found[0]
    })
}

fn string(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}

/// Values by name: maps are lists of messages with a name (1) and a value (2).
fn named(message: &[u8], number: u64) -> Vec<(&str, &[u8])> {
    let pairs = parts(message, number).into_iter();
    pairs
        .map(|pair| (string(part(pair, &[1])), part(pair, &[2])))
        .collect()
}

#[track_caller]
fn value<'a>(message: &'a [u8], number: u64, name: &str) -> &'a [u8] {
    let all = named(message, number);
    let found = all.iter().find(|(found, _)| *found == name);
    found.expect(name).1
}

fn keys(map: &Value) -> Vec<&str> {
    let map = map.as_object().expect("a map");
    map.keys().map(String::as_str).collect()
}

/// The numbers are those of `OpenAPIv2.proto` of gnostic, which kubectl decodes with.
#[test]
fn version_two_as_protobuf_is_decoded_by_the_numbers_of_its_messages() {
    let document = v2(&resources(), "v1.33.0");
    let bytes = to_protobuf(&document);
    let [swagger, version] = [&[1][..], &[2, 2]].map(|path| string(part(&bytes, path)));
    assert_eq!((swagger, version), ("2.0", "v1.33.0"));

    // Document: paths 8; Paths: path 2. Document: definitions 9; Definitions: additional_properties 1.
    let (paths, definitions) = (part(&bytes, &[8]), part(&bytes, &[9]));
    for (decoded, map) in [
        (named(paths, 2), &document["paths"]),
        (named(definitions, 1), &document["definitions"]),
    ] {
        let names: Vec<&str> = decoded.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, keys(map));
    }

    // PathItem: patch 8, parameters 9. Operation: consumes 7, parameters 8, responses 9, extensions 13.
    let path = "/api/v1/namespaces/{namespace}/pods/{name}";
    let (item, expected) = (value(paths, 2, path), &document["paths"][path]);
    let patch = part(item, &[8]);
    let consumes: Vec<&str> = parts(patch, 7).into_iter().map(string).collect();
    assert_eq!(json!(consumes), expected["patch"]["consumes"]);
    // Any: yaml 2.
    let kind = value(patch, 13, "x-kubernetes-group-version-kind");
    let kind: Value = serde_json::from_slice(part(kind, &[2])).expect("it is JSON");
    assert_eq!(kind["kind"], "Pod");
    // Responses: response_code 1; ResponseValue: response 1; Response: description 1, schema 2.
    let done = part(value(part(patch, &[9]), 1, "200"), &[1]);
    let schema = &expected["patch"]["responses"]["200"]["schema"]["$ref"];
    assert_eq!(string(part(done, &[2, 1, 1])), schema);

    // ParametersItem: parameter 1. Parameter: body 1, any other 2, of these: query 3, path 4. The name is 2 in
    // the body's message and 4 in the others.
    let name = |parameter: &&[u8]| {
        let parameter = part(parameter, &[1]);
        let name = match (&parts(parameter, 1)[..], &parts(parameter, 2)[..]) {
            ([body], []) => part(body, &[2]),
            ([], [other]) if parts(other, 3).is_empty() => part(other, &[4, 4]),
            ([], [other]) => part(other, &[3, 4]),
            found => panic!("it has one place, not {found:?}"),
        };
        string(name).to_owned()
    };
    for (decoded, parameters) in [
        (parts(item, 9), &expected["parameters"]),
        (parts(patch, 8), &expected["patch"]["parameters"]),
    ] {
        let names: Vec<String> = decoded.iter().map(name).collect();
        let expected = parameters.as_array().expect("some").iter();
        let expected: Vec<&str> = expected.filter_map(|one| one["name"].as_str()).collect();
        assert!(!names.is_empty());
        assert_eq!(names, expected);
    }

    // Schema: properties 25 (additional_properties 1), type 22 (value 1), items 23 (schema 1), $ref 1,
    // extensions 31.
    let fields = part(value(definitions, 1, "PodSpec"), &[25]);
    let containers = value(fields, 1, "containers");
    assert_eq!(string(part(containers, &[22, 1])), "array");
    let element = string(part(containers, &[23, 1, 1]));
    assert_eq!(element, "#/definitions/Container");
    let key = value(containers, 31, "x-kubernetes-patch-merge-key");
    assert_eq!(part(key, &[2]), b"\"name\"");
}
