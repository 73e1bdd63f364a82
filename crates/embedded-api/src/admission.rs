//! Admission webhooks: other servers that may change or refuse what is about to be stored.
//!
//! Invariants: configurations are read from the store at each write, so there is nothing to go
//! stale; a webhook that cannot be asked refuses, unless it says otherwise; changes to webhook
//! configurations themselves are never put to webhooks.

use std::time::Duration;

use apimachinery::{Status, cel, meta, patch, selector::LabelSelector};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use error_chain::error_chain;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use serde_json::{Value, json};
use serving::Target;

use crate::{
    api::Api,
    backend,
    error::ApiError,
    registry::convert,
    store::{Collection, Scope},
    verbs::{Call, reviews},
};

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A write that webhooks are asked about.
#[derive(Debug)]
pub(crate) struct Review<'a> {
    pub operation: Operation,
    pub old: Option<&'a Value>,
    pub dry_run: bool,
}

const GROUP: &str = "admissionregistration.k8s.io";
const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// Lets mutating webhooks change `object`. True if one did.
pub(crate) async fn mutate(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<bool, ApiError> {
    let mut changed = false;
    for webhook in matching(api, call, review, object, "mutatingwebhookconfigurations").await? {
        let Some(answer) = ask(api, call, review, object, &webhook, warnings).await? else {
            continue;
        };
        let Some(encoded) = answer["patch"].as_str() else {
            continue;
        };
        let failed = |why: String| {
            let name = webhook["name"].as_str().unwrap_or_default();
            ApiError::from(Status::internal(format!(
                "admission webhook \"{name}\": {why}"
            )))
        };
        let raw = STANDARD
            .decode(encoded)
            .map_err(|e| failed(e.to_string()))?;
        let operations: Value = serde_json::from_slice(&raw).map_err(|e| failed(e.to_string()))?;
        let patched = patch::json::apply(object, &operations).map_err(|e| failed(e.to_string()))?;
        changed |= patched != *object;
        *object = patched;
    }
    Ok(changed)
}

/// Asks validating webhooks.
pub(crate) async fn validate(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &Value,
    warnings: &mut Vec<String>,
) -> Result<(), ApiError> {
    for webhook in matching(api, call, review, object, "validatingwebhookconfigurations").await? {
        ask(api, call, review, object, &webhook, warnings).await?;
    }
    Ok(())
}

async fn matching(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &Value,
    plural: &str,
) -> Result<Vec<Value>, ApiError> {
    if call.kind.group == GROUP {
        return Ok(Vec::new());
    }
    let page = api
        .store
        .list(&Scope::all(Collection::new(GROUP, plural)), None, None)
        .await?;
    let mut out = Vec::new();
    for stored in page.items {
        let mut configuration = stored.parse()?;
        let Value::Array(webhooks) = configuration["webhooks"].take() else {
            continue;
        };
        for webhook in webhooks {
            let rules = webhook["rules"].as_array().map_or(&[][..], Vec::as_slice);
            if rules
                .iter()
                .any(|rule| rule_matches(rule, call, review.operation))
                && selected(api, call, review, object, &webhook).await?
            {
                out.push(webhook);
            }
        }
    }
    Ok(out)
}

fn rule_matches(rule: &Value, call: &Call, operation: Operation) -> bool {
    let has = |list: &str, wanted: &str| {
        let list = rule[list].as_array().map_or(&[][..], Vec::as_slice);
        list.iter()
            .filter_map(Value::as_str)
            .any(|entry| entry == "*" || entry == wanted)
    };
    let resources = rule["resources"].as_array().map_or(&[][..], Vec::as_slice);
    let resource = resources
        .iter()
        .filter_map(Value::as_str)
        .any(|entry| resource_matches(entry, &call.kind.plural, call.subresource.as_deref()));
    let scope = match rule["scope"].as_str() {
        Some("Namespaced") => call.kind.namespaced,
        Some("Cluster") => !call.kind.namespaced,
        _ => true,
    };
    // All versions of a kind are the same to us: a rule for one of them is for each.
    has("operations", operation.as_str()) && has("apiGroups", &call.kind.group) && resource && scope
}

fn resource_matches(entry: &str, plural: &str, subresource: Option<&str>) -> bool {
    let (resource, sub) = match entry.split_once('/') {
        Some((resource, sub)) => (resource, Some(sub)),
        None => (entry, None),
    };
    (resource == "*" || resource == plural)
        && match (sub, subresource) {
            (None, None) | (Some("*"), _) => true,
            (Some(wanted), Some(found)) => wanted == found,
            _ => false,
        }
}

async fn selected(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &Value,
    webhook: &Value,
) -> Result<bool, ApiError> {
    let wanted = |field: &str| LabelSelector::from_object(&webhook[field]);
    let labels = wanted("objectSelector")?.unwrap_or_default();
    let takes = labels.is_everything()
        || labels.matches(object)
        || review.old.is_some_and(|old| labels.matches(old));
    if !takes {
        return Ok(false);
    }
    let namespaces = wanted("namespaceSelector")?.unwrap_or_default();
    let own = call.kind.is("", "namespaces");
    if namespaces.is_everything() || (!call.kind.namespaced && !own) {
        return Ok(true);
    }
    if own {
        return Ok(namespaces.matches(object));
    }
    let key = Collection::new("", "namespaces").key("", &call.namespace);
    Ok(match api.store.get(&key).await? {
        Some(stored) => namespaces.matches(&stored.parse()?),
        None => false,
    })
}

/// Puts the question. None when the webhook cannot be asked and says that this is fine.
async fn ask(
    api: &Api,
    call: &Call,
    review: &Review<'_>,
    object: &Value,
    webhook: &Value,
    warnings: &mut Vec<String>,
) -> Result<Option<Value>, ApiError> {
    let name = webhook["name"].as_str().unwrap_or_default();
    let effects = webhook["sideEffects"].as_str().unwrap_or_default();
    if review.dry_run && !matches!(effects, "None" | "NoneOnDryRun") {
        let why = format!("admission webhook \"{name}\" does not support dry run");
        return Err(Status::bad_request(why).into());
    }
    let request = request(call, review, object, webhook);
    let failed = |failure: String| {
        if webhook["failurePolicy"].as_str() == Some("Ignore") {
            tracing::warn!(
                webhook = name,
                failure,
                "admission webhook cannot be asked, going on"
            );
            return Ok(None);
        }
        Err(Status::internal(format!("failed calling webhook \"{name}\": {failure}")).into())
    };
    match is_meant(webhook, &request["request"]) {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(why) => return failed(why),
    }
    let limit = Duration::from_secs(webhook["timeoutSeconds"].as_u64().unwrap_or(10).min(30));
    let posted = tokio::time::timeout(limit, post(api, webhook, &request)).await;
    let failure = match posted {
        Ok(Ok(answer)) if answer["response"].is_object() => {
            return judge(name, &answer["response"], warnings).map(Some);
        }
        Ok(Ok(_)) => "the answer holds no response".to_owned(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", limit.as_secs()),
    };
    failed(failure)
}

/// Whether all conditions of the webhook hold. One that does not counts, whatever is wrong with
/// others.
fn is_meant(webhook: &Value, request: &Value) -> Result<bool, String> {
    let conditions = webhook["matchConditions"].as_array();
    let mut broken = None;
    for condition in conditions.into_iter().flatten() {
        let expression = condition["expression"].as_str().unwrap_or_default();
        let (object, old) = (&request["object"], &request["oldObject"]);
        let variables = [("request", request), ("object", object), ("oldObject", old)];
        match cel::holds(expression, &variables) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => {
                let name = &condition["name"];
                broken = Some(format!("match condition {name}: {why}"));
            }
        }
    }
    broken.map_or(Ok(true), Err)
}

fn judge(name: &str, response: &Value, warnings: &mut Vec<String>) -> Result<Value, ApiError> {
    let said = response["warnings"].as_array().into_iter().flatten();
    warnings.extend(said.filter_map(Value::as_str).map(ToOwned::to_owned));
    if response["allowed"] == json!(true) {
        return Ok(response.clone());
    }
    let status = &response["status"];
    let prefix = format!("admission webhook \"{name}\" denied the request");
    let message = match status["message"].as_str().or(status["reason"].as_str()) {
        Some(why) => format!("{prefix}: {why}"),
        None => format!("{prefix} without explanation"),
    };
    let code = status["code"]
        .as_u64()
        .and_then(|code| u16::try_from(code).ok());
    let code = code.filter(|code| (400..600).contains(code)).unwrap_or(400);
    let reason = status["reason"]
        .as_str()
        .filter(|r| !r.contains(' '))
        .unwrap_or("BadRequest");
    let mut error = ApiError::foreign(code, reason, &message).to_value();
    if status["details"].is_object() {
        error["details"] = status["details"].clone();
    }
    Err(ApiError::from_value(error))
}

fn request(call: &Call, review: &Review<'_>, object: &Value, webhook: &Value) -> Value {
    let kind = &call.kind;
    let gvk = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    let gvr = json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
    // A webhook that knows another version of the kind gets that one.
    let versions = || {
        let rules = webhook["rules"].as_array().into_iter().flatten();
        rules.flat_map(|rule| rule["apiVersions"].as_array().into_iter().flatten())
    };
    let known = versions().any(|v| v == "*" || v == kind.version.as_str());
    let shown = |object: &Value| {
        let mut object = object.clone();
        if let (false, Some(version)) = (known, versions().find_map(Value::as_str)) {
            let other = apimachinery::resource::join_api_version(&kind.group, version);
            convert::to_version(&mut object, &other);
        }
        object
    };
    let named = if object.is_null() {
        review.old.unwrap_or(object)
    } else {
        object
    };
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": uuid::Uuid::new_v4().to_string(),
            "kind": gvk, "resource": gvr, "requestKind": gvk, "requestResource": gvr,
            "subResource": call.subresource, "requestSubResource": call.subresource,
            "name": meta::name(named), "namespace": call.namespace,
            "operation": review.operation.as_str(),
            "userInfo": reviews::user_info(&call.identity),
            "object": shown(object),
            "oldObject": review.old.map(shown),
            "dryRun": review.dry_run,
            "options": {"apiVersion": "meta.k8s.io/v1", "kind": options_kind(review.operation)},
        },
    })
}

