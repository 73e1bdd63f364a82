//! Where the virt-handler of a guest's old node delivers the connections of its pod.

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Extension, Path, Request, State},
    http::StatusCode,
    response::Response,
    routing::get,
};
use error_chain::error_chain;
use kube::ResourceExt as _;
use kubevirt_api::migration::VirtualMachineInstanceMigrationState as MigrationState;
use launcher_channel::MigrationSocket;
use reconcile::Key;
use serving::{Peer, upgrade};
use tokio::net::UnixStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    PROTOCOL, SOCKETS,
    carriage::{PeerCheck, file_name},
};
use crate::{
    guest::Guests,
    launcher,
    pods_dir::{PodUid, PodsDir},
};

/// Between two attempts to connect while others wait at the same socket.
const PAUSE: Duration = Duration::from_millis(50);
/// Most attempts; the other node waits for 10 s.
const ATTEMPTS: u32 = 100;

/// A pod on this node that waits for a guest.
#[derive(Debug)]
pub(super) struct Arrival {
    /// The node that the guest leaves.
    pub(super) source_node: String,
    pub(super) pods_dir: PodsDir,
    pub(super) pod: PodUid,
    pub(super) check: PeerCheck,
}

/// Finds arrivals, and runs what carries their bytes.
pub(super) trait Arrivals: Clone + Send + Sync + 'static {
    /// The pod of this migration.
    fn find(&self, guest: &Key, migration: &str) -> Option<Arrival>;

    fn tasks(&self) -> (&TaskTracker, &CancellationToken);
}

pub(crate) fn router(guests: Arc<Guests>) -> Router {
    routes(guests)
}

pub(super) fn routes<A: Arrivals>(arrivals: A) -> Router {
    Router::new()
        .route(
            "/v1/namespaces/{namespace}/virtualmachineinstances/{name}/migrations/{uid}/{socket}",
            get(receive::<A>),
        )
        .with_state(arrivals)
}

/// The path of a migration at the virt-handler of the new node, without the socket.
pub(super) fn path(guest: &Key, migration: &str) -> String {
    let Key { namespace, name } = guest;
    format!("/v1/namespaces/{namespace}/virtualmachineinstances/{name}/migrations/{migration}")
}

async fn receive<A: Arrivals>(
    State(arrivals): State<A>,
    Path((namespace, name, uid, socket)): Path<(String, String, String, String)>,
    peer: Option<Extension<Peer>>,
    mut request: Request,
) -> Response {
    let guest = Key::new(namespace, name);
    let peer = peer.map(|Extension(peer)| peer);
    let found = arrivals.find(&guest, &uid);
    // One answer to all that have no business here.
    let Some(arrival) = found.filter(|arrival| is_from(peer.as_ref(), &arrival.source_node)) else {
        tracing::warn!(
            %guest, migration = uid, address = peer.map(|peer| peer.address.to_string()),
            "a connection for a migration was refused: its sender is not the old node of a guest \
             that comes here"
        );
        return refusal(StatusCode::FORBIDDEN);
    };
    let mut all = MigrationSocket::ALL.into_iter();
    let Some(socket) = all.find(|known| known.name() == socket) else {
        return refusal(StatusCode::NOT_FOUND);
    };
    if !upgrade::is_upgrade(request.headers()) {
        return refusal(StatusCode::UPGRADE_REQUIRED);
    }
    let Arrival {
        pods_dir,
        pod,
        check,
        ..
    } = &arrival;
    let stream = match connect(pods_dir, pod, socket, *check).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(
                %guest, socket = socket.name(), error = error_chain(&error),
                "the pod of a migration does not accept a connection"
            );
            return refusal(StatusCode::BAD_GATEWAY);
        }
    };
    let upgraded = upgrade::take(&mut request);
    let (tasks, stop) = arrivals.tasks();
    let stop = stop.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            ended = upgrade::carry(upgraded, stream) => if let Err(error) = ended {
                tracing::info!(%guest, socket = socket.name(), %error, "a connection of a migration ended");
            }
        }
    });
    upgrade::accept(PROTOCOL)
}

fn refusal(code: StatusCode) -> Response {
    let mut response = Response::default();
    *response.status_mut() = code;
    response
}

/// Whether the caller has proved to be the virt-handler of that node.
fn is_from(peer: Option<&Peer>, node: &str) -> bool {
    let expected = format!("virt-handler.{node}");
    let certificate = peer.and_then(|peer| peer.certificate.as_ref());
    certificate.is_some_and(|certificate| certificate.dns_names.contains(&expected))
}

/// Connects to a pod that waits for a guest.
pub(super) async fn connect(
    pods_dir: &PodsDir,
    pod: &PodUid,
    socket: MigrationSocket,
    check: PeerCheck,
) -> io::Result<UnixStream> {
    let volume = pods_dir.open(pod, SOCKETS)?;
    let path = socket.target_path();
    let mut attempts = 1;
    let stream = loop {
        match volume.connect(file_name(&path)).await {
            // QEMU accepts one connection after the other, and the kernel has no more wait than QEMU expects.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempts < ATTEMPTS => {
                attempts += 1;
                tokio::time::sleep(PAUSE).await;
            }
            connected => break connected?,
        }
    };
    check(&stream, pod).map_err(io::Error::other)?;
    Ok(stream)
}

impl Arrivals for Arc<Guests> {
    fn find(&self, guest: &Key, migration: &str) -> Option<Arrival> {
        // A VMI whose guest comes from another VMI is on this node before.
        let own = || self.vmi(guest).filter(|vmi| model::awaits_guest(vmi));
        let vmi = self.arrival(guest).or_else(own)?;
        let state = vmi.status.as_ref()?.migration_state.as_ref()?;
        let source_node = source_of(state, migration, &self.parts.node)?;
        let (pod, _) = self.session(guest)?;
        let name = self.pod(&pod)?.name_any();
        (state.target_pod.as_ref() == Some(&name)).then(|| Arrival {
            source_node,
            pods_dir: self.pods_dir().clone(),
            pod,
            check: launcher::check_peer,
        })
    }

    fn tasks(&self) -> (&TaskTracker, &CancellationToken) {
        (&self.parts.tasks, &self.parts.stop)
    }
}

/// The old node of the migration with that UID, if it comes to this node and is not over.
fn source_of(state: &MigrationState, migration: &str, node: &str) -> Option<String> {
    let is_this = model::copy_id(state) == Some(migration);
    let is_here = state.target_node.as_deref() == Some(node);
    let is_over = state.completed == Some(true) || state.failed == Some(true);
    let source = state.source_node.clone();
    source.filter(|_| is_this && is_here && !is_over)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_a_migration_in_progress_to_this_node_has_a_source() {
        let check = |change: Value, migration: &str, node: &str, expected: Option<&str>| {
            let mut state = json!({"migrationUid": "m", "sourceNode": "n1", "targetNode": "n2"});
            for (name, value) in change.as_object().unwrap() {
                state[name] = value.clone();
            }
            let parsed: MigrationState = serde_json::from_value(state.clone()).unwrap();
            let found = source_of(&parsed, migration, node);
            assert_eq!(found.as_deref(), expected, "{state} {migration} {node}");
        };
        check(json!({}), "m", "n2", Some("n1"));
        check(json!({}), "other", "n2", None);
        check(json!({}), "m", "n3", None);
        check(json!({"completed": true}), "m", "n2", None);
        check(json!({"failed": true}), "m", "n2", None);
        check(json!({"sourceNode": null}), "m", "n2", None);
    }
}
