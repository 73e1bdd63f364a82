//! A tunnel to the export server through the API server, for computers that cannot reach its address.
//!
//! Each connection is a port forward to the server's pod. The server still proves its name: TLS runs inside
//! of the tunnel.

use std::{
    io,
    pin::Pin,
    task::{Context as TaskContext, Poll},
};

use anyhow::{Context, Result, bail};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::{
    connect::Cluster,
    objects::{self, text},
    subresource::plain,
};

/// A port of the export server's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tunnel {
    pod: String,
    port: u16,
}

impl Tunnel {
    /// The tunnel to the server of this export.
    pub(super) async fn to(cluster: &Cluster, export: &Value) -> Result<Self> {
        let namespace = &cluster.namespace;
        let service = text(export, "/status/serviceName");
        let service = service.context("find the export server: the export names no service")?;
        let service = objects::get(cluster, &objects::SERVICE.named(namespace, service)).await?;
        let selector = selector(&service);
        let path = format!("{}?labelSelector={selector}", objects::POD.all(namespace));
        let pods = objects::list(cluster, &path).await?;
        Self::of(&service, &pods)
    }

    /// The running pod behind the service, and the port there.
    fn of(service: &Value, pods: &[Value]) -> Result<Self> {
        let runs = |pod: &&Value| text(pod, "/status/phase") == Some("Running");
        let Some(pod) = pods.iter().find(runs) else {
            bail!("no pod of the export server runs");
        };
        let name = text(pod, "/metadata/name").context("read the name of the pod")?;
        let port = service
            .pointer("/spec/ports/0")
            .context("the export's service has no port")?;
        let target = match &port["targetPort"] {
            Value::Null => &port["port"],
            target => target,
        };
        let number = match target.as_str() {
            Some(named) => named_port(pod, named),
            None => target.as_u64(),
        };
        let port = number.and_then(|port| u16::try_from(port).ok());
        Ok(Self {
            pod: name.to_owned(),
            port: port.context("find the port of the export server")?,
        })
    }

    /// Opens a connection.
    pub(super) async fn open(self, cluster: Cluster) -> Result<TokioIo<Tunnelled>> {
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &cluster.namespace);
        let forwarded = pods
            .portforward(&self.pod, &[self.port])
            .await
            .map_err(plain);
        let mut forwarded =
            forwarded.with_context(|| format!("forward port {} of pod {}", self.port, self.pod))?;
        let stream = forwarded
            .take_stream(self.port)
            .context("open the forwarded port")?;
        Ok(TokioIo::new(Tunnelled(stream)))
    }
}

fn selector(service: &Value) -> String {
    let labels = service["spec"]["selector"]
        .as_object()
        .into_iter()
        .flatten();
    let labels = labels.filter_map(|(key, value)| Some(format!("{key}%3D{}", value.as_str()?)));
    labels.collect::<Vec<_>>().join("%2C").replace('/', "%2F")
}

fn named_port(pod: &Value, name: &str) -> Option<u64> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let ports = containers
        .filter_map(|container| container["ports"].as_array())
        .flatten();
    let mut ports = ports.filter(|port| text(port, "/name") == Some(name));
    ports.next()?["containerPort"].as_u64()
}

/// A connection for hyper.
#[derive(Debug)]
pub(super) struct Tunnelled(DuplexStream);

impl Connection for Tunnelled {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Tunnelled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Tunnelled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut TaskContext<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::{SinkExt, StreamExt};
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio_tungstenite::tungstenite::Message;

    use super::*;
    use crate::{
        commands::vm_export::download::Server, https::Trust, proxy::Proxies, streams_server,
    };

    /// Forwards one port of a pod, and answers the one HTTP request there.
    async fn pod_of_server(listener: TcpListener) -> (String, String) {
        let (mut stream, path) = streams_server::accept(&listener, "v4.channel.k8s.io").await;
        // Both channels begin with the number of the port.
        for channel in [0, 1] {
            let [low, high] = 8443_u16.to_le_bytes();
            stream
                .send(Message::binary(vec![channel, low, high]))
                .await
                .unwrap();
        }
        let mut request = String::new();
        while !request.ends_with("\r\n\r\n") {
            if let Message::Binary(bytes) = stream.next().await.unwrap().unwrap()
                && let Some((0, text)) = bytes.split_first()
            {
                request.push_str(std::str::from_utf8(text).unwrap());
            }
        }
        let answer = b"\0HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nkind: VM";
        stream.send(Message::binary(answer.to_vec())).await.unwrap();
        stream.close(None).await.unwrap();
        (path, request)
    }

    #[tokio::test]
    async fn download_goes_through_the_pod() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let client = kube::Client::try_from(kube::Config::new(api.parse().unwrap())).unwrap();
        let cluster = Cluster {
            client,
            namespace: "tests".to_owned(),
            proxies: Proxies::default(),
        };
        let tunnel = Tunnel {
            pod: "virt-export-copy".to_owned(),
            port: 8443,
        };
        let server = Server {
            trust: Trust::default(),
            token: "secret".to_owned(),
            tunnel: Some((cluster, tunnel)),
            proxies: Proxies::default(),
        };
        let url = "http://virt-export-copy.tests.svc/manifest";
        let (text, (path, request)) = tokio::join!(
            server.text(url, "application/yaml"),
            pod_of_server(listener)
        );
        assert_eq!(text.unwrap(), "kind: VM");
        let start = "/api/v1/namespaces/tests/pods/virt-export-copy/portforward?";
        assert!(
            path.starts_with(start) && path.contains("ports=8443"),
            "{path}"
        );
        assert!(
            request.starts_with("GET /manifest HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(
            request.contains("host: virt-export-copy.tests.svc\r\n"),
            "{request}"
        );
    }

    fn pod(name: &str, phase: &str) -> Value {
        let ports =
            json!([{"name": "web", "containerPort": 1}, {"name": "https", "containerPort": 8443}]);
        json!({
            "metadata": {"name": name},
            "spec": {"containers": [{}, {"ports": ports}]},
            "status": {"phase": phase},
        })
    }

    #[test]
    fn tunnel_leads_to_the_running_pod_of_the_service() {
        let pods = [pod("old", "Succeeded"), pod("new", "Running")];
        let service = |port: Value| json!({"spec": {"ports": [port]}});
        for (port, expected) in [
            (json!({"port": 443}), Some(443)),
            (json!({"port": 443, "targetPort": 8443}), Some(8443)),
            (json!({"port": 443, "targetPort": "https"}), Some(8443)),
            (json!({"port": 443, "targetPort": "none"}), None),
            (json!({"port": 70_000}), None),
        ] {
            let tunnel = Tunnel::of(&service(port.clone()), &pods).ok();
            let expected = expected.map(|port| Tunnel {
                pod: "new".to_owned(),
                port,
            });
            assert_eq!(tunnel, expected, "{port}");
        }
        let service = service(json!({"port": 443}));
        let error = Tunnel::of(&service, pods.get(..1).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "no pod of the export server runs");
    }

    #[test]
    fn selector_is_part_of_an_address() {
        let service = json!({"spec": {"selector": {"kubevirt.io/export": "a", "b": "c"}}});
        assert_eq!(selector(&service), "kubevirt.io%2Fexport%3Da%2Cb%3Dc");
    }
}
