//! Checks of rights: of any at the start, and of those that a request was refused for.

use std::{collections::BTreeMap, time::Duration};

use error_chain::error_chain;
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use kube::{Api, Client, api::PostParams};
use reasons::Reason;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use super::right::Right;
use super::role::REMEDY;
use crate::run::Process;

/// Missing rights that are tracked at a time; the remedy is the same for all.
const MAX_MISSING: usize = 16;
/// Interval of the checks whether a right was granted.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Time limit of the check at the start.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

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
                tracing::info!(%right, "permission is granted");
                missing.remove(&kind);
            }
            Ok(false) => {
                let (component, account) = (process.component, process.account);
                let note = right.note(component, &process.namespace, account);
                process.notices.warn(Reason::RightMissing, &note);
            }
            Err(error) => {
                tracing::debug!(error = error_chain(&error), %right, "permission cannot be checked");
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
                    "failed to check the permissions of this component"
                );
                return;
            }
            Err(_elapsed) => {
                tracing::warn!("the check of the permissions of this component timed out");
                return;
            }
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

fn not_installed(process: &Process) -> String {
    let (component, account, namespace) = (process.component, process.account, &process.namespace);
    format!(
        "{component} does nothing: its account {namespace}/{account} has no permissions in this cluster. A cluster \
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

    use http::{Request, Response};
    use http_body_util::Full;
    use hyper::body::Bytes;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tokio_util::{sync::CancellationToken, task::TaskTracker};

    use super::*;
    use crate::rights::refusals;
    use crate::{cli::Place, notices::notices};

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
                cluster: cluster_view::Configuration::new("kubevirt"),
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
            let right = Right {
                verb: "create".to_owned(),
                resource: "pods".to_owned(),
                ..Right::default()
            };
            refused.send(right).await.unwrap();
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
}
