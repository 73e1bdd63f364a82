//! Discovery documents: groups, versions and resources, separately and aggregated.
//!
//! Invariant: everything is derived from the list of resources, in its order.

use serde_json::{Map, Value, json};

use crate::resource::{join_api_version, split_api_version};
use crate::{Resource, Subresource};

/// `/api`: the versions of the core group. `address` is the server's address for clients.
pub fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`: an `APIGroupList` without the core group.
pub fn group_list(resources: &[Resource]) -> Value {
    let groups: Vec<Value> = groups(resources)
        .into_iter()
        .filter(|group| !group.is_empty())
        .map(|group| group_body(resources, group))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/<group>`: one `APIGroup`.
pub fn group(resources: &[Resource], group: &str) -> Option<Value> {
    resources
        .iter()
        .any(|resource| resource.group == group)
        .then(|| {
            let mut out = json!({"kind": "APIGroup", "apiVersion": "v1"});
            if let (Value::Object(out), Value::Object(body)) =
                (&mut out, group_body(resources, group))
            {
                out.extend(body);
            }
            out
        })
}

/// `/api/v1` and `/apis/<group>/<version>`: an `APIResourceList`.
pub fn resource_list(resources: &[Resource], group: &str, version: &str) -> Option<Value> {
    let mut entries = Vec::new();
    let mut found = false;
    for resource in of_version(resources, group, version) {
        found = true;
        entries.push(resource_entry(resource));
        entries.extend(subresource_entries(resource));
    }
    found.then(|| {
        json!({
            "kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": join_api_version(group, version), "resources": entries,
        })
    })
}

/// The requested half of aggregated discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    /// `/api`
    Core,
    /// `/apis`
    Groups,
}

