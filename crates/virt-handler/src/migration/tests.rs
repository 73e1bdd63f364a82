//! Two virt-handlers with real sockets and certificates: bytes flow between the pods of a migration, and
//! nothing flows for anybody else.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use launcher_channel::MigrationSocket;
use reconcile::Key;
use serving::{
    Authority, ClientCertificates, HttpsClient, Identity, Leaf, Server, Target, TlsSource, Usage,
    Validity,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, UnixListener, UnixStream},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    SOCKETS,
    carriage::{Carriage, Way, file_name},
    endpoint::{self, Arrival, Arrivals},
};
use crate::{
    launcher::PeerError,
    pods_dir::{PodUid, PodsDir},
};

const MIGRATION: &str = "77aa";
const DEADLINE: Duration = Duration::from_secs(30);

fn guest() -> Key {
    Key::new("default", "a")
}

/// A node with one pod.
struct Pod {
    _root: tempfile::TempDir,
    dir: PodsDir,
    uid: PodUid,
}

impl Pod {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let (dir, uid) = (PodsDir::new(root.path()), PodUid::parse("1234").unwrap());
        std::fs::create_dir_all(dir.empty_dir(&uid, SOCKETS)).unwrap();
        Self {
            _root: root,
            dir,
            uid,
        }
    }

    /// A socket by its path in the pod.
    fn socket(&self, path: &str) -> std::path::PathBuf {
        self.dir.empty_dir(&self.uid, SOCKETS).join(file_name(path))
    }
}

/// The new node: it waits for one migration from `n1`.
#[derive(Clone)]
struct NewNode {
    pod: Arc<Pod>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Arrivals for NewNode {
    fn find(&self, of: &Key, migration: &str) -> Option<Arrival> {
        (*of == guest() && migration == MIGRATION).then(|| Arrival {
            source_node: "n1".to_owned(),
            pods_dir: self.pod.dir.clone(),
            pod: self.pod.uid.clone(),
            check: |_, _| Ok(()),
        })
    }

    fn tasks(&self) -> (&TaskTracker, &CancellationToken) {
        (&self.tasks, &self.stop)
    }
}

struct Cluster {
    authority: Authority,
    new: NewNode,
    address: SocketAddr,
}

fn validity() -> Validity {
    Validity::starting(Timestamp::now(), SignedDuration::from_hours(1))
}

impl Cluster {
    async fn new() -> Self {
        let authority = Authority::create("test-ca", validity()).unwrap();
        let new = NewNode {
            pod: Arc::new(Pod::new()),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cluster = Self {
            authority,
            new,
            address,
        };
        let clients = ClientCertificates::Required(cluster.authority.trust());
        let tls = TlsSource::fixed(&cluster.identity("virt-handler.n2"), &clients).unwrap();
        let server = Server::new(listener, tls, endpoint::routes(cluster.new.clone()));
        let stop = cluster.new.stop.clone();
        cluster.new.tasks.spawn(server.run(stop));
        cluster
    }

    fn identity(&self, name: &str) -> Identity {
        let leaf = Leaf {
            usage: Usage::Both,
            ..Leaf::server(name, validity())
        };
        self.authority.issue(&leaf).unwrap()
    }

    /// Carries the connections of this pod as the holder of that certificate.
    fn carry(&self, pod: &Pod, caller: &str, migration: &str, server: &str) {
        let trust = self.authority.trust();
        let identity = self.identity(caller);
        let tasks = self.new.tasks.clone();
        let carriage = Carriage {
            way: Way::ToNode {
                peers: HttpsClient::new(&trust, Some(&identity), tasks).unwrap(),
                target: Target::at(self.address, server),
                path: endpoint::path(&guest(), migration),
            },
            pods_dir: pod.dir.clone(),
            pod: pod.uid.clone(),
            check: |_, _| Ok(()),
        };
        let listening = carriage.listen().unwrap();
        self.new.tasks.spawn(listening.run(self.new.stop.clone()));
    }

    async fn end(self) {
        self.new.stop.cancel();
        self.new.tasks.close();
        self.new.tasks.wait().await;
    }
}

/// Sends bytes from the old pod to the new one and back; `None` if the connection was closed.
async fn exchange(old: &Pod, listener: &UnixListener, socket: MigrationSocket) -> Option<Vec<u8>> {
    let sent: Vec<u8> = (0..=u8::MAX).cycle().take(1 << 20).collect();
    let mut near = UnixStream::connect(old.socket(&socket.source_path()))
        .await
        .unwrap();
    let (mut read, mut write) = near.split();
    let far = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.unwrap();
        stream.write_all(&all).await.unwrap();
    };
    let near = async {
        // A refused connection ends at any point of this.
        let written = write.write_all(&sent).await;
        let ended = write.shutdown().await;
        let mut back = Vec::new();
        let read = read.read_to_end(&mut back).await;
        let is_whole = written.is_ok() && ended.is_ok() && read.is_ok() && !back.is_empty();
        is_whole.then_some(back)
    };
    let both = async {
        tokio::select! {
            back = near => back,
            ((), back) = async { tokio::join!(far, std::future::pending::<Option<Vec<u8>>>()) } => back,
        }
    };
    let back = tokio::time::timeout(DEADLINE, both).await.unwrap();
    assert!(back.as_ref().is_none_or(|back| *back == sent));
    back
}

#[tokio::test]
async fn connections_of_the_old_pod_reach_the_new_one() {
    let (cluster, old) = (Cluster::new().await, Pod::new());
    cluster.carry(&old, "virt-handler.n1", MIGRATION, "virt-handler.n2");
    for socket in MigrationSocket::ALL {
        let path = cluster.new.pod.socket(&socket.target_path());
        let listener = UnixListener::bind(path).unwrap();
        let back = exchange(&old, &listener, socket).await;
        assert!(back.is_some(), "{}", socket.name());
    }
    cluster.end().await;
}

/// QEMU opens one for the guest's state and several for its memory, and knows them by what comes first.
#[tokio::test]
async fn connections_of_one_socket_are_carried_side_by_side() {
    const CONNECTIONS: u8 = 9;
    let (cluster, old) = (Cluster::new().await, Pod::new());
    cluster.carry(&old, "virt-handler.n1", MIGRATION, "virt-handler.n2");
    let socket = MigrationSocket::Memory;
    let listener = UnixListener::bind(cluster.new.pod.socket(&socket.target_path())).unwrap();
    // Fewer may wait than come.
    rustix::net::listen(&listener, 1).unwrap();
    let source = old.socket(&socket.source_path());
    let all = async {
        let mut near = BTreeMap::new();
        for id in 0..CONNECTIONS {
            let mut stream = UnixStream::connect(&source).await.unwrap();
            stream.write_all(&[id]).await.unwrap();
            near.insert(id, stream);
        }
        let mut far = BTreeMap::new();
        for _ in 0..CONNECTIONS {
            let (mut stream, _) = listener.accept().await.unwrap();
            let id = stream.read_u8().await.unwrap();
            far.insert(id, stream);
        }
        assert!(far.keys().eq(near.keys()), "{far:?}");
        // The end of one, or of one of its directions, ends nothing else.
        for (id, stream) in &mut near {
            stream.shutdown().await.unwrap();
            let other = far.get_mut(id).unwrap();
            let mut rest = Vec::new();
            other.read_to_end(&mut rest).await.unwrap();
            assert!(rest.is_empty(), "{rest:?}");
            other.write_all(&[*id]).await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), *id);
            far.remove(id);
        }
    };
    tokio::time::timeout(DEADLINE, all).await.unwrap();
    cluster.end().await;
}

