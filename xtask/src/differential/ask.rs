//! One request to one server, and its answer as a value.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use apimachinery::protobuf;
use futures::StreamExt as _;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::script::Step;

/// For an answer, and for each event of a watch.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often a kind that is not served yet is asked for.
const PAUSE: Duration = Duration::from_millis(20);

/// Variables that requests refer to as `$name`: those of the scenario and those taken from responses.
#[derive(Debug, Clone)]
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    pub(super) fn new(number: usize) -> Self {
        let namespace = format!("t{number}");
        let below = |group: &str| format!("/{group}/namespaces/{namespace}");
        Self(BTreeMap::from([
            ("core".to_owned(), below("api/v1")),
            ("kubevirt".to_owned(), below("apis/kubevirt.io/v1")),
            ("oldkubevirt".to_owned(), below("apis/kubevirt.io/v1alpha3")),
            ("test".to_owned(), below("apis/test.example.com/v1")),
            ("oldtest".to_owned(), below("apis/test.example.com/v1beta1")),
            ("ns".to_owned(), namespace),
        ]))
    }

    /// Takes variables from a response. Missing ones show when responses are compared.
    pub(super) fn keep(&mut self, wanted: &BTreeMap<String, String>, answer: &Value) {
        for (name, pointer) in wanted {
            let text = match answer.pointer(pointer) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => "nothing".to_owned(),
            };
            self.0.insert(name.clone(), text);
        }
    }

    /// The variables taken from responses.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&str, &str)> {
        let given = ["core", "kubevirt", "oldkubevirt", "test", "oldtest", "ns"];
        self.0
            .iter()
            .filter(move |(name, _)| !given.contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn fill(&self, text: &str) -> String {
        let mut out = text.to_owned();
        // Longer names first, so that none is taken for the beginning of another.
        let mut names: Vec<&String> = self.0.keys().collect();
        names.sort_by_key(|name| std::cmp::Reverse(name.len()));
        for name in names {
            out = out.replace(&format!("${name}"), &self.0[name]);
        }
        out
    }

    fn fill_all(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.fill(text).into(),
            Value::Array(items) => items.iter().map(|item| self.fill_all(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| (self.fill(key), self.fill_all(value)))
                .collect(),
            other => other.clone(),
        }
    }
}

/// A server.
#[derive(Clone)]
pub(super) struct Asker(Client);

impl Asker {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// The answer to a step, once it has what the step waits for. Without that in time, the last one is compared.
    pub(super) async fn ask_until(&self, step: &Step, variables: &Variables) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(step, variables).await?;
            let wanted = step.until.as_deref();
            let is_there = wanted.is_none_or(|wanted| answer.pointer(wanted).is_some());
            if is_there || Instant::now() > deadline {
                return Ok(answer);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The answer to a step: its status, the headers that clients read, its body.
    async fn ask(&self, step: &Step, variables: &Variables) -> Result<Value> {
        let (method, path) = step.ask.split_once(' ').context("ask is METHOD path")?;
        let language = step.language.as_deref().map(language);
        let body = match (&step.body, &step.text) {
            (Some(body), _) if language == Some(protobuf::MEDIA_TYPE) => {
                protobuf::encode(&variables.fill_all(body))?
            }
            (Some(body), _) => variables.fill_all(body).to_string().into_bytes(),
            (None, Some(text)) => variables.fill(text).into_bytes(),
            (None, None) => Vec::new(),
        };
        let mut request = Request::builder()
            .method(method.parse::<Method>()?)
            .uri(variables.fill(path))
            .header(
                header::USER_AGENT,
                step.agent.as_deref().unwrap_or("differential"),
            );
        if let Some(user) = &step.user {
            request = request.header("impersonate-user", variables.fill(user));
        }
        for group in &step.groups {
            request = request.header("impersonate-group", variables.fill(group));
        }
        if let Some(language) = language.or((!body.is_empty()).then_some("application/json")) {
            request = request.header(header::CONTENT_TYPE, language);
        }
        let accept = step.accept.as_deref().unwrap_or("application/json");
        request = request.header(header::ACCEPT, self::language(accept));
        let response = self.send(request.body(Body::from(body))?).await?;
        let mut answer = head(&response);
        answer["body"] = match step.events {
            Some(count) if response.status().is_success() => events(response, count).await?,
            _ => whole(response).await?,
        };
        Ok(answer)
    }

    /// Makes the namespace of a scenario, with the account that its pods have.
    pub(super) async fn make_namespace(&self, variables: &Variables) -> Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                               "metadata": {"name": variables.fill("$ns")}});
        self.demand(Method::POST, "/api/v1/namespaces", &namespace)
            .await?;
        // No controller creates it on an API server alone.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                             "metadata": {"name": "default"},
                             "automountServiceAccountToken": false});
        let path = variables.fill("$core/serviceaccounts");
        self.demand(Method::POST, &path, &account).await
    }

    /// Creates a definition.
    pub(super) async fn define(&self, definition: &Value) -> Result<()> {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        self.demand(Method::POST, path, definition).await
    }

    /// Waits until every version of a definition is served.
    pub(super) async fn await_kind(&self, definition: &Value) -> Result<()> {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        for version in spec["versions"].as_array().into_iter().flatten() {
            let path = format!(
                "/apis/{}/{}/{}",
                text(&spec["group"]),
                text(&version["name"]),
                text(&spec["names"]["plural"])
            );
            let served = async {
                loop {
                    let request = Request::get(&path).body(Body::empty())?;
                    if self.send(request).await?.status().is_success() {
                        return anyhow::Ok(());
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            };
            tokio::time::timeout(PATIENCE, served)
                .await
                .with_context(|| format!("{path} is not served"))??;
        }
        Ok(())
    }

    async fn demand(&self, method: Method, path: &str, body: &Value) -> Result<()> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string().into_bytes()))?;
        let response = self.send(request).await?;
        let status = response.status();
        let body = whole(response).await?;
        ensure!(status.is_success(), "{path}: {status}: {body}");
        Ok(())
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>> {
        let shown = format!("{} {}", request.method(), request.uri());
        tokio::time::timeout(PATIENCE, self.0.send(request))
            .await
            .with_context(|| format!("{shown}: no answer"))?
            .with_context(|| shown)
    }
}

