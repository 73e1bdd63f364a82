//! The DNS server of the pods: answers names of the cluster and forwards all other queries to the
//! host's servers.
//!
//! **Invariants.** Work is bounded by a number of concurrent queries and connections and a timeout for each
//! step; no pod has all of them; nothing outlives the stop for longer than a query; a panic is the failure of one
//! query.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    message::{self, Answer, Kind, Question, Record, Transport},
    names::Names,
};

const PORT: u16 = 53;
/// Further datagrams are dropped; clients retry.
const QUERIES: Limits = Limits { all: 256, each: 64 };
/// Further connections are closed.
const CONNECTIONS: Limits = Limits { all: 256, each: 16 };
/// For the response of one upstream server.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(3);
/// For the next query on a connection, and for the client to take an answer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// UDP messages are shorter in practice.
const MAX_DATAGRAM: usize = 4096;

/// The sockets of the server.
#[derive(Debug)]
pub(crate) struct Server {
    udp: UdpSocket,
    tcp: TcpListener,
    address: Ipv4Addr,
    /// Read for each forwarded query, as it changes with the host's network.
    resolv_conf: std::path::PathBuf,
}

impl Server {
    pub(crate) async fn bind(address: Ipv4Addr) -> io::Result<Self> {
        Self::bind_at(address, PORT, "/etc/resolv.conf".into()).await
    }

    async fn bind_at(
        address: Ipv4Addr,
        port: u16,
        resolv_conf: std::path::PathBuf,
    ) -> io::Result<Self> {
        let udp = UdpSocket::bind((address, port)).await?;
        let tcp = TcpListener::bind((address, udp.local_addr()?.port())).await?;
        Ok(Self {
            udp,
            tcp,
            address,
            resolv_conf,
        })
    }

    pub(crate) async fn run(self, names: Arc<RwLock<Names>>, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        let (queries, connections) = (Slots::new(QUERIES), Slots::new(CONNECTIONS));
        let resolver = Arc::new(Resolver {
            names,
            address: self.address,
            resolv_conf: self.resolv_conf,
        });
        let udp = Arc::new(self.udp);
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                received = udp.recv_from(&mut buffer) => {
                    // Errors report undeliverable responses; ignore them.
                    let Ok((count, from)) = received else { continue };
                    let Some(slot) = queries.take(from.ip()) else { continue };
                    let message = buffer.get(..count).unwrap_or_default().to_vec();
                    let (resolver, udp) = (Arc::clone(&resolver), Arc::clone(&udp));
                    tasks.spawn(async move {
                        let answer = resolver.answer(&message, Transport::Datagram).await;
                        if let Some(answer) = answer
                            && let Err(error) = udp.send_to(&answer, from).await
                        {
                            tracing::debug!(%error, "DNS response cannot be sent");
                        }
                        drop(slot);
                    });
                }
                accepted = self.tcp.accept() => {
                    let Ok((stream, from)) = accepted else { continue };
                    let Some(slot) = connections.take(from.ip()) else { continue };
                    let (resolver, stop) = (Arc::clone(&resolver), stop.clone());
                    tasks.spawn(async move {
                        tokio::select! {
                            () = stop.cancelled() => {}
                            served = resolver.serve(stream) => if let Err(error) = served {
                                tracing::debug!(%error, "DNS connection ended");
                            }
                        }
                        drop(slot);
                    });
                }
            }
        }
        tasks.close();
        // Each query has a timeout.
        tasks.wait().await;
    }
}

/// How many at once: of all clients, and of each.
#[derive(Debug, Clone, Copy)]
struct Limits {
    all: usize,
    each: usize,
}

/// The places of what is served at once.
#[derive(Debug, Clone)]
struct Slots {
    limits: Limits,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A place, until it is dropped.
#[derive(Debug)]
struct Slot {
    client: IpAddr,
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Slots {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            taken: Arc::default(),
        }
    }

