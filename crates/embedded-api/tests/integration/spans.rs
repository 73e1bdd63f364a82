//! The tracing span of a request, and the log line of its response.
#![expect(clippy::unwrap_used, reason = "a test fails so")]

use std::{
    io::{self, Write},
    sync::Arc,
};

use embedded_api::Identity;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;
use tracing::{Level, subscriber::DefaultGuard};
use tracing_subscriber::fmt::MakeWriter;

/// Collects the log lines of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn record(&self) -> DefaultGuard {
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_max_level(Level::DEBUG)
            .with_writer(self.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }

    /// The responses that were logged so far.
    fn responses(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines
            .filter(|line: &Value| line["span"]["name"] == "request")
            .filter(|line: &Value| line["fields"]["code"].is_u64())
            .collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn span_has_user_and_resource_of_the_request() {
    let api = crate::support::start().await;
    let log = Log::default();
    let _guard = log.record();
    let uri = "/api/v1/namespaces/default/configmaps/absent?pretty=secret";
    let (code, _) = api
        .with_headers(
            Some(&Identity::component("tester")),
            &[("audit-id", "request-7")],
            Method::GET,
            uri,
            Value::Null,
        )
        .await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    let responses = log.responses();
    let [response] = responses.as_slice() else {
        panic!("{responses:?}");
    };
    assert_eq!(response["level"], "DEBUG");
    assert_eq!(response["fields"]["code"], 404);
    assert!(response["fields"]["duration"].is_string());
    let span = &response["span"];
    for (field, value) in [
        ("method", "GET"),
        ("path", "/api/v1/namespaces/default/configmaps/absent"),
        ("request_id", "request-7"),
        ("resource", "configmaps"),
        ("namespace", "default"),
        ("object", "absent"),
        // The name of the span itself.
        ("name", "request"),
    ] {
        assert_eq!(span[field], value, "{field}: {span}");
    }
    assert!(span["user"].as_str().unwrap().contains("tester"), "{span}");
    assert!(!response.to_string().contains("secret"));
}

#[tokio::test]
async fn failures_are_warnings_with_the_error() {
    let api = crate::support::start().await;
    let log = Log::default();
    let _guard = log.record();
    // No kubelet can be reached: the server has no certificate for kubelets.
    api.create("/api/v1/namespaces/default/pods", crate::support::pod("p"))
        .await;
    let binding = serde_json::json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    let (code, _) = api
        .call(
            Method::POST,
            "/api/v1/namespaces/default/pods/p/binding",
            binding,
        )
        .await;
    assert_eq!(code, StatusCode::CREATED);
    let (code, _) = api.get("/api/v1/namespaces/default/pods/p/log").await;
    assert!(code.is_server_error(), "{code}");
    let responses = log.responses();
    let failed = responses.last().unwrap();
    assert_eq!(failed["level"], "WARN");
    assert_eq!(failed["fields"]["code"], code.as_u16());
    assert!(failed["fields"]["error"].is_string(), "{failed}");
    assert_eq!(failed["span"]["resource"], "pods");
    assert_eq!(failed["span"]["subresource"], "log");
}
