//! The DNS server of the pods: names of the cluster from what is known, all others from whom the
//! host asks.
//!
//! **Invariant.** Work is bounded: so many questions at a time, each for so long.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use parking_lot::RwLock;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    message::{self, Answer, Carrier, Question},
    names::Names,
};

const PORT: u16 = 53;
/// Whoever asks more than this at a time asks again.
const QUESTIONS: usize = 256;
/// For one server of the host to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// For somebody connected to ask.
const IDLE: Duration = Duration::from_secs(10);
/// No message over UDP is longer in practice.
const LONGEST: usize = 4096;

/// Sockets that pods may ask.
#[derive(Debug)]
pub(crate) struct Server {
    udp: UdpSocket,
    tcp: TcpListener,
    address: Ipv4Addr,
    /// Read anew for each question: it changes when the host moves.
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
        let places = Arc::new(Semaphore::new(QUESTIONS));
        let resolver = Arc::new(Resolver {
            names,
            address: self.address,
            resolv_conf: self.resolv_conf,
        });
        let udp = Arc::new(self.udp);
        let mut buffer = vec![0; LONGEST];
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                received = udp.recv_from(&mut buffer) => {
                    // An error tells of an answer that nobody took; it is not about us.
                    let Ok((count, from)) = received else { continue };
                    let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                    let message = buffer.get(..count).unwrap_or_default().to_vec();
                    let (resolver, udp) = (Arc::clone(&resolver), Arc::clone(&udp));
                    tasks.spawn(async move {
                        let answer = resolver.answer(&message, Carrier::Datagram).await;
                        if let Some(answer) = answer
                            && let Err(error) = udp.send_to(&answer, from).await
                        {
                            tracing::debug!(%error, "answer to a DNS question is not sent");
                        }
                        drop(place);
                    });
                }
                accepted = self.tcp.accept() => {
                    let Ok((stream, _)) = accepted else { continue };
                    let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                    let resolver = Arc::clone(&resolver);
                    tasks.spawn(async move {
                        if let Err(error) = resolver.serve(stream).await {
                            tracing::debug!(%error, "DNS connection ended");
                        }
                        drop(place);
                    });
                }
            }
        }
        tasks.close();
        // Each question has its own patience.
        tasks.wait().await;
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
            let Ok(length) = timeout(IDLE, stream.read_u16()).await else {
                return Ok(());
            };
            let mut message = vec![0; usize::from(length?)];
            timeout(IDLE, stream.read_exact(&mut message)).await??;
            let Some(answer) = self.answer(&message, Carrier::Stream).await else {
                return Ok(());
            };
            let length = u16::try_from(answer.len()).map_err(io::Error::other)?;
            stream.write_u16(length).await?;
            stream.write_all(&answer).await?;
        }
    }

    /// None for what is no question.
    async fn answer(&self, message: &[u8], carrier: Carrier) -> Option<Vec<u8>> {
        let question = message::read(message)?;
        let known = self.names.read().answer(&question.name, question.kind);
        if let Some(answer) = known {
            return Some(message::write(message, &question, &answer, carrier));
        }
        match self.ask_others(message, &question, carrier).await {
            Some(answer) => Some(answer),
            None => Some(message::write(message, &question, &Answer::Failed, carrier)),
        }
    }

    async fn ask_others(
        &self,
        message: &[u8],
        question: &Question,
        carrier: Carrier,
    ) -> Option<Vec<u8>> {
        let text = tokio::fs::read_to_string(&self.resolv_conf).await;
        for server in nameservers(&text.unwrap_or_default()) {
            if server.ip() == IpAddr::V4(self.address) {
                continue;
            }
            let asked = async {
                match carrier {
                    Carrier::Datagram => by_datagram(server, message, question).await,
                    Carrier::Stream => by_stream(server, message).await,
                }
            };
            match timeout(PATIENCE, asked).await {
                Ok(Ok(answer)) => return Some(answer),
                Ok(Err(error)) => tracing::debug!(%server, %error, "DNS server does not answer"),
                Err(_) => tracing::debug!(%server, "DNS server does not answer in time"),
            }
        }
        None
    }
}