/// The media type of the aggregated document.
pub const AGGREGATED_MEDIA_TYPE: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/api` and `/apis` in the format `apidiscovery.k8s.io/v2`.
pub fn aggregated(resources: &[Resource], half: Half) -> Value {
    let items: Vec<Value> = groups(resources)
        .into_iter()
        .filter(|group| group.is_empty() == (half == Half::Core))
        .map(|group| {
            let versions: Vec<Value> = versions(resources, group)
                .into_iter()
                .map(|version| {
                    let entries: Vec<Value> = of_version(resources, group, version)
                        .map(aggregated_entry)
                        .collect();
                    json!({"version": version, "resources": entries, "freshness": "Current"})
                })
                .collect();
            let metadata = if group.is_empty() {
                json!({"creationTimestamp": null})
            } else {
                json!({"name": group, "creationTimestamp": null})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {}, "items": items,
    })
}

/// Parses another server's `APIResourceList`, so that aggregated groups appear in our documents.
pub fn from_resource_list(list: &Value) -> Vec<Resource> {
    let (group, version) = split_api_version(list["groupVersion"].as_str().unwrap_or_default());
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let texts = |entry: &Value, key: &str| -> Vec<String> {
        let list = entry[key].as_array().into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut out: Vec<Resource> = Vec::new();
    for entry in list["resources"].as_array().into_iter().flatten() {
        let name = text(entry, "name");
        let (plural, subresource) = match name.split_once('/') {
            Some((plural, sub)) => (plural, Some(sub)),
            None => (name.as_str(), None),
        };
        let at = out
            .iter()
            .position(|r| r.plural == plural)
            .unwrap_or_else(|| {
                out.push(Resource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    kind: String::new(),
                    plural: plural.to_owned(),
                    singular: String::new(),
                    short_names: Vec::new(),
                    categories: Vec::new(),
                    namespaced: entry["namespaced"].as_bool().unwrap_or_default(),
                    verbs: Vec::new(),
                    subresources: Vec::new(),
                    schema: Value::Null,
                    takes_strategic_patches: false,
                });
                out.len() - 1
            });
        let Some(resource) = out.get_mut(at) else {
            continue;
        };
        if let Some(sub) = subresource {
            let api_version = entry["version"]
                .as_str()
                .map(|version| join_api_version(&text(entry, "group"), version));
            resource.subresources.push(Subresource {
                name: sub.to_owned(),
                kind: text(entry, "kind"),
                api_version,
                verbs: texts(entry, "verbs"),
            });
        } else {
            resource.kind = text(entry, "kind");
            resource.singular = text(entry, "singularName");
            resource.short_names = texts(entry, "shortNames");
            resource.categories = texts(entry, "categories");
            resource.verbs = texts(entry, "verbs");
        }
    }
    out
}

fn groups(resources: &[Resource]) -> Vec<&str> {
    distinct(resources.iter().map(|resource| resource.group.as_str()))
}

fn versions<'a>(resources: &'a [Resource], group: &str) -> Vec<&'a str> {
    distinct(
        resources
            .iter()
            .filter(|r| r.group == group)
            .map(|r| r.version.as_str()),
    )
}

fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut out = Vec::new();
    for one in all {
        if !out.contains(&one) {
            out.push(one);
        }
    }
    out
}

fn of_version<'a>(
    resources: &'a [Resource],
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a Resource> {
    resources
        .iter()
        .filter(move |r| r.group == group && r.version == version)
}

fn group_body(resources: &[Resource], group: &str) -> Value {
    let versions: Vec<Value> = versions(resources, group)
        .into_iter()
        .map(
            |version| json!({"groupVersion": join_api_version(group, version), "version": version}),
        )
        .collect();
    let preferred = versions.first().cloned().unwrap_or_default();
    json!({"name": group, "versions": versions, "preferredVersion": preferred})
}

fn resource_entry(resource: &Resource) -> Value {
    let mut out = json!({
        "name": resource.plural, "singularName": resource.singular,
        "namespaced": resource.namespaced, "kind": resource.kind, "verbs": resource.verbs,
    });
    add_lists(&mut out, resource);
    if let Value::Object(out) = &mut out {
        let hash = storage_hash(resource);
        out.insert("storageVersionHash".to_owned(), hash.into());
    }
    out
}

fn subresource_entries(resource: &Resource) -> impl Iterator<Item = Value> {
    resource.subresources.iter().map(|sub| {
        let mut out = Map::new();
        out.insert(
            "name".to_owned(),
            format!("{}/{}", resource.plural, sub.name).into(),
        );
        out.insert("singularName".to_owned(), "".into());
        out.insert("namespaced".to_owned(), resource.namespaced.into());
        if let Some(api_version) = &sub.api_version {
            let (group, version) = split_api_version(api_version);
            if !group.is_empty() {
                out.insert("group".to_owned(), group.into());
            }
            out.insert("version".to_owned(), version.into());
        }
        out.insert("kind".to_owned(), sub.kind.as_str().into());
        out.insert("verbs".to_owned(), sub.verbs.clone().into());
        Value::Object(out)
    })
}

fn aggregated_entry(resource: &Resource) -> Value {
    let scope = if resource.namespaced {
        "Namespaced"
    } else {
        "Cluster"
    };
    let mut out = json!({
        "resource": resource.plural,
        "responseKind": response_kind(&resource.group, &resource.version, &resource.kind),
        "scope": scope, "singularResource": resource.singular, "verbs": resource.verbs,
    });
    add_lists(&mut out, resource);
    if !resource.subresources.is_empty() {
        let subs: Vec<Value> = resource
            .subresources
            .iter()
            .map(|sub| {
                let own = resource.api_version();
                let (group, version) =
                    split_api_version(sub.api_version.as_deref().unwrap_or(&own));
                json!({
                    "subresource": sub.name, "verbs": sub.verbs,
                    "responseKind": response_kind(group, version, &sub.kind),
                })
            })
            .collect();
        out["subresources"] = subs.into();
    }
    out
}

/// Without a kind, the group and the version are empty, too: clients leave out such an entry, which is only
/// there for its subresources.
fn response_kind(group: &str, version: &str, kind: &str) -> Value {
    let (group, version) = if kind.is_empty() {
        ("", "")
    } else {
        (group, version)
    };
    json!({"group": group, "version": version, "kind": kind})
}

fn add_lists(out: &mut Value, resource: &Resource) {
    for (key, list) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !list.is_empty() {
            out[key] = list.clone().into();
        }
    }
}

/// Opaque to clients: equal for equal storage versions.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine as _;
    let text = format!("{}/{}/{}", resource.group, resource.version, resource.kind);
    base64::engine::general_purpose::STANDARD.encode(fnv(text.as_bytes()).to_be_bytes())
}

/// FNV-1a: stable over releases of the compiler, unlike the standard hasher.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients take an entry for a resource of its own if any part of its kind is set: k9s then lists
    /// `virtualmachines` of the group of subresources, which no server has.
    #[test]
    fn parent_that_is_not_listed_has_no_kind() {
        let entry = |name: &str, kind: &str| json!({"name": name, "namespaced": true, "kind": kind, "verbs": ["get"]});
        let list = json!({"groupVersion": "x.io/v1", "resources": [
            entry("things/part", ""), entry("others", "Other"), entry("others/scale", "Scale"),
        ]});
        let document = aggregated(&from_resource_list(&list), Half::Groups);
        let resources = &document["items"][0]["versions"][0]["resources"];
        let none = json!({"group": "", "version": "", "kind": ""});
        assert_eq!(resources[0]["resource"], "things");
        assert_eq!(resources[0]["responseKind"], none);
        assert_eq!(resources[0]["subresources"][0]["responseKind"], none);
        let other = json!({"group": "x.io", "version": "v1", "kind": "Other"});
        assert_eq!(resources[1]["responseKind"], other);
        let scale = json!({"group": "x.io", "version": "v1", "kind": "Scale"});
        assert_eq!(resources[1]["subresources"][0]["responseKind"], scale);
    }
}
