//! Missing rights of this component: taken from requests that the API server refused, reported by events on
//! the component's own pod with the role that has the right, and checked until they are granted.
//!
//! A component without any rights does not belong to the installation of this cluster (another namespace has
//! it, or the role bindings were deleted): it waits and does nothing, on its node neither.
//!
//! **Invariant**: a right is reported as missing only after a `SelfSubjectAccessReview` has confirmed it, since
//! an API server that has just started refuses every request.

use std::{collections::BTreeMap, fmt, time::Duration};

use error_chain::error_chain;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::{Bytes, Incoming};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};
use reasons::Reason;
use roles::Environment;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};
use tower::BoxError;

use crate::run::Process;

/// Refusals that wait to be checked. Refused requests are repeated, so one that does not fit is not lost.
const WAITING: usize = 64;
/// Missing rights that are tracked at a time; the remedy is the same for all.
const MAX_MISSING: usize = 16;
/// Interval of the checks whether a right was granted.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Time limit of the check at the start.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// In the message of a refusal by the authorizer. Its `Status` does not differ otherwise from the refusal of a
/// quota, an admission plugin or a webhook.
const BY_AUTHORIZER: &str = " is forbidden: User \"";
const REMEDY: &str =
    "kubectl apply --server-side --force-conflicts --filename deploy/ferrovirt.yaml";

/// The permission to use one verb on a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Right {
    verb: String,
    group: String,
    /// With the subresource, if there is one: `pods/eviction`.
    resource: String,
    namespace: Option<String>,
    name: Option<String>,
}

/// Where refusals are sent to.
pub(crate) type Refused = mpsc::Sender<Right>;

/// The two ends between a client and [`watch`].
pub(crate) fn refusals() -> (Refused, mpsc::Receiver<Right>) {
    mpsc::channel(WAITING)
}

