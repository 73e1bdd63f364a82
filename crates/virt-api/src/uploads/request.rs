//! `UploadTokenRequest`: an object that is only created, and comes back with a token.

use axum::{
    Json, Router,
    body::{self, Bytes},
    extract::{Path, Request, State},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use http::StatusCode;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kubevirt_api::upload::{GROUP, KIND, PLURAL, UploadTokenRequest, VERSION};
use serde_json::{Value, json};

use super::{target, token::Target};
use crate::{
    caller::{self, Access},
    refusal::Refusal,
    settings::Shared,
};

const LIMIT: usize = 64 << 10;

pub(crate) fn mount(router: Router<Shared>) -> Router<Shared> {
    let base = format!("/apis/{GROUP}/{VERSION}");
    let group = || get(async || Json(group()));
    let resources = || get(async || Json(resources()));
    router
        .route(&format!("/apis/{GROUP}"), group())
        .route(&base, resources())
        .route(&format!("{base}/"), resources())
        .route(
            &format!("{base}/namespaces/{{namespace}}/{PLURAL}"),
            post(create),
        )
}

fn group() -> Value {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": [version], "preferredVersion": version,
    })
}

fn resources() -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [{
            "name": PLURAL, "singularName": "uploadtokenrequest", "namespaced": true,
            "kind": KIND, "verbs": ["create"],
        }],
    })
}

async fn create(
    State(shared): State<Shared>,
    Path(namespace): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let user = caller::user(&shared, &request)?;
    let access = Access {
        namespace: &namespace,
        name: "",
        resource: PLURAL,
        subresource: "",
        verb: "create",
    };
    caller::authorize_in(&shared, user, (GROUP, VERSION), &access).await?;
    let tokens = shared.uploads.as_ref();
    let tokens = tokens.ok_or_else(|| Refusal::missing("this server receives no uploads"))?;
    let mut object = read(request).await?;
    let name = object.spec.pvc_name.clone();
    if name.is_empty() {
        return Err(Refusal::bad_request(
            "spec.pvcName: name the claim to upload into",
        ));
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(shared.client.clone(), &namespace);
    let claim = claims.get_opt(&name).await?;
    let missing = || {
        Refusal::missing(format!(
            "persistentvolumeclaim {name} does not exist in namespace {namespace}"
        ))
    };
    let claim = claim.ok_or_else(missing)?;
    target::check_target(&claim)?;
    let target = Target {
        namespace: namespace.clone(),
        claim: name,
        uid: claim.metadata.uid.unwrap_or_default(),
    };
    let token = tokens.issue(&target);
    object.status.token = token.map_err(Refusal::internal)?;
    object.api_version = format!("{GROUP}/{VERSION}");
    KIND.clone_into(&mut object.kind);
    object.metadata.namespace = Some(namespace);
    Ok((StatusCode::CREATED, Json(object)).into_response())
}

async fn read(request: Request) -> Result<UploadTokenRequest, Refusal> {
    let bytes: Bytes = body::to_bytes(request.into_body(), LIMIT)
        .await
        .map_err(|err| Refusal::bad_request(format!("read the request's body: {err}")))?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|err| Refusal::bad_request(format!("the request's body is not text: {err}")))?;
    // JSON is a part of YAML.
    serde_saphyr::from_str(text)
        .map_err(|err| Refusal::bad_request(format!("the request's body is malformed: {err}")))
}
