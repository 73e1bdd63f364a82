//! Health checks: `/healthz`, `/livez`, `/readyz`, and each check below them.
//!
//! The names of checks are those of kube-apiserver as far as they have a meaning here; `etcd` is the
//! store.

use axum::response::Response;
use http::StatusCode;

use crate::{
    api::Api,
    router::{no_such_path, text},
};

const CHECKS: [&str; 4] = ["ping", "log", "etcd", "shutdown"];

/// The answer to a check, or to all of an endpoint. `verbose` lists them, `exclude` leaves one out.
pub(crate) async fn serve(api: &Api, endpoint: &str, check: &[&str], query: &str) -> Response {
    if let [name] = check {
        return match CHECKS.iter().find(|known| *known == name) {
            Some(name) if passes(api, name).await => text(StatusCode::OK, "ok"),
            Some(name) => failed(format!("internal server error: {name} failed\n")),
            None => no_such_path(),
        };
    }
    if !check.is_empty() {
        return no_such_path();
    }
    let pairs: Vec<(&str, &str)> = query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    let excluded = |name: &str| pairs.contains(&("exclude", name));
    let (mut lines, mut all_pass) = (String::new(), true);
    for name in CHECKS
        .into_iter()
        .filter(|name| *name != "shutdown" || endpoint == "readyz")
    {
        let line = if excluded(name) {
            format!("[+]{name} excluded: ok\n")
        } else if passes(api, name).await {
            format!("[+]{name} ok\n")
        } else {
            all_pass = false;
            format!("[-]{name} failed: reason withheld\n")
        };
        lines.push_str(&line);
    }
    if !all_pass {
        return failed(format!("{lines}{endpoint} check failed\n"));
    }
    if pairs.iter().any(|(name, _)| *name == "verbose") {
        return text(StatusCode::OK, format!("{lines}{endpoint} check passed\n"));
    }
    text(StatusCode::OK, "ok")
}

async fn passes(api: &Api, check: &str) -> bool {
    match check {
        "etcd" => api.store.revision().await.is_ok(),
        "shutdown" => !api.stopping.is_cancelled(),
        _ => true,
    }
}

fn failed(lines: String) -> Response {
    text(StatusCode::INTERNAL_SERVER_ERROR, lines)
}
