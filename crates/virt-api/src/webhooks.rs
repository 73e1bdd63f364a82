//! Admission webhooks: HTTP in front of the pure functions of `admission`.

use admission::{Surroundings, review::Stage};
use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    response::{IntoResponse, Response},
    routing::post,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use uuid::Uuid;

use crate::{refusal::Refusal, settings::Shared};

/// One webhook, as the registration with the API server needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Webhook {
    pub name: &'static str,
    pub path: &'static str,
    pub resource: &'static str,
    pub operations: &'static [&'static str],
}

/// Defaults.
pub const MUTATE: &[Webhook] = &[
    Webhook {
        name: "virtualmachines-mutator.kubevirt.io",
        path: "/virtualmachines-mutate",
        resource: "virtualmachines",
        operations: &["CREATE", "UPDATE"],
    },
    Webhook {
        name: "virtualmachineinstances-mutator.kubevirt.io",
        path: "/virtualmachineinstances-mutate",
        resource: "virtualmachineinstances",
        operations: &["CREATE", "UPDATE"],
    },
];

/// Checks.
pub const VALIDATE: &[Webhook] = &[
    Webhook {
        name: "virtualmachine-validator.kubevirt.io",
        path: "/virtualmachines-validate",
        resource: "virtualmachines",
        operations: &["CREATE", "UPDATE"],
    },
    Webhook {
        name: "virtualmachineinstances-create-validator.kubevirt.io",
        path: "/virtualmachineinstances-validate-create",
        resource: "virtualmachineinstances",
        operations: &["CREATE"],
    },
    Webhook {
        name: "virtualmachineinstances-update-validator.kubevirt.io",
        path: "/virtualmachineinstances-validate-update",
        resource: "virtualmachineinstances",
        operations: &["UPDATE"],
    },
];

/// Objects are at most 3 MiB at the API server; a review holds up to two of them.
const REVIEW_LIMIT: usize = 8 << 20;

pub(crate) fn mount(mut router: Router<Shared>) -> Router<Shared> {
    for webhook in MUTATE {
        router = router.route(webhook.path, post(mutate));
    }
    for webhook in VALIDATE {
        router = router.route(webhook.path, post(validate));
    }
    router.layer(DefaultBodyLimit::max(REVIEW_LIMIT))
}

async fn mutate(State(shared): State<Shared>, body: Bytes) -> Response {
    answer(&shared, Stage::Mutate, &body)
}

async fn validate(State(shared): State<Shared>, body: Bytes) -> Response {
    answer(&shared, Stage::Validate, &body)
}

fn answer(shared: &Shared, stage: Stage, body: &[u8]) -> Response {
    let asked: Value = match serde_json::from_slice(body) {
        Ok(asked) => asked,
        Err(err) => {
            return Refusal::bad_request(format!("the review is malformed: {err}")).into_response();
        }
    };
    let around = Surroundings {
        now: &Time(shared.clock.now()),
        new_uuid: &Uuid::new_v4,
    };
    Json(admission::review(stage, &asked, &shared.cluster, around)).into_response()
}
