//! Paths, refusals and what they lead to.

use std::{io, sync::Arc};

use axum::{
    Json, Router,
    extract::{Extension, Path, Query, Request as HttpRequest, State, WebSocketUpgrade},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, put},
};
use error_chain::error_chain;
use kubevirt_api::VirtualMachineInstance;
use launcher_channel::{AgentQuestion, AgentReport, Request};
use reasons::Reason;
use reconcile::Key;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serving::Peer;

use super::{device, one_at_a_time::OneAtATime};
use crate::{
    guest::{self, Guests},
    launcher::CallError,
    metrics,
};

/// The websocket sub-protocol of all streams.
const PROTOCOL: &str = "plain.kubevirt.io";
/// The only caller, by the common name of its certificate.
const CALLER: &str = "virt-api";

#[derive(Debug, Clone)]
pub(crate) struct StreamsState {
    guests: Arc<Guests>,
    streams: Arc<OneAtATime>,
}

impl StreamsState {
    pub(crate) fn new(guests: Arc<Guests>) -> Self {
        Self {
            guests,
            streams: Arc::default(),
        }
    }
}

pub(crate) fn router(state: StreamsState) -> Router {
    let guest = "/v1/namespaces/{namespace}/virtualmachineinstances/{name}";
    let verb = |request: fn() -> Request| {
        put(
            move |state: State<StreamsState>, path: Path<(String, String)>| {
                call(state, path, request())
            },
        )
    };
    Router::new()
        .route(&format!("{guest}/console"), get(console))
        .route(&format!("{guest}/vnc"), get(vnc))
        .route(&format!("{guest}/pause"), verb(|| Request::Pause))
        .route(&format!("{guest}/unpause"), verb(|| Request::Unpause))
        .route(&format!("{guest}/softreboot"), verb(|| Request::SoftReboot))
        .route(&format!("{guest}/reset"), verb(|| Request::Reset))
        .route(&format!("{guest}/freeze"), put(freeze))
        .route(&format!("{guest}/unfreeze"), put(thaw))
        .route(
            &format!("{guest}/guestosinfo"),
            get(|state, path| ask(state, path, AgentQuestion::Everything, guest::info)),
        )
        .route(
            &format!("{guest}/userlist"),
            get(|state, path| ask(state, path, AgentQuestion::Users, guest::users)),
        )
        .route(
            &format!("{guest}/filesystemlist"),
            get(|state, path| ask(state, path, AgentQuestion::FileSystems, guest::file_systems)),
        )
        .layer(middleware::from_fn(only_virt_api))
        .with_state(state)
        .route("/healthz", get(|| async { "ok" }))
}

async fn only_virt_api(
    peer: Option<Extension<Peer>>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let name = peer
        .as_ref()
        .and_then(|Extension(peer)| peer.certificate.as_ref())
        .and_then(|certificate| certificate.common_name.as_deref());
    if name == Some(CALLER) {
        next.run(request).await
    } else {
        refusal(
            StatusCode::FORBIDDEN,
            "Forbidden",
            "this node answers virt-api only",
        )
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VncOptions {
    #[serde(default)]
    preserve_session: bool,
}

async fn console(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let key = Key::new(namespace, name);
    open(state, key, ("console", "virt-serial0"), upgrade).await
}

async fn vnc(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    Query(options): Query<VncOptions>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let key = Key::new(namespace, name);
    if options.preserve_session && state.streams.is_taken(&key, "vnc") {
        let message = "another session is open and was asked to be preserved";
        return refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        );
    }
    open(state, key, ("vnc", "virt-vnc"), upgrade).await
}

async fn open(
    state: StreamsState,
    key: Key,
    (device, file): (&'static str, &'static str),
    upgrade: WebSocketUpgrade,
) -> Response {
    let Some((pod, vmi)) = here(&state.guests, &key) else {
        return not_here(&key);
    };
    let uid = vmi.metadata.uid.clone().unwrap_or_default();
    let connected = match state.guests.pods_dir().open(&pod, "private") {
        Ok(volume) => volume.connect(&format!("{uid}/{file}")).await,
        Err(err) => Err(err),
    };
    let stream = match connected {
        Ok(stream) => stream,
        Err(err) => return no_device(device, &err),
    };
    upgrade
        .protocols([PROTOCOL])
        .on_upgrade(async move |socket| {
            let place = state.streams.take(key, device);
            let _counted = metrics::STREAMS.hold([device]);
            device::join(socket, stream, &place.ended).await;
        })
}

async fn call(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return not_here(&key);
    };
    match session.call(request).await {
        Ok(_state) => StatusCode::OK.into_response(),
        Err(err) => not_done(&err),
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FreezeOptions {
    /// None is until told otherwise.
    thaw_after_seconds: Option<u64>,
}

/// Whoever copies disks meanwhile may not hear of a refusal, so it is told on the instance as well.
async fn freeze(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    Query(options): Query<FreezeOptions>,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return not_here(&key);
    };
    let thaw_after_seconds = options.thaw_after_seconds;
    let question = AgentQuestion::Freeze { thaw_after_seconds };
    match session.ask_agent(question).await {
        Ok(_report) => StatusCode::OK.into_response(),
        Err(err) => {
            let guests = &state.guests;
            guests.warn(&key, Reason::FreezeError, error_chain(&err));
            not_done(&err)
        }
    }
}

async fn thaw(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return not_here(&key);
    };
    match session.ask_agent(AgentQuestion::Thaw).await {
        Ok(_report) => StatusCode::OK.into_response(),
        Err(err) => not_done(&err),
    }
}

