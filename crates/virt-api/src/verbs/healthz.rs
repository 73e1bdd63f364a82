//! `healthz`: whether this server reaches the API server, and which configuration is in effect. Also served at
//! `/healthz`.

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use cluster_view::Health;

use super::{
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
};
use crate::settings::Shared;

pub(super) const ENTRY: Entry = Entry {
    object: Object::Cluster,
    name: "healthz",
    verb: Verb::Get,
    level: Level::Everyone,
    contract: Contract::new(Answer::Json, &[500]),
    handler: Handler::Built(|| get(check)),
};

/// For tools; the kubelet's probes use `/livez`, since restarting a pod does not help against an unreachable API
/// server.
pub(crate) async fn check(State(shared): State<Shared>) -> Response {
    answer(cluster_view::health(&shared.client, &shared.configurations).await)
}

fn answer(health: Health) -> Response {
    let code = if health.is_healthy {
        StatusCode::OK
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    (code, Json(health.body)).into_response()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn unreachable_api_server_is_unhealthy() {
        for (is_healthy, code) in [(true, 200), (false, 500)] {
            let body = Value::Null;
            assert_eq!(answer(Health { is_healthy, body }).status(), code);
        }
    }
}
