//! The attributes of a request that authorization checks.

use apimachinery::{rbac::Action, selector::FieldSelector};
use http::{Method, Request};

use crate::request::{ResourcePath, query};

/// A verb and its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub verb: String,
    pub target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Resource(Box<ResourceTarget>),
    Path(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResourceTarget {
    pub group: String,
    pub resource: String,
    pub subresource: String,
    /// Empty for all namespaces and for cluster-scoped kinds.
    pub namespace: String,
    pub name: String,
}

impl Attributes {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let path = request.uri().path();
        let Some(found) = ResourcePath::parse(path) else {
            return Self {
                verb: request.method().as_str().to_lowercase(),
                target: Target::Path(path.to_owned()),
            };
        };
        let (found, watches) = found.without_watch();
        let verb = if is_stream_into_pod(&found) {
            "create"
        } else if watches && is_read(request) {
            "watch"
        } else {
            verb(request, &found)
        };
        let path_name = found.name.unwrap_or_default();
        let mut name = path_name.clone();
        if name.is_empty() && matches!(verb, "list" | "watch" | "deletecollection") {
            name = selected_name(request).unwrap_or_default();
        }
        let is_namespace = found.group.is_empty() && found.plural == "namespaces";
        Self {
            verb: verb.to_owned(),
            target: Target::Resource(Box::new(ResourceTarget {
                // A list of namespaces is one of the cluster, whatever it selects.
                namespace: if is_namespace {
                    path_name
                } else {
                    found.namespace
                },
                group: found.group,
                resource: found.plural,
                // Only the first segment counts.
                subresource: found
                    .subresource
                    .and_then(|sub| sub.split('/').next().map(ToOwned::to_owned))
                    .unwrap_or_default(),
                name,
            })),
        }
    }

    /// As an action for role rules.
    pub(crate) fn action(&self) -> Action<'_> {
        match &self.target {
            Target::Path(path) => Action::Path {
                verb: &self.verb,
                path,
            },
            Target::Resource(target) => Action::Resource {
                verb: &self.verb,
                group: &target.group,
                resource: &target.resource,
                subresource: &target.subresource,
                name: &target.name,
            },
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        match &self.target {
            Target::Path(_) => "",
            Target::Resource(target) => &target.namespace,
        }
    }

    /// `cannot get resource "pods" in API group "" in the namespace "a"`.
    pub(crate) fn cannot(&self) -> String {
        let verb = &self.verb;
        match &self.target {
            Target::Path(path) => format!("cannot {verb} path {path:?}"),
            Target::Resource(target) => {
                let mut resource = target.resource.clone();
                if !target.subresource.is_empty() {
                    resource = format!("{resource}/{}", target.subresource);
                }
                let place = if target.namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {:?}", target.namespace)
                };
                let group = &target.group;
                format!("cannot {verb} resource {resource:?} in API group {group:?} {place}")
            }
        }
    }
}

/// Streams into a pod run programs and open connections there, so they need the permission to create
/// them whatever the method. Clients open them by GET, since browsers' websockets know no other.
fn is_stream_into_pod(path: &ResourcePath) -> bool {
    let subresource = path.subresource.as_deref().unwrap_or_default();
    let first = subresource.split('/').next().unwrap_or_default();
    path.group.is_empty()
        && path.plural == "pods"
        && matches!(first, "exec" | "attach" | "portforward")
}

/// Any method without a verb of its own reads.
fn is_read<B>(request: &Request<B>) -> bool {
    !matches!(
        *request.method(),
        Method::POST | Method::PUT | Method::PATCH | Method::DELETE
    )
}

fn verb<B>(request: &Request<B>, path: &ResourcePath) -> &'static str {
    let is_one = path.name.is_some();
    match *request.method() {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if is_one => "delete",
        Method::DELETE => "deletecollection",
        _ if is_one => "get",
        _ if wants_watch(request) => "watch",
        _ => "list",
    }
}

fn wants_watch<B>(request: &Request<B>) -> bool {
    parameter(request, "watch")
        .is_some_and(|value| matches!(value.as_str(), "" | "1" | "true" | "True" | "TRUE"))
}

/// A list restricted to one name is authorized like a request for that object.
fn selected_name<B>(request: &Request<B>) -> Option<String> {
    let text = parameter(request, "fieldSelector")?;
    let selector = FieldSelector::parse(&text).ok()?;
    selector.required("metadata.name").map(ToOwned::to_owned)
}

fn parameter<B>(request: &Request<B>, key: &str) -> Option<String> {
    let pairs = query::pairs(request.uri()).ok()?;
    pairs
        .into_iter()
        .find(|(name, _)| name == key)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_attributes_of_role_rules() {
        let cases = [
            ("GET", "/healthz", "get", r#"path "/healthz""#),
            ("HEAD", "/apis", "head", r#"path "/apis""#),
            (
                "GET",
                "/api/v1/namespaces/a",
                "get",
                r#"resource "namespaces" in API group "" in the namespace "a""#,
            ),
            (
                "GET",
                "/api/v1/namespaces?fieldSelector=metadata.name%3Da",
                "list",
                r#"resource "namespaces" in API group "" at the cluster scope"#,
            ),
            (
                "GET",
                "/api/v1/pods?watch=1",
                "watch",
                r#"resource "pods" in API group "" at the cluster scope"#,
            ),
            (
                "GET",
                "/api/v1/watch/namespaces/a/pods",
                "watch",
                r#"resource "pods" in API group "" in the namespace "a""#,
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods/x/exec?command=sh",
                "create",
                r#"resource "pods/exec" in API group "" in the namespace "a""#,
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods/x/portforward",
                "create",
                r#"resource "pods/portforward" in API group "" in the namespace "a""#,
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods/x/attach/",
                "create",
                r#"resource "pods/attach" in API group "" in the namespace "a""#,
            ),
            (
                "GET",
                "/api/v1/watch/namespaces/a/pods/x/exec",
                "create",
                r#"resource "pods/exec" in API group "" in the namespace "a""#,
            ),
            (
                "GET",
                "/api/v1/namespaces/a/pods/x/log",
                "get",
                r#"resource "pods/log" in API group "" in the namespace "a""#,
            ),
            (
                "DELETE",
                "/apis/g/v1/namespaces/a/things",
                "deletecollection",
                r#"resource "things" in API group "g" in the namespace "a""#,
            ),
            (
                "GET",
                "/apis/g/v1/namespaces/a/things/x/portforward/80/tcp",
                "get",
                r#"resource "things/portforward" in API group "g" in the namespace "a""#,
            ),
        ];
        for (method, uri, verb, target) in cases {
            let request = Request::builder()
                .method(method)
                .uri(uri)
                .body(())
                .expect(uri);
            let found = Attributes::of(&request);
            assert_eq!(found.cannot(), format!("cannot {verb} {target}"), "{uri}");
        }
    }

    #[test]
    fn list_of_one_name_is_authorized_by_name() {
        let uri = "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dx";
        let request = Request::get(uri).body(()).expect(uri);
        let Target::Resource(target) = Attributes::of(&request).target else {
            panic!("it is a resource");
        };
        assert_eq!(target.name, "x");
    }
}
