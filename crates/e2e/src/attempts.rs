//! Ways of a hostile user to what is not theirs: each is a request that must be refused with a clear error.

use std::fmt;

use http::{Method, Request};
use kube::Client;
use serde_json::Value;

/// One way. `$own` and `$other` in the path and the body stand for namespaces.
#[derive(Debug, Clone)]
pub struct Attempt {
    pub aim: &'static str,
    pub method: Method,
    pub path: &'static str,
    pub body: Value,
    /// The code, and a part of the message.
    pub refusal: (u16, &'static str),
}

/// What the API server answers where a role does not give the right.
pub const FORBIDDEN: (u16, &str) = (403, "forbidden");

/// A way that must be refused like this.
pub fn attempt(
    aim: &'static str,
    (method, path): (Method, &'static str),
    body: Value,
    refusal: (u16, &'static str),
) -> Attempt {
    Attempt {
        aim,
        method,
        path,
        body,
        refusal,
    }
}

/// Who tries, and where.
pub struct Intruder<'a> {
    /// Of an administrator, who acts as the user.
    pub client: &'a Client,
    pub user: &'a str,
    pub groups: &'a [&'a str],
    pub own: &'a str,
    pub other: &'a str,
}

impl fmt::Debug for Intruder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intruder")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Intruder<'_> {
    /// Tries all of them; returns those that were not refused as they must be.
    pub async fn try_all(&self, attempts: &[Attempt]) -> Vec<String> {
        let mut succeeded = Vec::new();
        for one in attempts {
            let (code, message) = self.send(one).await;
            let (expected, part) = one.refusal;
            if code != expected || !message.contains(part) {
                succeeded.push(format!("{}: {code} {message}", one.aim));
            }
        }
        succeeded
    }

    /// Returns the code and the message.
    async fn send(&self, one: &Attempt) -> (u16, String) {
        let place = |text: &str| text.replace("$own", self.own).replace("$other", self.other);
        let language = match one.method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = match &one.body {
            Value::Null => Vec::new(),
            body => place(&body.to_string()).into_bytes(),
        };
        let mut request = Request::builder()
            .method(one.method.clone())
            .uri(place(one.path))
            .header("content-type", language)
            .header("impersonate-user", self.user);
        for group in self.groups {
            request = request.header("impersonate-group", *group);
        }
        let request = request.body(body).expect("a request");
        match self.client.request_text(request).await {
            Ok(answer) => (200, answer),
            Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
            Err(error) => (0, error.to_string()),
        }
    }
}