/// The servers in the file of the host, in their order. A port may follow after a `#`.
fn nameservers(text: &str) -> Vec<SocketAddr> {
    let words = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"));
    words
        .filter_map(|rest| {
            let word = rest.split_whitespace().next()?;
            let (address, port) = match word.split_once('#') {
                Some((address, port)) => (address, port.parse().ok()?),
                None => (word, PORT),
            };
            Some(SocketAddr::new(address.parse().ok()?, port))
        })
        .collect()
}

async fn by_datagram(
    server: SocketAddr,
    message: &[u8],
    question: &Question,
) -> io::Result<Vec<u8>> {
    let any: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    // A port of its own for each question, and answers from whom was asked alone.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(message).await?;
    let mut buffer = vec![0; LONGEST];
    loop {
        let count = socket.recv(&mut buffer).await?;
        let answer = buffer.get(..count).unwrap_or_default();
        if answer.get(..2) == message.get(..2) && question.is_repeated_in(message, answer) {
            return Ok(answer.to_vec());
        }
    }
}

async fn by_stream(server: SocketAddr, message: &[u8]) -> io::Result<Vec<u8>> {
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

    const QUESTION_FOR_WEB: &[u8] =
        b"\x01\x02\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x01n\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01";
    const QUESTION_FOR_OTHERS: &[u8] =
        b"\x03\x04\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07example\x03com\x00\x00\x01\x00\x01";

    #[test]
    fn servers_of_the_host_are_read() {
        let text = "# comment\nsearch a b\nnameserver 127.0.0.53\nnameserver 192.0.2.1#5353\n\
                    nameserver nonsense\nnameserver ::1\n";
        let found: Vec<String> = nameservers(text).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["127.0.0.53:53", "192.0.2.1:5353", "[::1]:53"]);
    }

    #[tokio::test]
    async fn own_names_are_answered_and_others_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = elsewhere.local_addr().unwrap().port();
        let conf = dir.path().join("resolv.conf");
        std::fs::write(&conf, format!("nameserver 127.0.0.1#{port}\n")).unwrap();
        let own: Ipv4Addr = [127, 0, 0, 2].into();
        let server = Server::bind_at(own, 0, conf).await.unwrap();
        let address = server.udp.local_addr().unwrap();
        let service: Service = serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "n"}, "spec": {"clusterIP": "10.96.0.5"},
        }))
        .unwrap();
        let names = Names::of([&service].into_iter(), |_| None);
        let stop = CancellationToken::new();
        let running = server.run(Arc::new(RwLock::new(names)), stop.clone());
        let asking = async {
            let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let mut buffer = [0; 512];
            client.send_to(QUESTION_FOR_WEB, address).await.unwrap();
            let count = client.recv(&mut buffer).await.unwrap();
            assert_eq!(buffer[count - 4..count], [10, 96, 0, 5]);
            // The other server gets the question as it is, and we its answer.
            client.send_to(QUESTION_FOR_OTHERS, address).await.unwrap();
            let mut asked = [0; 512];
            let (count, from) = elsewhere.recv_from(&mut asked).await.unwrap();
            assert_eq!(&asked[..count], QUESTION_FOR_OTHERS);
            elsewhere.send_to(b"nonsense", from).await.unwrap();
            let mut answer = QUESTION_FOR_OTHERS.to_vec();
            answer[2] |= 0x80;
            elsewhere.send_to(&answer, from).await.unwrap();
            let count = client.recv(&mut buffer).await.unwrap();
            assert_eq!(buffer[..count], answer);
            // Over a connection, twice.
            let mut stream = TcpStream::connect(address).await.unwrap();
            for _ in 0..2 {
                let length = u16::try_from(QUESTION_FOR_WEB.len()).unwrap();
                stream.write_u16(length).await.unwrap();
                stream.write_all(QUESTION_FOR_WEB).await.unwrap();
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
