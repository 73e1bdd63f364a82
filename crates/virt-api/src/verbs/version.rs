//! `version`: the version of this server, in the format that clients of `KubeVirt` read.

use axum::{Json, routing::get};
use kubevirt_api::COMPATIBLE_VERSION;
use serde_json::{Value, json};

use super::{
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
};

pub(super) const ENTRY: Entry = Entry {
    object: Object::Cluster,
    name: "version",
    verb: Verb::Get,
    level: Level::Everyone,
    contract: Contract::new(Answer::Json, &[]),
    handler: Handler::Built(|| get(|| async { Json(version()) })),
};

/// `gitVersion` is the version of `KubeVirt` that we are compatible with: clients compare it with their own.
fn version() -> Value {
    json!({
        "gitVersion": COMPATIBLE_VERSION,
        "ferrovirtVersion": concat!("v", env!("CARGO_PKG_VERSION")),
        "gitCommit": option_env!("FERROVIRT_GIT_COMMIT").unwrap_or("unknown"),
        "gitTreeState": "clean",
        "buildDate": "unknown",
        "goVersion": "none (Rust)",
        "compiler": "rustc",
        "platform": concat!("linux/", "amd64"),
    })
}