impl Right {
    /// A right that the roles of every component include.
    fn of_every_component() -> Self {
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
    fn kind(&self) -> (String, String, String) {
        (self.group.clone(), self.resource.clone(), self.verb.clone())
    }

    fn review(&self) -> SelfSubjectAccessReview {
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

    /// Kind and name of the manifest's role with this right.
    fn role(&self, namespace: &str, account: &str) -> Option<String> {
        let all = roles::objects(Environment::Cluster { namespace }).ok()?;
        let of_account = |binding: &&Value| {
            let mut subjects = binding["subjects"].as_array().into_iter().flatten();
            subjects.any(|one| one["kind"] == "ServiceAccount" && one["name"] == account)
        };
        let bindings = all.iter().filter(of_account);
        bindings
            .map(|binding| &binding["roleRef"])
            .find(|role| {
                let is_it = |object: &&Value| {
                    object["kind"] == role["kind"] && object["metadata"]["name"] == role["name"]
                };
                let rules = all
                    .iter()
                    .filter(is_it)
                    .filter_map(|object| object["rules"].as_array());
                rules.flatten().any(|rule| self.is_in(rule))
            })
            .map(|role| {
                let text = |key: &str| role[key].as_str().unwrap_or_default().to_owned();
                format!("{} {}", text("kind"), text("name"))
            })
    }

    fn is_in(&self, rule: &Value) -> bool {
        let has = |list: &str, wanted: &str| {
            let mut all = rule[list].as_array().into_iter().flatten();
            all.any(|one| one == wanted || one == "*")
        };
        has("apiGroups", &self.group)
            && has("resources", &self.resource)
            && has("verbs", &self.verb)
    }

    /// The problem and its remedy, for an event.
    fn note(&self, component: &str, namespace: &str, account: &str) -> String {
        match self.role(namespace, account) {
            Some(role) => format!(
                "{component} may not {self}: the right was removed from its {role}, or the role's binding was \
                 deleted; restore them: {REMEDY}"
            ),
            None => format!(
                "{component} may not {self}, and no role of its version has that right: apply the manifest of \
                 the same version: {REMEDY}"
            ),
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

/// A response as received, or with a body that was read and is sent on.
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// Reports a refused request to [`watch`] and returns the response unchanged.
pub(crate) async fn report_refusal(
    response: Response<Incoming>,
    right: Option<Right>,
    refused: Refused,
) -> Result<Answer, BoxError> {
    if response.status() != StatusCode::FORBIDDEN {
        return Ok(response.map(Either::Left));
    }
    let (head, body) = response.into_parts();
    let bytes = body.collect().await?.to_bytes();
    if is_by_authorizer(&bytes)
        && let Some(right) = right
        && let Err(full) = refused.try_send(right)
    {
        tracing::debug!(error = %full, "refusal dropped");
    }
    Ok(Response::from_parts(head, Either::Right(Full::new(bytes))))
}

/// Whether this `Status` is a refusal by the authorizer.
fn is_by_authorizer(status: &[u8]) -> bool {
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    let message = status["message"].as_str().unwrap_or_default();
    status["reason"] == "Forbidden" && message.contains(BY_AUTHORIZER)
}

/// Publishes events about refused requests until their rights are granted or the process stops.
pub(crate) async fn watch(process: Process, mut refused: mpsc::Receiver<Right>) {
    let mut missing: BTreeMap<_, Right> = BTreeMap::new();
    let mut check_at = Instant::now();
    loop {
        tokio::select! {
            () = process.stop.cancelled() => return,
            right = refused.recv() => {
                let Some(right) = right else { return };
                if missing.is_empty() {
                    check_at = Instant::now() + CHECK_INTERVAL;
                }
                if missing.len() < MAX_MISSING {
                    missing.entry(right.kind()).or_insert(right);
                }
            }
            () = sleep_until(check_at), if !missing.is_empty() => {
                check(&process, &mut missing).await;
                check_at = Instant::now() + CHECK_INTERVAL;
            }
        }
    }
}

async fn check(process: &Process, missing: &mut BTreeMap<(String, String, String), Right>) {
    for (kind, right) in missing.clone() {
        match is_granted(&process.client, &right).await {
            Ok(true) => {
                tracing::info!(%right, "right is granted");
                missing.remove(&kind);
            }
            Ok(false) => {
                let (component, account) = (process.component, process.account);
                let note = right.note(component, &process.namespace, account);
                process.notices.warn(Reason::RightMissing, &note);
            }
            Err(error) => {
                tracing::debug!(error = error_chain(&error), %right, "right cannot be checked");
            }
        }
    }
}

/// Waits until this component has any rights, or cannot check them.
pub(crate) async fn wait_for_any(process: &Process) {
    let mut is_confirmed = false;
    loop {
        let right = Right::of_every_component();
        let reviewed = timeout(REVIEW_TIMEOUT, is_granted(&process.client, &right)).await;
        match reviewed {
            Ok(Ok(true)) => return,
            Ok(Ok(false)) if is_confirmed => process
                .notices
                .warn(Reason::NotInstalled, &not_installed(process)),
            Ok(Ok(false)) => is_confirmed = true,
            // The component itself also notices an unavailable API server, and waits for it.
            Ok(Err(error)) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "failed to check the rights of this component"
                );
                return;
            }
            Err(_elapsed) => {
                tracing::warn!("the check of the rights of this component timed out");
                return;
            }
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

fn not_installed(process: &Process) -> String {
    let (component, account, namespace) = (process.component, process.account, &process.namespace);
    format!(
        "{component} does nothing: its account {namespace}/{account} has no rights in this cluster. A cluster \
         has one installation; `kubectl get clusterrolebinding {account} -o wide` shows its namespace. \
         If that is another namespace, delete this installation (kubectl delete namespace {namespace}); if not, \
         restore the roles: {REMEDY}"
    )
}

async fn is_granted(client: &Client, right: &Right) -> Result<bool, kube::Error> {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let review = api.create(&PostParams::default(), &right.review()).await?;
    Ok(review.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio_util::{sync::CancellationToken, task::TaskTracker};

    use super::*;
    use crate::{cli::Place, notices::notices};

    fn right(verb: &str, group: &str, resource: &str) -> Right {
        let [verb, group, resource] = [verb, group, resource].map(str::to_owned);
        Right {
            verb,
            group,
            resource,
            ..Right::default()
        }
    }

    /// An API server that answers access reviews with these results in turn, repeating the last one, and keeps
    /// the messages of events.
    #[derive(Clone)]
    struct Server {
        results: Arc<Mutex<Vec<bool>>>,
        events: Arc<Mutex<Vec<String>>>,
        reviews: Arc<AtomicUsize>,
    }

    impl Server {
        fn new(results: &[bool]) -> Self {
            Self {
                results: Arc::new(Mutex::new(results.to_vec())),
                events: Arc::default(),
                reviews: Arc::default(),
            }
        }

        fn respond(&self, path: &str, body: &[u8]) -> Value {
            let mut object: Value = serde_json::from_slice(body).unwrap();
            if path.contains("/events") {
                let note = object["message"].as_str().unwrap_or("repeated");
                self.events.lock().push(note.to_owned());
            } else {
                self.reviews.fetch_add(1, Ordering::Relaxed);
                let mut results = self.results.lock();
                let allowed = match results.len() {
                    1 => results[0],
                    _ => results.remove(0),
                };
                object["status"] = json!({"allowed": allowed});
            }
            object
        }

        fn process(&self) -> Process {
            let server = self.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let server = server.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect_bytes().await?;
                    let response = server.respond(&path, &body).to_string();
                    Ok::<_, kube::Error>(Response::new(Full::new(Bytes::from(response))))
                }
            });
            let client = Client::new(service, "kubevirt");
            let place = Place {
                namespace: "kubevirt".to_owned(),
                pod: "virt-x-1".to_owned(),
                pod_uid: Some("u".to_owned()),
                log: String::new(),
                log_format: logging::Format::Text,
            };
            let (notices, writing) = notices(client.clone(), "virt-x", &place);
            let process = Process {
                client,
                component: "virt-x",
                account: installation::CONTROLLER_ACCOUNT,
                notices,
                namespace: place.namespace,
                tasks: TaskTracker::new(),
                stop: CancellationToken::new(),
            };
            process.tasks.spawn(writing.run(process.stop.clone()));
            process
        }

        /// The messages of all events, once they are written.
        async fn events(&self, process: Process) -> Vec<String> {
            process.stop.cancel();
            process.tasks.close();
            process.tasks.wait().await;
            self.events.lock().clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn component_without_rights_waits_and_publishes_the_remedy() {
        let server = Server::new(&[false, false, false, true]);
        let process = server.process();
        wait_for_any(&process).await;
        assert_eq!(server.reviews.load(Ordering::Relaxed), 4);
        let events = server.events(process).await;
        assert!(events[0].contains("virt-x does nothing"), "{events:?}");
        assert!(
            events[0].contains("delete namespace kubevirt"),
            "{events:?}"
        );
        assert_eq!(events[1..], ["repeated"]);
    }

    #[tokio::test(start_paused = true)]
    async fn component_with_rights_starts_without_an_event() {
        let server = Server::new(&[true]);
        let process = server.process();
        wait_for_any(&process).await;
        assert_eq!(server.events(process).await, [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn missing_right_is_reported_until_it_is_granted() {
        let server = Server::new(&[false, false, true]);
        let process = server.process();
        let (refused, refusals) = refusals();
        for _ in 0..3 {
            refused.send(right("create", "", "pods")).await.unwrap();
        }
        process.tasks.spawn(watch(process.clone(), refusals));
        // Longer than all checks.
        tokio::time::sleep(10 * CHECK_INTERVAL).await;
        assert_eq!(
            server.reviews.load(Ordering::Relaxed),
            3,
            "no check follows"
        );
        let events = server.events(process).await;
        assert!(events[0].contains("may not create pods"), "{events:?}");
        assert_eq!(events[1..], ["repeated"]);
    }

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

    #[test]
    fn only_refusals_by_the_authorizer_count() {
        let user = "User \"system:serviceaccount:kubevirt:kubevirt-controller\"";
        for (reason, message, expected) in [
            (
                "Forbidden",
                &*format!(
                    "pods is forbidden: {user} cannot create resource \"pods\" in API group \"\""
                ),
                true,
            ),
            (
                "Forbidden",
                &*format!(
                    "secrets \"kubevirt-ca\" is forbidden: {user} cannot get resource \"secrets\" in API \
                     group \"\" in the namespace \"kubevirt\": RBAC: role \"x\" not found"
                ),
                true,
            ),
            (
                "Forbidden",
                "pods \"a\" is forbidden: exceeded quota: none, requested: pods=1",
                false,
            ),
            (
                "Forbidden",
                "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"",
                false,
            ),
            ("", "admission webhook \"x\" denied the request: no", false),
            ("", "", false),
        ] {
            let status =
                json!({"kind": "Status", "reason": reason, "message": message}).to_string();
            assert_eq!(is_by_authorizer(status.as_bytes()), expected, "{message}");
        }
        assert!(!is_by_authorizer(b"forbidden"));
    }

    #[test]
    fn role_with_the_right_is_named_with_the_remedy() {
        for (account, right, expected) in [
            (
                "kubevirt-controller",
                right("create", "", "pods"),
                "may not create pods: the right was removed from its ClusterRole kubevirt-controller",
            ),
            (
                "kubevirt-controller",
                right("patch", "kubevirt.io", "virtualmachineinstances/status"),
                "virtualmachineinstances/status of kubevirt.io: the right was removed from its ClusterRole",
            ),
            (
                "kubevirt-controller",
                right("update", "coordination.k8s.io", "leases"),
                "removed from its Role kubevirt-controller",
            ),
            (
                "kubevirt-handler",
                right(
                    "create",
                    "certificates.k8s.io",
                    "certificatesigningrequests",
                ),
                "removed from its ClusterRole kubevirt-handler-installation",
            ),
            (
                "kubevirt-apiserver",
                right("get", "", "secrets"),
                "removed from its Role kubevirt-apiserver",
            ),
            (
                "kubevirt-handler",
                right("delete", "", "nodes"),
                "no role of its version has that right",
            ),
        ] {
            let note = right.note("virt-x", "kubevirt", account);
            assert!(note.contains(expected), "{note}");
            assert!(note.contains("kubectl apply"), "{note}");
        }
    }

    #[test]
    fn every_component_has_the_right_that_is_checked_at_the_start() {
        for account in [
            installation::API_ACCOUNT,
            installation::CONTROLLER_ACCOUNT,
            installation::HANDLER_ACCOUNT,
        ] {
            let role = Right::of_every_component().role("kubevirt", account);
            assert_eq!(role, Some(format!("ClusterRole {account}")));
        }
    }
}
