//! A server of fixed objects that records its requests.

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;

const OBJECTS: &str = include_str!("objects.yaml");

/// The recorded requests.
#[derive(Default)]
pub(super) struct Server {
    records: Option<mpsc::UnboundedReceiver<String>>,
}

impl Server {
    pub(super) fn client(&mut self) -> kube::Client {
        let (record, records) = mpsc::unbounded_channel();
        self.records = Some(records);
        let service = tower::service_fn(move |request: Request<Body>| {
            let record = record.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let path = parts
                    .uri
                    .path_and_query()
                    .map_or("", http::uri::PathAndQuery::as_str);
                let text = String::from_utf8_lossy(&body);
                let line = format!("{} {path} {text}", parts.method);
                record.send(line.trim_end().to_owned()).unwrap();
                let (code, mut answer) = answer(&parts.method, parts.uri.path(), &body);
                let query = parts.uri.query().unwrap_or_default();
                if parts.uri.path().ends_with("/pods") && query.contains("labelSelector") {
                    // No pod has labels.
                    answer["items"] = json!([]);
                }
                let mut response = Response::new(Body::from(serde_json::to_vec(&answer).unwrap()));
                *response.status_mut() = code;
                Ok::<_, kube::Error>(response)
            }
        });
        kube::Client::new(service, "default")
    }

    pub(super) fn requests(&mut self) -> String {
        let mut text = String::new();
        while let Ok(line) = self.records.as_mut().unwrap().try_recv() {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

fn answer(method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
    let objects: Value = serde_saphyr::from_str(OBJECTS).unwrap();
    let mut end = path.rsplit('/');
    let (name, plural) = (end.next().unwrap(), end.next().unwrap());
    let found = objects[plural].as_array().into_iter().flatten();
    let found = found
        .into_iter()
        .find(|object| object["metadata"]["name"] == name);
    let fills_templates = path.contains("/namespaces/served/");
    let is_posted = *method == Method::POST;
    if is_posted && (fills_templates || !path.contains("/subresources.template.kubevirt.io/")) {
        let mut created: Value = serde_json::from_slice(body).unwrap();
        if let Some(prefix) = created["metadata"]["generateName"].as_str() {
            created["metadata"]["name"] = format!("{prefix}new").into();
        }
        created["metadata"]["uid"] = "new".into();
        if name == "uploadtokenrequests" {
            created["status"] = json!({"token": "token"});
        }
        return (StatusCode::CREATED, created);
    }
    if name == "guestfs" {
        let image =
            json!({"registry": "quay.io/kubevirt", "tag": "v1", "imagePrefix": "", "gsImage": ""});
        return (StatusCode::OK, image);
    }
    if path.contains("/subresources.kubevirt.io/") {
        return (StatusCode::OK, json!({"answer": name}));
    }
    if let Some(found) = found {
        return (StatusCode::OK, found.clone());
    }
    if objects.get(name).is_some() {
        return (
            StatusCode::OK,
            json!({"metadata": {}, "items": objects[name]}),
        );
    }
    let message = format!("{plural} {name:?} not found");
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": "NotFound", "code": 404, "message": message,
    });
    (StatusCode::NOT_FOUND, status)
}