    /// None if all places are taken, or those of this client.
    fn take(&self, client: IpAddr) -> Option<Slot> {
        let mut taken = self.taken.lock();
        let own = taken.get(&client).copied().unwrap_or_default();
        if own >= self.limits.each || taken.values().sum::<usize>() >= self.limits.all {
            return None;
        }
        taken.insert(client, own.saturating_add(1));
        Some(Slot {
            client,
            taken: Arc::clone(&self.taken),
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        if let Some(own) = taken.get_mut(&self.client) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                taken.remove(&self.client);
            }
        }
    }
}

struct Resolver {
    names: Arc<RwLock<Names>>,
    address: Ipv4Addr,
    resolv_conf: std::path::PathBuf,
}

impl Resolver {
    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        loop {
            let Ok(length) = timeout(IDLE_TIMEOUT, stream.read_u16()).await else {
                return Ok(());
            };
            let mut message = vec![0; usize::from(length?)];
            timeout(IDLE_TIMEOUT, stream.read_exact(&mut message)).await??;
            let Some(answer) = self.answer(&message, Transport::Stream).await else {
                return Ok(());
            };
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            let send = async {
                stream.write_u16(length).await?;
                stream.write_all(&answer).await
            };
            timeout(IDLE_TIMEOUT, send).await??;
        }
    }

    async fn answer(&self, message: &[u8], transport: Transport) -> Option<Vec<u8>> {
        or_failure(self.resolve(message, transport), message, transport).await
    }

    /// The response to a query; `None` for any other message.
    async fn resolve(&self, message: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let question = message::read(message)?;
        let known = self.names.read().answer(&question.name, question.kind);
        if let Some(mut answer) = known {
            if question.kind == Kind::Address {
                self.follow_alias(&mut answer).await;
            }
            return Some(message::write(message, &question, &answer, transport));
        }
        match self.forward(message, &question, transport).await {
            Some(answer) => Some(answer),
            None => Some(message::write(
                message,
                &question,
                &Answer::Failed,
                transport,
            )),
        }
    }

    /// Adds the addresses of an alias: the resolvers of pods do not look for them.
    async fn follow_alias(&self, answer: &mut Answer) {
        let Answer::Records(records) = answer else {
            return;
        };
        let Some(Record::Name(Kind::Alias, name)) = records.last() else {
            return;
        };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let inside = self.names.read().answer(&name, Kind::Address);
        let found: Vec<Ipv4Addr> = match inside {
            None => self.addresses(&name).await,
            Some(Answer::Records(inside)) => inside
                .into_iter()
                .filter_map(|record| match record {
                    Record::Address(address) => Some(address),
                    _ => None,
                })
                .collect(),
            Some(Answer::Empty | Answer::Unknown | Answer::Failed) => Vec::new(),
        };
        records.extend(found.into_iter().map(|address| Record::AddressOf {
            name: name.clone(),
            address,
        }));
    }

    /// The addresses of a name outside of the cluster.
    async fn addresses(&self, name: &str) -> Vec<Ipv4Addr> {
        let mut id = [0; 2];
        let random = rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty());
        let query = message::query(u16::from_be_bytes(id), name).filter(|_| random.is_ok());
        let Some(query) = query else {
            return Vec::new();
        };
        let Some(question) = message::read(&query) else {
            return Vec::new();
        };
        let response = self.forward(&query, &question, Transport::Datagram).await;
        message::addresses(&response.unwrap_or_default())
    }

    async fn forward(
        &self,
        message: &[u8],
        question: &Question,
        transport: Transport,
    ) -> Option<Vec<u8>> {
        let text = tokio::fs::read_to_string(&self.resolv_conf).await;
        for server in nameservers(&text.unwrap_or_default()) {
            if server.ip() == IpAddr::V4(self.address) {
                continue;
            }
            let query = async {
                match transport {
                    Transport::Datagram => query_udp(server, message, question).await,
                    Transport::Stream => query_tcp(server, message).await,
                }
            };
            match timeout(UPSTREAM_TIMEOUT, query).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => tracing::debug!(%server, %error, "upstream DNS server failed"),
                Err(_) => tracing::debug!(%server, "upstream DNS server did not respond in time"),
            }
        }
        None
    }
}

