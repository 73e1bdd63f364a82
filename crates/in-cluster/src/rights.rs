//! Rights that this component lacks: found in the API server's refusals, told by events on its own pod
//! with the role that has them, and asked about until they are there.
//!
//! A component without any of its rights is not the installation of this cluster (another one is, in
//! another namespace, or the bindings are gone): it waits and does nothing, on its node neither.
//!
//! **Invariant**: what is told was confirmed by a question of its own, for a quota or a webhook
//! refuses in the same way, and an API server that has just started refuses everybody.

use std::{collections::BTreeMap, fmt, time::Duration};

use error_chain::error_chain;
use http::{Response, StatusCode};
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

/// Refusals that wait to be looked at. The same ones come again, so what does not fit is not lost.
const WAITING: usize = 64;
/// Rights that are told of at once; who lacks more is helped by the same remedy.
const MOST: usize = 16;
/// Between two questions whether a right is there.
const LOOK: Duration = Duration::from_secs(10);
/// For an answer at the start.
const PATIENCE: Duration = Duration::from_secs(10);
const REMEDY: &str =
    "kubectl apply --server-side --force-conflicts --filename deploy/ferrovirt.yaml";

/// What somebody wants to do.
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
    /// Every component reads instances; who may not has none of our roles.
    fn of_every_component() -> Self {
        Self {
            verb: "list".to_owned(),
            group: "kubevirt.io".to_owned(),
            resource: "virtualmachineinstances".to_owned(),
            ..Self::default()
        }
    }

    /// Out of the words of a refusal for want of a role.
    fn refused(message: &str) -> Option<Self> {
        let (object, rest) = message.split_once(" is forbidden: User \"")?;
        let (_, rest) = rest.split_once("\" cannot ")?;
        let (verb, rest) = rest.split_once(" resource \"")?;
        let (resource, rest) = rest.split_once('"')?;
        let quoted = |before: &str| Some(rest.split_once(before)?.1.split_once('"')?.0.to_owned());
        let name = object.split('"').nth(1);
        Some(Self {
            verb: verb.to_owned(),
            group: quoted("in API group \"")?,
            resource: resource.to_owned(),
            namespace: quoted("in the namespace \""),
            name: name.map(str::to_owned),
        })
    }

    /// Without the object: a role has it or has it not.
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

    /// The role of the manifest that has it: its kind and name.
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
                let word = |key: &str| role[key].as_str().unwrap_or_default().to_owned();
                format!("{} {}", word("kind"), word("name"))
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

    /// What is wrong, and what to do.
    fn note(&self, component: &str, namespace: &str, account: &str) -> String {
        match self.role(namespace, account) {
            Some(role) => format!(
                "{component} may not {self}: its {role} has lost that right, or its binding; bring it back: \
                 {REMEDY}"
            ),
            None => format!(
                "{component} may not {self}, and no role of its version has that right; is the manifest of \
                 another version? {REMEDY}"
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

/// An answer as it came, or read and written down again.
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// Looks at an answer of the API server on its way to whoever asked.
pub(crate) async fn noted(
    answer: Response<Incoming>,
    refused: Refused,
) -> Result<Answer, BoxError> {
    if answer.status() != StatusCode::FORBIDDEN {
        return Ok(answer.map(Either::Left));
    }
    let (head, body) = answer.into_parts();
    let bytes = body.collect().await?.to_bytes();
    let status: Option<Value> = serde_json::from_slice(&bytes).ok();
    let message = status
        .as_ref()
        .and_then(|status| status["message"].as_str());
    if let Some(right) = message.and_then(Right::refused)
        && let Err(full) = refused.try_send(right)
    {
        tracing::debug!(error = %full, "a refusal is not looked at now");
    }
    Ok(Response::from_parts(head, Either::Right(Full::new(bytes))))
}

/// Tells of what was refused as long as it is, until the process stops.
pub(crate) async fn watch(process: Process, mut refused: mpsc::Receiver<Right>) {
    let mut missing: BTreeMap<_, Right> = BTreeMap::new();
    let mut due = Instant::now();
    loop {
        tokio::select! {
            () = process.stop.cancelled() => return,
            right = refused.recv() => {
                let Some(right) = right else { return };
                if missing.is_empty() {
                    due = Instant::now() + LOOK;
                }
                if missing.len() < MOST {
                    missing.entry(right.kind()).or_insert(right);
                }
            }
            () = sleep_until(due), if !missing.is_empty() => {
                look(&process, &mut missing).await;
                due = Instant::now() + LOOK;
            }
        }
    }
}

async fn look(process: &Process, missing: &mut BTreeMap<(String, String, String), Right>) {
    for (kind, right) in missing.clone() {
        match may(&process.client, &right).await {
            Ok(true) => {
                tracing::info!(%right, "is allowed");
                missing.remove(&kind);
            }
            Ok(false) => {
                let (component, account) = (process.component, process.account);
                let note = right.note(component, &process.namespace, account);
                process.notices.warn(Reason::RightMissing, &note);
            }
            Err(error) => {
                tracing::debug!(error = error_chain(&error), %right, "nobody can be asked");
            }
        }
    }
}

/// Waits until this component may do anything at all, or cannot ask.
pub(crate) async fn any(process: &Process) {
    let mut is_known = false;
    loop {
        let right = Right::of_every_component();
        let asked = timeout(PATIENCE, may(&process.client, &right)).await;
        match asked {
            Ok(Ok(true)) => return,
            Ok(Ok(false)) if is_known => process
                .notices
                .warn(Reason::NotInstalled, &strange(process)),
            Ok(Ok(false)) => is_known = true,
            // Whoever goes on will notice, too, and has its own way to wait.
            Ok(Err(error)) => {
                tracing::warn!(error = error_chain(&error), "cannot ask for its own rights");
                return;
            }
            Err(_elapsed) => {
                tracing::warn!("nobody says which rights it has");
                return;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn strange(process: &Process) -> String {
    let (component, account, namespace) = (process.component, process.account, &process.namespace);
    format!(
        "{component} does nothing: its account {namespace}/{account} has no rights in this cluster. A cluster \
         has one installation; `kubectl get clusterrolebinding {account} -o wide` says in which namespace. \
         If it is another one, delete this one (kubectl delete namespace {namespace}); if not, bring the \
         roles back: {REMEDY}"
    )
}

async fn may(client: &Client, right: &Right) -> Result<bool, kube::Error> {
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &right.review()).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use http::Request;
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

    /// An API server that says of each question about rights in turn what is written here, and the last
    /// for ever; it keeps what events say.
    #[derive(Clone)]
    struct Server {
        answers: Arc<Mutex<Vec<bool>>>,
        told: Arc<Mutex<Vec<String>>>,
        asked: Arc<AtomicUsize>,
    }

    impl Server {
        fn answering(answers: &[bool]) -> Self {
            Self {
                answers: Arc::new(Mutex::new(answers.to_vec())),
                told: Arc::default(),
                asked: Arc::default(),
            }
        }

        fn answer(&self, path: &str, body: &[u8]) -> Value {
            let mut object: Value = serde_json::from_slice(body).unwrap();
            if path.contains("/events") {
                let note = object["message"].as_str().unwrap_or("again");
                self.told.lock().push(note.to_owned());
            } else {
                self.asked.fetch_add(1, Ordering::Relaxed);
                let mut answers = self.answers.lock();
                let allowed = match answers.len() {
                    1 => answers[0],
                    _ => answers.remove(0),
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
                    let answer = server.answer(&path, &body).to_string();
                    Ok::<_, kube::Error>(Response::new(Full::new(Bytes::from(answer))))
                }
            });
            let client = Client::new(service, "kubevirt");
            let place = Place {
                namespace: "kubevirt".to_owned(),
                pod: "virt-x-1".to_owned(),
                pod_uid: Some("u".to_owned()),
                log: String::new(),
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

        /// What was told, once all of it is written.
        async fn told(&self, process: Process) -> Vec<String> {
            process.stop.cancel();
            process.tasks.close();
            process.tasks.wait().await;
            self.told.lock().clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_component_without_any_right_waits_and_says_what_to_do() {
        let server = Server::answering(&[false, false, false, true]);
        let process = server.process();
        any(&process).await;
        assert_eq!(server.asked.load(Ordering::Relaxed), 4);
        let told = server.told(process).await;
        assert!(told[0].contains("virt-x does nothing"), "{told:?}");
        assert!(told[0].contains("delete namespace kubevirt"), "{told:?}");
        assert_eq!(told[1..], ["again"]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_its_rights_begins_and_says_nothing() {
        let server = Server::answering(&[true]);
        let process = server.process();
        any(&process).await;
        assert_eq!(server.told(process).await, [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_right_is_told_until_it_is_back_and_others_are_not() {
        let server = Server::answering(&[false, false, true]);
        let process = server.process();
        let (refused, refusals) = refusals();
        for _ in 0..3 {
            refused.send(right("create", "", "pods")).await.unwrap();
        }
        process.tasks.spawn(watch(process.clone(), refusals));
        // Longer than all looks that there are.
        tokio::time::sleep(10 * LOOK).await;
        assert_eq!(server.asked.load(Ordering::Relaxed), 3, "then nobody asks");
        let told = server.told(process).await;
        assert!(told[0].contains("may not create pods"), "{told:?}");
        assert_eq!(told[1..], ["again"]);
    }

    #[test]
    fn refusals_for_want_of_a_role_are_told_from_others() {
        let who = "User \"system:serviceaccount:kubevirt:kubevirt-controller\"";
        let create = format!(
            "pods is forbidden: {who} cannot create resource \"pods\" in API group \"\" in the namespace \"a\""
        );
        let secret = format!(
            "secrets \"kubevirt-ca\" is forbidden: {who} cannot get resource \"secrets\" in API group \"\" in \
             the namespace \"kubevirt\": RBAC: role \"x\" not found"
        );
        let status = format!(
            "virtualmachineinstances.kubevirt.io \"vm\" is forbidden: {who} cannot patch resource \
             \"virtualmachineinstances/status\" in API group \"kubevirt.io\" at the cluster scope"
        );
        let named = |right: Right, namespace: Option<&str>, name: Option<&str>| Right {
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            ..right
        };
        for (message, expected) in [
            (
                create.as_str(),
                Some(named(right("create", "", "pods"), Some("a"), None)),
            ),
            (
                &secret,
                Some(named(
                    right("get", "", "secrets"),
                    Some("kubevirt"),
                    Some("kubevirt-ca"),
                )),
            ),
            (
                &status,
                Some(named(
                    right("patch", "kubevirt.io", "virtualmachineinstances/status"),
                    None,
                    Some("vm"),
                )),
            ),
            (
                "pods \"a\" is forbidden: exceeded quota: none, requested: pods=1",
                None,
            ),
            (
                "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\"",
                None,
            ),
            ("admission webhook \"x\" denied the request: no", None),
            ("", None),
        ] {
            assert_eq!(Right::refused(message), expected, "{message}");
        }
    }

    #[test]
    fn the_role_that_has_a_right_is_named_with_the_remedy() {
        for (account, right, says) in [
            (
                "kubevirt-controller",
                right("create", "", "pods"),
                "may not create pods: its ClusterRole kubevirt-controller has lost",
            ),
            (
                "kubevirt-controller",
                right("patch", "kubevirt.io", "virtualmachineinstances/status"),
                "virtualmachineinstances/status of kubevirt.io: its ClusterRole kubevirt-controller",
            ),
            (
                "kubevirt-controller",
                right("update", "coordination.k8s.io", "leases"),
                "its Role kubevirt-controller has lost",
            ),
            (
                "kubevirt-handler",
                right(
                    "create",
                    "certificates.k8s.io",
                    "certificatesigningrequests",
                ),
                "its ClusterRole kubevirt-handler-installation has lost",
            ),
            (
                "kubevirt-apiserver",
                right("get", "", "secrets"),
                "its Role kubevirt-apiserver has lost",
            ),
            (
                "kubevirt-handler",
                right("delete", "", "nodes"),
                "no role of its version has that right",
            ),
        ] {
            let note = right.note("virt-x", "kubevirt", account);
            assert!(note.contains(says), "{note}");
            assert!(note.contains("kubectl apply"), "{note}");
        }
    }

    #[test]
    fn every_component_has_the_right_by_which_an_installation_is_known() {
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
