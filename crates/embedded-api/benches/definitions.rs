//! Cost of the definitions under `deploy/crds` to the API server: resident memory and time.
//!
//! Prints lines of name, tab, value, tab, unit. Memory is the process's anonymous memory as the
//! kernel counts it, so a debug build measures it as well as a release build.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a program that prints figures, or fails"
)]

use std::{fs, path::Path, time::Instant};

use axum::body::Body;
use embedded_api::{Clock, Database, EmbeddedApi, Identity, ServiceSettings, Settings};
use http::{Request, header};
use serde_json::Value;
use tower::ServiceExt as _;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let api = EmbeddedApi::open(Settings {
        database: Database::Memory,
        clock: Clock::Wall,
        front_proxy: None,
        kubelet: None,
        services: ServiceSettings::usual(),
    })
    .await
    .unwrap();
    let definitions = definitions();
    println!("definitions\t{}\tpieces", definitions.len());
    let before = anonymous_memory();
    let begin = Instant::now();
    for definition in &definitions {
        apply(&api, definition).await;
    }
    println!("all applied\t{}\tms", begin.elapsed().as_millis());
    println!(
        "anonymous memory more\t{}\tKiB",
        anonymous_memory() - before
    );
}

struct Definition {
    name: String,
    text: String,
}

fn definitions() -> Vec<Definition> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |path| {
        let text = fs::read_to_string(path).unwrap();
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        Definition {
            name,
            text: object.to_string(),
        }
    };
    files.iter().map(read).collect()
}

async fn apply(api: &EmbeddedApi, definition: &Definition) {
    let Definition { name, text } = definition;
    let uri = format!(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}?fieldManager=bench&force=true"
    );
    let mut request = Request::patch(uri)
        .header(header::CONTENT_TYPE, "application/apply-patch+yaml")
        .body(Body::from(text.clone()))
        .unwrap();
    request
        .extensions_mut()
        .insert(Identity::component("bench"));
    let answer = api.router().oneshot(request).await.unwrap();
    assert!(answer.status().is_success(), "{name}: {}", answer.status());
}

/// In KiB.
fn anonymous_memory() -> i64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find(|line| line.starts_with("Anonymous:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}