/// The response; after a panic a SERVFAIL, if the query can be read.
async fn or_failure(
    response: impl Future<Output = Option<Vec<u8>>>,
    message: &[u8],
    transport: Transport,
) -> Option<Vec<u8>> {
    let failure = || {
        let question = message::read(message)?;
        let failed = message::write(message, &question, &Answer::Failed, transport);
        Some(failed)
    };
    match panics::confined(response).await {
        Ok(response) => response,
        Err(_panicked) => panics::catch(failure).ok().flatten(),
    }
}

/// The servers in the host's `resolv.conf`, in order. A port may follow after `#`.
fn nameservers(text: &str) -> Vec<SocketAddr> {
    let lines = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines
        .filter_map(|rest| {
            let server = rest.split_whitespace().next()?;
            let (address, port) = match server.split_once('#') {
                Some((address, port)) => (address, port.parse().ok()?),
                None => (server, PORT),
            };
            Some(SocketAddr::new(address.parse().ok()?, port))
        })
        .collect()
}

async fn query_udp(server: SocketAddr, message: &[u8], question: &Question) -> io::Result<Vec<u8>> {
    let any: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    // A new source port for each query, and responses from the queried server only.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(message).await?;
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let count = socket.recv(&mut buffer).await?;
        let answer = buffer.get(..count).unwrap_or_default();
        if answer.get(..2) == message.get(..2) && question.is_repeated_in(message, answer) {
            return Ok(answer.to_vec());
        }
    }
}