/// Media types that are too long to write often.
fn language(short: &str) -> &str {
    match short {
        "merge" => "application/merge-patch+json",
        "json" => "application/json-patch+json",
        "strategic" => "application/strategic-merge-patch+json",
        "apply" => "application/apply-patch+yaml",
        "yaml" => "application/yaml",
        "protobuf" => protobuf::MEDIA_TYPE,
        full => full,
    }
}

fn head(response: &Response<Body>) -> Value {
    let text = |name: header::HeaderName| -> Vec<String> {
        let values = response.headers().get_all(name).iter();
        values
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    };
    json!({
        "status": response.status().as_u16(),
        "type": text(header::CONTENT_TYPE),
        "warnings": text(header::WARNING),
        "retry": text(header::RETRY_AFTER),
    })
}

fn media_type(response: &Response<Body>) -> &str {
    let found = response.headers().get(header::CONTENT_TYPE);
    let text = found
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    text.split(';').next().unwrap_or_default()
}

/// The body as JSON, or as text where it is none.
async fn whole(response: Response<Body>) -> Result<Value> {
    let is_protobuf = media_type(&response) == protobuf::MEDIA_TYPE;
    let collected = tokio::time::timeout(PATIENCE, response.into_body().collect());
    let bytes = collected
        .await
        .context("the body does not end")??
        .to_bytes();
    if is_protobuf {
        return protobuf::decode(&bytes).context("decode an answer");
    }
    Ok(match serde_json::from_slice(&bytes) {
        Ok(value) => value,
        Err(_) => String::from_utf8_lossy(&bytes).into(),
    })
}

/// The first events of a watch, or all of one that the server ends.
async fn events(response: Response<Body>, count: usize) -> Result<Value> {
    let is_protobuf = media_type(&response) == protobuf::MEDIA_TYPE;
    let mut stream = response.into_body().into_data_stream();
    let mut pending = Vec::new();
    let mut out = Vec::new();
    while count == 0 || out.len() < count {
        let chunk = match tokio::time::timeout(PATIENCE, stream.next()).await {
            Ok(Some(chunk)) => chunk?,
            Err(_) if count == 0 => bail!("the watch does not end"),
            // What came is compared; the missing rest is a difference.
            Ok(None) | Err(_) => break,
        };
        pending.extend_from_slice(&chunk);
        while is_protobuf && let Some((length, rest)) = pending.split_first_chunk::<4>() {
            let length = usize::try_from(u32::from_be_bytes(*length))?;
            let Some(event) = rest.get(..length) else {
                break;
            };
            out.push(protobuf::decode_event(event).context("decode an event")?);
            pending.drain(..length + 4);
        }
        while !is_protobuf && let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            out.push(serde_json::from_slice(&line)?);
        }
    }
    if count > 0 {
        out.truncate(count);
    }
    Ok(Value::Array(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_filled_in_and_kept() {
        let mut variables = Variables::new(3);
        let wanted = BTreeMap::from([("version".to_owned(), "/body/v".to_owned())]);
        variables.keep(&wanted, &json!({"body": {"v": "17"}}));
        assert_eq!(
            variables.fill("$core/pods?resourceVersion=$version"),
            "/api/v1/namespaces/t3/pods?resourceVersion=17"
        );
        assert_eq!(
            variables.fill_all(&json!({"a": ["$ns"]})),
            json!({"a": ["t3"]})
        );
        variables.keep(&wanted, &json!({}));
        assert_eq!(variables.fill("$version"), "nothing");
    }
}
