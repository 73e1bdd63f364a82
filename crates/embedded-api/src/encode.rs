//! Answers in the encoding that the client accepts.
//!
//! Invariant: verbs make JSON alone; this is the only place that turns it into protobuf or YAML.
//! Answers of other servers pass unchanged.

use apimachinery::{Status, protobuf};
use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, header};
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::{error::ApiError, request::Encoding};

/// Marks the body of an answer as JSON of this server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnJson;

/// Re-encodes an answer of this server. Documents without a protobuf message stay JSON.
pub(crate) async fn respond(response: Response, encoding: Encoding) -> Response {
    if encoding == Encoding::Json || response.extensions().get::<OwnJson>().is_none() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let encoded = match body.collect().await {
        Ok(collected) => encode(&collected.to_bytes(), encoding),
        Err(error) => Err(Status::internal(error).into()),
    };
    match encoded {
        Ok((body, encoding)) => {
            let media = HeaderValue::from_static(encoding.media_type());
            parts.headers.insert(header::CONTENT_TYPE, media);
            Response::from_parts(parts, Body::from(body))
        }
        Err(error) => {
            tracing::error!(%error, ?encoding, "an answer cannot be encoded");
            axum::response::IntoResponse::into_response(error)
        }
    }
}

/// The body, and its encoding in fact.
fn encode(json: &Bytes, encoding: Encoding) -> Result<(Bytes, Encoding), ApiError> {
    let value: Value = serde_json::from_slice(json)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&value["apiVersion"]), text(&value["kind"]));
    match encoding {
        Encoding::Protobuf if protobuf::has_message(&api_version, &kind) => {
            let body = protobuf::encode(&value).map_err(Status::internal)?;
            Ok((body.into(), encoding))
        }
        Encoding::Yaml => {
            let body = serde_saphyr::to_string(&value).map_err(Status::internal)?;
            Ok((body.into(), encoding))
        }
        _ => Ok((json.clone(), Encoding::Json)),
    }
}

/// The events of a watch: lines of JSON, or frames of protobuf.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frames(pub Encoding);

impl Frames {
    pub(crate) fn media_type(self) -> &'static str {
        match self.0 {
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Encoding::Json | Encoding::Yaml => "application/json",
        }
    }

    /// One event, from its line of JSON.
    pub(crate) fn encode(self, line: Bytes) -> Bytes {
        if self.0 != Encoding::Protobuf {
            return line;
        }
        let frame = serde_json::from_slice::<Value>(&line)
            .map_err(|error| error.to_string())
            .and_then(|event| {
                let kind = event["type"].as_str().unwrap_or_default();
                protobuf::encode_event(kind, &event["object"]).map_err(|error| error.to_string())
            });
        match frame {
            Ok(frame) => frame.into(),
            Err(why) => {
                // The client gets the error in place of the event, and lists again.
                tracing::error!(why, "an event cannot be encoded");
                let status = ApiError::from(Status::internal(&why)).to_value();
                protobuf::encode_event("ERROR", &status)
                    .unwrap_or_default()
                    .into()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_without_message_stay_json() {
        for (value, expected) in [
            (json!({"major": "1"}), Encoding::Json),
            (
                json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1"}),
                Encoding::Json,
            ),
            (
                json!({"kind": "Status", "apiVersion": "v1"}),
                Encoding::Protobuf,
            ),
            (
                json!({"kind": "PodList", "apiVersion": "v1", "items": []}),
                Encoding::Protobuf,
            ),
        ] {
            let body = Bytes::from(value.to_string());
            let found = encode(&body, Encoding::Protobuf).map(|(_, encoding)| encoding);
            assert_eq!(found.ok(), Some(expected), "{value}");
        }
    }

    #[test]
    fn yaml_reads_as_the_same_value() {
        let value = json!({"kind": "Status", "apiVersion": "v1", "message": "a: b\nc", "on": "yes",
                           "empty": [], "nothing": null, "number": 1.5, "text": "1"});
        let (yaml, _) = encode(&Bytes::from(value.to_string()), Encoding::Yaml).unwrap();
        let text = std::str::from_utf8(&yaml).unwrap();
        let back: Value = serde_saphyr::from_str(text).unwrap();
        assert_eq!(back, value, "{text}");
    }
}