async fn query_tcp(server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.write_u16(length).await?;
    stream.write_all(message).await?;
    let mut answer = vec![0; usize::from(stream.read_u16().await?)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::json;

    use super::*;

    const QUERY_FOR_WEB: &[u8] =
        b"\x01\x02\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x01n\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01";
    const QUERY_FOR_OTHERS: &[u8] =
        b"\x03\x04\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01";

    #[test]
    fn host_nameservers_are_parsed() {
        let text = "# comment\nsearch a b\nnameserver 127.0.0.53\nnameserver 192.0.2.1#5353\n\
                    nameserver nonsense\nnameserver ::1\n";
        let found: Vec<String> = nameservers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.53:53", "192.0.2.1:5353", "[::1]:53"]);
    }

    #[test]
    fn one_client_leaves_places_for_others() {
        let slots = Slots::new(Limits { all: 3, each: 2 });
        let [one, other, third]: [IpAddr; 3] =
            ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|text| text.parse().unwrap());
        let first = slots.take(one).unwrap();
        let second = slots.take(one).unwrap();
        assert!(slots.take(one).is_none());
        let last = slots.take(other).unwrap();
        assert!(slots.take(third).is_none(), "all are taken");
        drop(first);
        drop(slots.take(third).unwrap());
        drop((second, last));
        assert!(
            slots.taken.lock().is_empty(),
            "only what is open is counted"
        );
    }

    #[tokio::test]
    async fn panic_of_a_query_is_a_failure() {
        let bug = || async { panic!("a bug") };
        let failed = or_failure(bug(), QUERY_FOR_WEB, Transport::Datagram).await;
        let failed = failed.unwrap();
        assert_eq!(failed[..2], QUERY_FOR_WEB[..2], "the id of the query");
        assert_eq!((failed[2] & 0x80, failed[3] & 0x0f), (0x80, 2), "SERVFAIL");
        let unreadable = or_failure(bug(), b"nonsense", Transport::Datagram).await;
        assert_eq!(unreadable, None);
    }

    #[tokio::test]
    async fn open_connection_does_not_outlive_the_stop() {
        let dir = tempfile::tempdir().unwrap();
        let own: Ipv4Addr = [127, 0, 0, 2].into();
        let server = Server::bind_at(own, 0, dir.path().join("resolv.conf"));
        let server = server.await.unwrap();
        let address = server.udp.local_addr().unwrap();
        let names = Names::of(std::iter::empty::<&Service>(), |_| None);
        let stop = CancellationToken::new();
        let running = server.run(Arc::new(RwLock::new(names)), stop.clone());
        let asking = async {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let length = u16::try_from(QUERY_FOR_WEB.len()).unwrap();
            stream.write_u16(length).await.unwrap();
            stream.write_all(QUERY_FOR_WEB).await.unwrap();
            let mut answer = vec![0; stream.read_u16().await.unwrap().into()];
            stream.read_exact(&mut answer).await.unwrap();
            // The server waits for the next query.
            stop.cancel();
            stream
        };
        let both = async { tokio::join!(running, asking) };
        timeout(IDLE_TIMEOUT / 2, both).await.unwrap();
    }

    #[tokio::test]
    async fn cluster_names_are_answered_and_others_forwarded() {
        let dir = tempfile::tempdir().unwrap();
        let upstream = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = upstream.local_addr().unwrap().port();
        let conf = dir.path().join("resolv.conf");
        std::fs::write(&conf, format!("nameserver 127.0.0.1#{port}\n")).unwrap();
        let own: Ipv4Addr = [127, 0, 0, 2].into();
        let server = Server::bind_at(own, 0, conf).await.unwrap();
        let address = server.udp.local_addr().unwrap();
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "n"}, "spec": {"clusterIP": "10.96.0.5"},
        }))
        .unwrap();
        let alias: Service = serde_json::from_value(json!({
            "metadata": {"name": "out", "namespace": "n"},
            "spec": {"type": "ExternalName", "externalName": "there.example"},
        }))
        .unwrap();
        let names = Names::of([&service, &alias].into_iter(), |_| None);
        let stop = CancellationToken::new();
        let running = server.run(Arc::new(RwLock::new(names)), stop.clone());
        let asking = async {
            let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let mut buffer = [0; 512];
            client.send_to(QUERY_FOR_WEB, address).await.unwrap();
            let count = client.recv(&mut buffer).await.unwrap();
            assert_eq!(buffer[count - 4..count], [10, 96, 0, 5]);
            // The upstream server gets the query unchanged, and the client its response.
            client.send_to(QUERY_FOR_OTHERS, address).await.unwrap();
            let mut asked = [0; 512];
            let (count, from) = upstream.recv_from(&mut asked).await.unwrap();
            assert_eq!(&asked[..count], QUERY_FOR_OTHERS);
            upstream.send_to(b"nonsense", from).await.unwrap();
            let mut answer = QUERY_FOR_OTHERS.to_vec();
            answer[2] |= 0x80;
            upstream.send_to(&answer, from).await.unwrap();
            let count = client.recv(&mut buffer).await.unwrap();
            assert_eq!(buffer[..count], answer);
            // The upstream server knows the address behind an alias.
            let query = message::query(9, "out.n.svc.cluster.local").unwrap();
            client.send_to(&query, address).await.unwrap();
            let (count, from) = upstream.recv_from(&mut asked).await.unwrap();
            let question = message::read(&asked[..count]).unwrap();
            assert_eq!(question.name, "there.example");
            let answer = Answer::Records(vec![Record::Address([192, 0, 2, 7].into())]);
            let answer = message::write(&asked[..count], &question, &answer, Transport::Datagram);
            upstream.send_to(&answer, from).await.unwrap();
            let count = client.recv(&mut buffer).await.unwrap();
            assert_eq!(
                message::addresses(&buffer[..count]),
                [Ipv4Addr::new(192, 0, 2, 7)]
            );
            // Two queries over one TCP connection.
            let mut stream = TcpStream::connect(address).await.unwrap();
            for _ in 0..2 {
                let length = u16::try_from(QUERY_FOR_WEB.len()).unwrap();
                stream.write_u16(length).await.unwrap();
                stream.write_all(QUERY_FOR_WEB).await.unwrap();
                let mut answer = vec![0; stream.read_u16().await.unwrap().into()];
                stream.read_exact(&mut answer).await.unwrap();
                assert!(answer.ends_with(&[10, 96, 0, 5]));
            }
            drop(stream);
            stop.cancel();
        };
        let both = async { tokio::join!(running, asking) };
        timeout(Duration::from_secs(20), both).await.unwrap();
    }
}
