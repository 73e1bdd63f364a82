//! `exec`, `attach` and `portforward` of pods: proxied to the kubelet of the pod's node, which
//! implements the streaming protocol.

use apimachinery::Status;
use axum::{body::Body, extract::Request, response::Response};
use serde_json::{Value, json};
use serving::upgrade;

use super::{Call, read};
use crate::{
    admission::{self, Operation, Review},
    api::Api,
    error::ApiError,
    fairness, logs,
    request::query,
};

/// Query parameters and their names at a kubelet.
const CHOICES: [(&str, &str); 4] = [
    ("stdin", "input"),
    ("stdout", "output"),
    ("stderr", "error"),
    ("tty", "tty"),
];

/// Connects the client to the node; the stream is not inspected.
pub(crate) async fn connect(
    api: &Api,
    call: &Call,
    verb: &str,
    mut request: Request,
) -> Result<Response, ApiError> {
    let pod = read::load(api, call, call.name()).await?.parse()?;
    let pairs = query::pairs(request.uri())?;
    let (namespace, name) = (&call.namespace, call.name());
    let path = if verb == "portforward" {
        format!("/portForward/{namespace}/{name}?{}", asked_ports(&pairs))
    } else {
        let requested = pairs.iter().find(|(key, _)| key == "container");
        let requested = requested.map_or("", |(_, value)| value.as_str());
        let container = logs::container(name, &pod, requested)?;
        format!("/{verb}/{namespace}/{name}/{container}?{}", choices(&pairs))
    };
    let node = logs::node_of(call, &pod)?;
    review(api, call, verb, &pairs).await?;
    if !upgrade::is_upgrade(request.headers()) {
        let why = "Upgrade request required";
        return Err(Status::bad_request(why).into());
    }
    let caller = upgrade::take(&mut request);
    let (parts, _) = request.into_parts();
    let mut forwarded = http::Request::get(path)
        .body(Body::empty())
        .map_err(|error| Status::bad_request(error.to_string()))?;
    for (header, value) in &parts.headers {
        let name = header.as_str();
        // The client was authenticated here; the node trusts our certificate.
        let passes = matches!(name, "upgrade" | "connection") || name.starts_with("sec-websocket-");
        if passes {
            forwarded.headers_mut().append(header, value.clone());
        }
    }
    let answer = logs::send_to_kubelet(api, node, forwarded).await?;
    let (tasks, stop) = (&api.tasks, api.stopping.clone());
    let seat = fairness::current::take();
    Ok(upgrade::join_holding(caller, answer, tasks, stop, seat))
}

/// Webhooks may refuse a stream.
async fn review(
    api: &Api,
    call: &Call,
    verb: &str,
    pairs: &[(String, String)],
) -> Result<(), ApiError> {
    let mut options = options(verb, pairs);
    let review = Review {
        operation: Operation::Connect,
        old: None,
        dry_run: false,
    };
    let mut warnings = Vec::new();
    admission::mutate(api, call, &review, &mut options, &mut warnings).await?;
    admission::validate(api, call, &review, &options, &mut warnings).await
}

/// The options of a stream as an object.
fn options(verb: &str, pairs: &[(String, String)]) -> Value {
    let kind = match verb {
        "attach" => "PodAttachOptions",
        "exec" => "PodExecOptions",
        _ => "PodPortForwardOptions",
    };
    let mut out = json!({"kind": kind, "apiVersion": "v1"});
    for (key, value) in pairs {
        match key.as_str() {
            "stdin" | "stdout" | "stderr" | "tty" if verb != "portforward" => {
                if matches!(value.as_str(), "true" | "1") {
                    out[key.as_str()] = true.into();
                }
            }
            "container" => out["container"] = value.as_str().into(),
            "command" | "ports" => {
                let item = match (key.as_str(), value.parse::<u16>()) {
                    ("ports", Ok(port)) => port.into(),
                    _ => Value::from(value.as_str()),
                };
                match &mut out[key.as_str()] {
                    Value::Array(items) => items.push(item),
                    slot => *slot = json!([item]),
                }
            }
            _ => {}
        }
    }
    out
}

fn choices(pairs: &[(String, String)]) -> String {
    let mut out = Vec::new();
    for (key, value) in pairs {
        let known = CHOICES.iter().find(|(here, _)| here == key);
        if let Some((_, there)) = known {
            let on = matches!(value.as_str(), "true" | "1");
            out.push(format!("{there}={}", u8::from(on)));
        } else if key == "command" {
            out.push(format!("command={}", encoded(value)));
        }
    }
    out.join("&")
}

fn asked_ports(pairs: &[(String, String)]) -> String {
    let ports = pairs.iter().filter(|(key, _)| key == "ports");
    let ports: Vec<String> = ports
        .map(|(_, value)| format!("port={}", encoded(value)))
        .collect();
    ports.join("&")
}

/// Percent-encodes a query value.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let hex = |digit: u8| char::from_digit(digit.into(), 16).unwrap_or_default();
            let (high, low) = (hex(byte >> 4), hex(byte & 0xf));
            out.extend(['%', high.to_ascii_uppercase(), low.to_ascii_uppercase()]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_translated_for_kubelets() {
        let pairs = [
            ("command", "echo"),
            ("command", "a b&c"),
            ("container", "main"),
            ("stdin", "true"),
            ("stdout", "true"),
            ("tty", "false"),
        ];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(
            choices(&pairs),
            "command=echo&command=a%20b%26c&input=1&output=1&tty=0"
        );
        assert_eq!(
            options("exec", &pairs),
            json!({"kind": "PodExecOptions", "apiVersion": "v1", "command": ["echo", "a b&c"],
                   "container": "main", "stdin": true, "stdout": true})
        );
        let ports = [("ports".to_owned(), "80".to_owned())];
        assert_eq!(asked_ports(&ports), "port=80");
    }
}