fn options_kind(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    }
}

async fn post(api: &Api, webhook: &Value, review: &Value) -> Result<Value, ApiError> {
    let config = &webhook["clientConfig"];
    let (target, path) = address(api, config).await?;
    let client = backend::client(
        api,
        config["caBundle"].as_str().unwrap_or_default(),
        backend::As::Nobody,
    )?;
    let failed = |why: String| ApiError::from(Status::internal(why));
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json")
        .body(Full::new(bytes::Bytes::from(review.to_string())))
        .map_err(|error| failed(error.to_string()))?;
    let response = client
        .send(&target, request)
        .await
        .map_err(|error| failed(error_chain(&error)))?;
    if !response.status().is_success() {
        return Err(failed(format!("the server answered {}", response.status())));
    }
    let body = Limited::new(response.into_body(), MAX_ANSWER)
        .collect()
        .await
        .map_err(|error| failed(format!("read answer: {error}")))?;
    Ok(serde_json::from_slice(&body.to_bytes())?)
}

async fn address(api: &Api, config: &Value) -> Result<(Target, String), ApiError> {
    if let Some(url) = config["url"].as_str() {
        let wrong = || Status::internal(format!("the URL {url:?} is not https://host[:port]/path"));
        let uri: http::Uri = url.parse().map_err(|_| wrong())?;
        let host = uri
            .host()
            .filter(|_| uri.scheme_str() == Some("https"))
            .ok_or_else(wrong)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        return Ok((
            Target::host(host, uri.port_u16().unwrap_or(443)),
            path.to_owned(),
        ));
    }
    let service = &config["service"];
    let text = |key: &str| service[key].as_str().unwrap_or_default();
    let port = service["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok())
        .unwrap_or(443);
    let target = backend::resolve(api, text("namespace"), text("name"), port).await?;
    let path = if text("path").is_empty() {
        "/"
    } else {
        text("path")
    };
    Ok((target, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_does_not_hold_counts_before_one_that_cannot_be_judged() {
        let check = |conditions: &[&str], expected: Option<bool>| {
            let listed: Vec<Value> = conditions
                .iter()
                .map(|expression| json!({"name": "c", "expression": expression}))
                .collect();
            let request = json!({"name": "a", "object": null, "oldObject": {"x": 1}});
            let got = is_meant(&json!({"matchConditions": listed}), &request);
            assert_eq!(got.ok(), expected, "{conditions:?}");
        };
        check(&[], Some(true));
        check(&["request.name == 'a'", "oldObject.x == 1"], Some(true));
        check(&["request.name == 'a'", "object != null"], Some(false));
        check(&["lost.x", "request.name == 'b'"], Some(false));
        check(&["lost.x", "request.name == 'a'"], None);
    }

    #[test]
    fn resources_of_rules_match() {
        for (entry, subresource, expected) in [
            ("pods", None, true),
            ("*", None, true),
            ("pods", Some("status"), false),
            ("pods/status", Some("status"), true),
            ("pods/*", Some("status"), true),
            ("*/*", Some("status"), true),
            ("*/*", None, true),
            ("pods/status", None, false),
            ("nodes", None, false),
        ] {
            assert_eq!(
                resource_matches(entry, "pods", subresource),
                expected,
                "{entry}"
            );
        }
    }
}
