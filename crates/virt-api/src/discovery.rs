//! Discovery of the aggregated group, made from the list of verbs.

use axum::{Json, Router, routing::get};
use serde_json::{Value, json};

use crate::{settings::Shared, verbs};

const GROUP: &str = "subresources.kubevirt.io";
/// Served versions, preferred first; all serve the same.
pub(crate) const VERSIONS: [&str; 2] = ["v1", "v1alpha3"];

pub(crate) fn mount(mut router: Router<Shared>) -> Router<Shared> {
    router = router
        .route("/apis", get(|| async { Json(group_list()) }))
        .route(
            "/apis/subresources.kubevirt.io",
            get(|| async { Json(group()) }),
        );
    for version in VERSIONS {
        let path = format!("/apis/{GROUP}/{version}");
        router = router
            .route(&path, get(move || async move { Json(resources(version)) }))
            .route(
                &format!("{path}/version"),
                get(|| async { Json(version_info()) }),
            )
            .route(
                &format!("{path}/healthz"),
                get(|| async { Json(json!({"apiserver": {"connectivity": "ok"}})) }),
            );
    }
    router
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
            "namespaced": true,
            "kind": "",
            "verbs": [entry.access()],
        })
    };
    let list: Vec<Value> = verbs::ALL.iter().map(one).collect();
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{version}"),
        "resources": list,
    })
}

/// The format that clients of `KubeVirt` read, with our version.
fn version_info() -> Value {
    json!({
        "gitVersion": concat!("v", env!("CARGO_PKG_VERSION")),
        "gitCommit": option_env!("FERROVIRT_GIT_COMMIT").unwrap_or("unknown"),
        "gitTreeState": "clean",
        "buildDate": "unknown",
        "goVersion": "none (Rust)",
        "compiler": "rustc",
        "platform": concat!("linux/", "amd64"),
    })
}
