//! A right, and which one a request needs.

use std::fmt;

use http::Request;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};

/// The permission to use one verb on a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Right {
    pub(super) verb: String,
    pub(super) group: String,
    /// With the subresource, if there is one: `pods/eviction`.
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
}

impl Right {
    /// A right that the roles of every component include.
    pub(super) fn of_every_component() -> Self {
        Self {
            verb: "list".to_owned(),
            group: "kubevirt.io".to_owned(),
            resource: "virtualmachineinstances".to_owned(),
            ..Self::default()
        }
    }

    /// The right that a request needs, as kube-apiserver derives it; `None` for paths without a resource.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<Self> {
        let mut parts = request.uri().path().split('/').skip(1);
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        let _version = parts.next()?;
        let mut parts: Vec<&str> = parts.collect();
        let mut namespace = None;
        // A namespace itself is `namespaces/<name>`, possibly with a subresource.
        let is_subresource = |part: &&str| matches!(*part, "status" | "finalize");
        if let ["namespaces", name, rest @ ..] = parts.as_slice()
            && !rest.is_empty()
            && !rest.first().is_some_and(is_subresource)
        {
            namespace = Some((*name).to_owned());
            parts.drain(..2);
        }
        let mut parts = parts.into_iter();
        let mut resource = parts.next().filter(|part| !part.is_empty())?.to_owned();
        let mut name = parts.next().map(str::to_owned);
        if let Some(subresource) = parts.next() {
            resource = format!("{resource}/{subresource}");
        }
        let query = Query::of(request.uri().query().unwrap_or_default());
        let verb = match (request.method().as_str(), name.is_some()) {
            ("GET", true) => "get",
            ("GET", false) if query.is_watch => "watch",
            ("GET", false) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => return None,
        };
        // A role with resource names allows a list or watch that is limited to one object.
        if matches!(verb, "list" | "watch" | "deletecollection") {
            name = query.name;
        }
        Some(Self {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource,
            namespace,
            name,
        })
    }

    /// The part of the right that the rules of roles have in common for all objects.
    pub(super) fn kind(&self) -> (String, String, String) {
        (self.group.clone(), self.resource.clone(), self.verb.clone())
    }

    pub(super) fn review(&self) -> SelfSubjectAccessReview {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.resource.as_str(), None),
        };
        SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(self.verb.clone()),
                    group: Some(self.group.clone()),
                    resource: Some(resource.to_owned()),
                    subresource,
                    namespace: self.namespace.clone(),
                    name: self.name.clone(),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, " of {}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => Ok(()),
        }
    }
}

/// The parts of a request's query that its right depends on.
struct Query {
    is_watch: bool,
    /// The name that a field selector requires.
    name: Option<String>,
}

impl Query {
    fn of(text: &str) -> Self {
        let mut query = Self {
            is_watch: false,
            name: None,
        };
        for (key, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
            match key {
                "watch" => query.is_watch = matches!(value, "true" | "1"),
                "fieldSelector" => {
                    // Names of objects need no escapes; only the selector's own `=` has one.
                    let selector = value.replace("%3D", "=");
                    let name = selector.strip_prefix("metadata.name=");
                    query.name = name.map(|name| name.trim_start_matches('=').to_owned());
                }
                _ => {}
            }
        }
        query
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn right_of_a_request_follows_from_method_and_path() {
        let check = |method: &str, uri: &str, expected: Option<&str>| {
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            let found = Right::of(&request).map(|right| {
                let name = right.name.clone().unwrap_or_default();
                format!("{right}: {name}")
                    .trim_end_matches([':', ' '])
                    .to_owned()
            });
            assert_eq!(found.as_deref(), expected, "{method} {uri}");
        };
        let pods = "/api/v1/namespaces/a/pods";
        let vmis = "/apis/kubevirt.io/v1/virtualmachineinstances";
        let in_namespace = "/apis/kubevirt.io/v1/namespaces/a/virtualmachineinstances";
        for (method, uri, expected) in [
            (
                "POST",
                format!("{pods}?fieldManager=x"),
                "create pods in namespace a",
            ),
            ("GET", format!("{pods}/p"), "get pods in namespace a: p"),
            ("PUT", format!("{pods}/p"), "update pods in namespace a: p"),
            (
                "DELETE",
                format!("{pods}/p"),
                "delete pods in namespace a: p",
            ),
            (
                "DELETE",
                pods.to_owned(),
                "deletecollection pods in namespace a",
            ),
            (
                "POST",
                format!("{pods}/p/eviction"),
                "create pods/eviction in namespace a: p",
            ),
            (
                "GET",
                format!("{vmis}?limit=500"),
                "list virtualmachineinstances of kubevirt.io",
            ),
            (
                "GET",
                format!("{vmis}?&watch=true"),
                "watch virtualmachineinstances of kubevirt.io",
            ),
            (
                "PATCH",
                format!("{in_namespace}/vm/status"),
                "patch virtualmachineinstances/status of kubevirt.io in namespace a: vm",
            ),
            (
                "GET",
                "/api/v1/namespaces/k/secrets?&watch=true&fieldSelector=metadata.name%3Dca"
                    .to_owned(),
                "watch secrets in namespace k: ca",
            ),
            (
                "GET",
                "/api/v1/namespaces/k".to_owned(),
                "get namespaces: k",
            ),
            (
                "PUT",
                "/api/v1/namespaces/k/finalize".to_owned(),
                "update namespaces/finalize: k",
            ),
        ] {
            check(method, &uri, Some(expected));
        }
        check("GET", "/version", None);
        check("GET", "/apis/kubevirt.io", None);
        check("OPTIONS", pods, None);
    }
}