#[tokio::test]
async fn connections_reach_the_new_pod_of_the_same_node() {
    let (old, uid) = (Pod::new(), PodUid::parse("5678").unwrap());
    std::fs::create_dir_all(old.dir.empty_dir(&uid, SOCKETS)).unwrap();
    let carriage = Carriage {
        way: Way::WithinNode(uid.clone()),
        pods_dir: old.dir.clone(),
        pod: old.uid.clone(),
        check: |_, _| Ok(()),
    };
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(carriage.listen().unwrap().run(stop.clone()));
    let new = old.dir.empty_dir(&uid, SOCKETS);
    for socket in MigrationSocket::ALL {
        let listener = UnixListener::bind(new.join(file_name(&socket.target_path()))).unwrap();
        let back = exchange(&old, &listener, socket).await;
        assert!(back.is_some(), "{}", socket.name());
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

/// Every process that takes part has to prove its pod, on the same node, too.
#[tokio::test]
async fn nobody_else_takes_part_within_the_node() {
    let (old, uid) = (Pod::new(), PodUid::parse("5678").unwrap());
    std::fs::create_dir_all(old.dir.empty_dir(&uid, SOCKETS)).unwrap();
    let refused = |_: &UnixStream, pod: &PodUid| match pod.as_str() {
        "5678" => Err(PeerError::WrongUser { uid: 1000 }),
        _ => Ok(()),
    };
    let carriage = Carriage {
        way: Way::WithinNode(uid.clone()),
        pods_dir: old.dir.clone(),
        pod: old.uid.clone(),
        check: refused,
    };
    let stop = CancellationToken::new();
    let tasks = TaskTracker::new();
    tasks.spawn(carriage.listen().unwrap().run(stop.clone()));
    let new = old.dir.empty_dir(&uid, SOCKETS);
    let socket = MigrationSocket::Memory;
    let listener = UnixListener::bind(new.join(file_name(&socket.target_path()))).unwrap();
    assert_eq!(exchange(&old, &listener, socket).await, None);
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

/// The classes of CVE-2026-13325, as there is no way without TLS, and of CVE-2025-64434.
#[tokio::test]
async fn nobody_else_reaches_the_new_pod() {
    for (caller, migration, server) in [
        // Another node, virt-api, another migration, another server than expected.
        ("virt-handler.n3", MIGRATION, "virt-handler.n2"),
        ("virt-api", MIGRATION, "virt-handler.n2"),
        ("virt-handler.n1", "other", "virt-handler.n2"),
        ("virt-handler.n1", MIGRATION, "virt-handler.n4"),
    ] {
        let (cluster, old) = (Cluster::new().await, Pod::new());
        cluster.carry(&old, caller, migration, server);
        let socket = MigrationSocket::Memory;
        let path = cluster.new.pod.socket(&socket.target_path());
        let listener = UnixListener::bind(path).unwrap();
        let back = exchange(&old, &listener, socket).await;
        assert_eq!(back, None, "{caller} {migration} {server}");
        cluster.end().await;
    }
}

#[tokio::test]
async fn connection_ends_if_the_new_pod_does_not_listen() {
    let (cluster, old) = (Cluster::new().await, Pod::new());
    cluster.carry(&old, "virt-handler.n1", MIGRATION, "virt-handler.n2");
    let elsewhere = UnixListener::bind(old.socket("elsewhere")).unwrap();
    let back = exchange(&old, &elsewhere, MigrationSocket::Control).await;
    assert_eq!(back, None);
    cluster.end().await;
}
