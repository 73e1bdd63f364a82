//! Discovery of the aggregated groups, made from the list of verbs.

use axum::{Json, Router, routing::get};
use installation::registration::{AGGREGATED, Aggregated};
use serde_json::{Value, json};

use crate::{settings::Shared, verbs};

pub(crate) fn mount(mut router: Router<Shared>) -> Router<Shared> {
    router = router
        .route("/", get(|| async { Json(paths()) }))
        .route("/apis", get(|| async { Json(group_list()) }));
    for api in AGGREGATED {
        let path = format!("/apis/{}", api.group);
        router = router.route(&path, get(move || async move { Json(group(api)) }));
        for version in api.versions {
            let resources = || get(move || async move { Json(resources(api, version)) });
            let path = format!("{path}/{version}");
            router = router
                .route(&format!("{path}/"), resources())
                .route(&path, resources());
        }
    }
    router
}

/// The paths that a client of discovery may read.
fn paths() -> Value {
    let mut paths = vec!["/apis".to_owned()];
    for api in AGGREGATED {
        let group = format!("/apis/{}", api.group);
        let versions = api.versions.iter();
        let versions: Vec<String> = versions
            .map(|version| format!("{group}/{version}"))
            .collect();
        paths.push(group);
        paths.extend(versions);
    }
    paths.extend(["/healthz", "/openapi/v2", "/openapi/v3"].map(ToOwned::to_owned));
    json!({"paths": paths})
}

fn group(api: Aggregated) -> Value {
    let version = |version: &str| {
        let group_version = format!("{}/{version}", api.group);
        json!({"groupVersion": group_version, "version": version})
    };
    let versions: Vec<Value> = api.versions.iter().map(|one| version(one)).collect();
    json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": api.group,
        "preferredVersion": versions.first(),
        "versions": versions,
    })
}

fn group_list() -> Value {
    let groups = AGGREGATED.map(group);
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn resources(api: Aggregated, version: &str) -> Value {
    let one = |entry: &verbs::Entry| {
        json!({
            "name": entry.resource(),
            "singularName": "",
            "namespaced": entry.object != verbs::Object::Cluster,
            "kind": "",
            "verbs": [entry.verb.name()],
        })
    };
    let of_api = verbs::ALL.iter().filter(|entry| entry.object.api() == api);
    let list: Vec<Value> = of_api.filter(|entry| entry.is_built()).map(one).collect();
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{}/{version}", api.group),
        "resources": list,
    })
}

#[cfg(test)]
mod tests {
    use installation::registration::{SUBRESOURCES, TEMPLATE_SUBRESOURCES};

    use super::*;

    fn names(list: &Value) -> Vec<&str> {
        let resources = list["resources"].as_array().unwrap().iter();
        resources.map(|one| one["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn discovery_lists_what_is_built() {
        let list = resources(SUBRESOURCES, "v1");
        let of_guests = names(&list);
        assert!(
            of_guests.contains(&"virtualmachineinstances/vnc/screenshot"),
            "{of_guests:?}"
        );
        assert!(
            !of_guests.contains(&"virtualmachineinstances/backup"),
            "{of_guests:?}"
        );
        assert_eq!(list["groupVersion"], "subresources.kubevirt.io/v1");
        let list = resources(TEMPLATE_SUBRESOURCES, "v1beta1");
        assert_eq!(
            names(&list),
            [
                "virtualmachinetemplates/process",
                "virtualmachinetemplates/create"
            ]
        );
    }

    #[test]
    fn groups_prefer_their_first_version() {
        let of_guests = group(SUBRESOURCES);
        assert_eq!(of_guests["preferredVersion"]["version"], "v1");
        let of_templates = group(TEMPLATE_SUBRESOURCES);
        assert_eq!(
            of_templates["preferredVersion"]["groupVersion"],
            "subresources.template.kubevirt.io/v1beta1"
        );
        assert_eq!(of_templates["versions"][1]["version"], "v1alpha1");
    }
}