/// Asks the guest's agent and answers in the words of the API.
async fn ask<T: Serialize>(
    State(state): State<StreamsState>,
    Path((namespace, name)): Path<(String, String)>,
    question: AgentQuestion,
    words: fn(AgentReport) -> T,
) -> Response {
    let key = Key::new(namespace, name);
    let Some((_, session)) = state.guests.session(&key) else {
        return not_here(&key);
    };
    match session.ask_agent(question).await {
        Ok(report) => Json(words(report)).into_response(),
        Err(err) => not_done(&err),
    }
}

fn not_done(err: &CallError) -> Response {
    let message = err.to_string();
    match err {
        CallError::Refused { .. } => refusal(StatusCode::CONFLICT, "Conflict", &message),
        CallError::NotConnected => refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            &message,
        ),
        CallError::TimedOut => refusal(StatusCode::GATEWAY_TIMEOUT, "Timeout", &message),
        CallError::OtherAnswer => {
            refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message)
        }
    }
}

fn here(
    guests: &Guests,
    key: &Key,
) -> Option<(crate::pods_dir::PodUid, Arc<VirtualMachineInstance>)> {
    let (pod, _) = guests.session(key)?;
    Some((pod, guests.vmi(key)?))
}

fn not_here(key: &Key) -> Response {
    refusal(
        StatusCode::NOT_FOUND,
        "NotFound",
        &format!("no guest {key} runs on this node"),
    )
}

/// QEMU makes a guest's sockets when it starts and takes them away when it ends, so that a missing
/// one says that the guest is not there yet or any more. Clients wait and ask again on that.
fn no_device(device: &str, err: &io::Error) -> Response {
    let message = format!("the guest's {device} is not there: {err}");
    match err.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            refusal(StatusCode::BAD_REQUEST, "BadRequest", &message)
        }
        _ => refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message),
    }
}

