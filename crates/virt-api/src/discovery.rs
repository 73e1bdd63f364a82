//! Discovery of the aggregated group, made from the list of verbs.

use axum::{Json, Router, routing::get};
use serde_json::{Value, json};

use crate::{settings::Shared, verbs};

pub(crate) const GROUP: &str = "subresources.kubevirt.io";
/// Served versions, preferred first; all serve the same.
pub(crate) const VERSIONS: [&str; 2] = ["v1", "v1alpha3"];

pub(crate) fn mount(mut router: Router<Shared>) -> Router<Shared> {
    router = router
        .route("/", get(|| async { Json(paths()) }))
        .route("/apis", get(|| async { Json(group_list()) }))
        .route(
            "/apis/subresources.kubevirt.io",
            get(|| async { Json(group()) }),
        );
    for version in VERSIONS {
        let resources = || get(move || async move { Json(resources(version)) });
        let path = format!("/apis/{GROUP}/{version}");
        router = router
            .route(&format!("{path}/"), resources())
            .route(&path, resources());
    }
    router
}

/// The paths that a client of discovery may read.
fn paths() -> Value {
    let versions = VERSIONS.map(|version| format!("/apis/{GROUP}/{version}"));
    let mut paths = vec!["/apis".to_owned(), format!("/apis/{GROUP}")];
    paths.extend(versions);
    paths.extend(["/healthz", "/openapi/v2", "/openapi/v3"].map(ToOwned::to_owned));
    json!({"paths": paths})
}

fn group() -> Value {
    let version =
        |version: &str| json!({"groupVersion": format!("{GROUP}/{version}"), "version": version});
    json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": VERSIONS.map(version),
        "preferredVersion": version(VERSIONS[0]),
    })
}

fn group_list() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]})
}

fn resources(version: &str) -> Value {
    let one = |entry: &verbs::Entry| {
        json!({
            "name": entry.resource(),
            "singularName": "",
            "namespaced": entry.object != verbs::Object::Cluster,
            "kind": "",
            "verbs": [entry.verb.name()],
        })
    };
    let built = verbs::ALL.iter().filter(|entry| entry.is_built());
    let list: Vec<Value> = built.map(one).collect();
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{version}"),
        "resources": list,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_lists_what_is_built() {
        let list = resources("v1");
        let names: Vec<&str> = list["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert!(
            names.contains(&"virtualmachineinstances/vnc/screenshot"),
            "{names:?}"
        );
        assert!(
            !names.contains(&"virtualmachineinstances/backup"),
            "{names:?}"
        );
        assert_eq!(list["groupVersion"], "subresources.kubevirt.io/v1");
    }
}