/// A Kubernetes `Status`, so that `virt-api` may hand it on as it is.
fn refusal(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    (code, Json(status)).into_response()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use admission::ClusterConfig;
    use cluster_view::Configuration;
    use embedded_api::{Database, EmbeddedApi, Identity};
    use futures::StreamExt as _;
    use k8s_openapi::api::core::v1::{Event, Pod};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::{Api, Client, api::PostParams, runtime::watcher};
    use reconcile::{Clock, Reconciler as _, Store, Triggers, recorder, watch};
    use tokio_util::{sync::CancellationToken, task::TaskTracker};

    use super::*;
    use crate::{
        capabilities::Capabilities,
        guest::{ClientHandle, GuestsParts},
        pods_dir::PodsDir,
    };

    #[test]
    fn a_guest_that_is_going_or_coming_has_no_device_and_is_worth_waiting_for() {
        for (kind, code) in [
            (io::ErrorKind::NotFound, StatusCode::BAD_REQUEST),
            (io::ErrorKind::ConnectionRefused, StatusCode::BAD_REQUEST),
            (
                io::ErrorKind::InvalidData,
                StatusCode::INTERNAL_SERVER_ERROR,
            ),
        ] {
            assert_eq!(no_device("console", &kind.into()).status(), code, "{kind}");
        }
    }

    /// An instance and its pod.
    async fn create_guest(client: &Client) -> VirtualMachineInstance {
        let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
        let all = kubevirt_api::crds::ALL.iter();
        let wanted = all.filter(|(name, _)| name.starts_with("virtualmachineinstances."));
        for (_, manifest) in wanted {
            let kind = serde_saphyr::from_str(manifest).unwrap();
            kinds.create(&PostParams::default(), &kind).await.unwrap();
        }
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "a"}, "spec": {"domain": {"devices": {}}},
        });
        let vmi = serde_json::from_value(vmi).unwrap();
        let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
        let vmi = vmis.create(&PostParams::default(), &vmi).await.unwrap();
        let pod = json!({
            "metadata": {"name": launcher_pod::pod_name(&vmi), "ownerReferences": [{
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                "name": "a", "uid": vmi.metadata.uid, "controller": true,
            }]},
            "spec": {"containers": [{"name": "compute", "image": "i"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let pods = Api::default_namespaced(client.clone());
        pods.create(&PostParams::default(), &pod).await.unwrap();
        vmi
    }

    /// An agent that has seen them.
    async fn agent(client: &Client, tasks: &TaskTracker, stop: &CancellationToken) -> Guests {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("node.json"), r#"{"kvm": false}"#).unwrap();
        let clock = Clock::system();
        let (recorder, task) = recorder(client.clone(), "virt-handler", clock);
        tasks.spawn(task.run(stop.clone()));
        let (vmis, pods) = (Store::new(), Store::new());
        let all = watcher::Config::default;
        tasks.spawn(watch(
            client.clone(),
            all(),
            vmis.clone(),
            |_| (),
            stop.clone(),
        ));
        tasks.spawn(watch(
            client.clone(),
            all(),
            pods.clone(),
            |_| (),
            stop.clone(),
        ));
        vmis.ready().await;
        pods.ready().await;
        Guests::new(GuestsParts {
            client: ClientHandle(client.clone()),
            vmis,
            pods,
            pods_dir: PodsDir::new("/nonexistent"),
            capabilities: Capabilities::load(dir.path()).unwrap(),
            cluster: Configuration::new(ClusterConfig::default(), "kubevirt".to_owned()),
            recorder,
            clock,
            triggers: Triggers::new(),
            tasks: tasks.clone(),
            stop: stop.clone(),
        })
    }

    #[tokio::test]
    async fn a_freeze_that_fails_is_told_on_the_instance() {
        let api = EmbeddedApi::open(embedded_api::Settings {
            database: Database::Memory,
            clock: embedded_api::Clock::Wall,
            front_proxy: None,
            kubelet: None,
        });
        let client = api
            .await
            .unwrap()
            .client(Identity::component("test"), "default");
        let vmi = create_guest(&client).await;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let guests = agent(&client, &tasks, &stop).await;
        let key = Key::new("default", "a");
        guests.reconcile(&key).await.unwrap();

        let path = || Path(("default".to_owned(), "a".to_owned()));
        let options = FreezeOptions {
            thaw_after_seconds: None,
        };
        let state = StreamsState::new(Arc::new(guests));
        let answer = freeze(State(state), path(), Query(options)).await;
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);

        let events: Api<Event> = Api::default_namespaced(client.clone());
        let told = async {
            let mut changes = std::pin::pin!(watcher(events, watcher::Config::default()));
            loop {
                match changes.next().await.unwrap().unwrap() {
                    watcher::Event::Apply(event) | watcher::Event::InitApply(event) => break event,
                    _ => {}
                }
            }
        };
        let event = tokio::time::timeout(Duration::from_secs(30), told)
            .await
            .unwrap();
        assert_eq!(event.reason.as_deref(), Some("FreezeError"));
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        assert_eq!(event.involved_object.uid, vmi.metadata.uid);
        let message = event.message.unwrap();
        assert!(message.contains("not connected"), "{message}");
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}
