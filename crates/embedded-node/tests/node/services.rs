//! Services: addresses, endpoints, packet forwarding and names.

use std::{
    net::{Ipv4Addr, UdpSocket},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use embedded_node::{Addresses, Failure, Network, SecondaryInterface, ServiceOffer};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Endpoints, Service};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
    runtime::wait::await_condition,
};
use parking_lot::Mutex;
use pod_network::{Attachment, Forward, Front, ServiceRange};
use serde_json::{Value, json};

use super::{Environment, NoNetwork, TIMEOUT};

/// No network, but records the forwarding rules.
#[derive(Debug)]
struct RecordingNetwork {
    dns: Ipv4Addr,
    forwards: Mutex<Vec<Forward>>,
}

impl RecordingNetwork {
    fn new() -> Arc<Self> {
        static NEXT: AtomicU8 = AtomicU8::new(1);
        let [low, high, ..] = std::process::id().to_le_bytes();
        let last = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self {
            dns: Ipv4Addr::new(127, high | 0x80, low, last),
            forwards: Mutex::default(),
        })
    }

    fn forwards(&self) -> Vec<Forward> {
        self.forwards.lock().clone()
    }
}

impl Network for RecordingNetwork {
    fn add<'a>(
        &'a self,
        uid: &'a str,
        namespace: &'a Path,
    ) -> BoxFuture<'a, Result<Addresses, Failure>> {
        NoNetwork.add(uid, namespace)
    }

    fn attach<'a>(
        &'a self,
        namespace: &'a Path,
        attachment: Attachment,
    ) -> BoxFuture<'a, Result<SecondaryInterface, Failure>> {
        NoNetwork.attach(namespace, attachment)
    }

    fn delete<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn services(&self) -> Option<ServiceOffer> {
        Some(ServiceOffer {
            range: ServiceRange {
                first: [10, 96, 0, 1].into(),
                count: 254,
            },
            dns: self.dns,
        })
    }

    fn forward(&self, forwards: Vec<Forward>) -> BoxFuture<'_, Result<(), Failure>> {
        *self.forwards.lock() = forwards;
        Box::pin(async { Ok(()) })
    }
}

impl Environment {
    fn service(&self, name: &str, spec: &Value) -> Service {
        let service = json!({"metadata": {"name": name}, "spec": spec});
        let service = serde_json::from_value(service).unwrap();
        let api = Api::<Service>::default_namespaced(self.client.clone());
        self.wait(api.create(&PostParams::default(), &service))
            .unwrap()
    }

    fn wait_service(&self, name: &str) -> Ipv4Addr {
        let api = Api::<Service>::default_namespaced(self.client.clone());
        let address = |service: Option<&Service>| -> Option<Ipv4Addr> {
            service?.spec.as_ref()?.cluster_ip.as_ref()?.parse().ok()
        };
        let found = self.wait(await_condition(api, name, |one: Option<&Service>| {
            address(one).is_some()
        }));
        address(found.unwrap().as_ref()).unwrap()
    }

    fn wait_endpoints(&self, name: &str, expected: &str, done: impl Fn(&Value) -> bool) {
        let api = Api::<Endpoints>::default_namespaced(self.client.clone());
        let condition = |one: Option<&Endpoints>| done(&serde_json::to_value(one).unwrap());
        let found = self.wait(await_condition(api, name, condition));
        assert!(found.is_ok(), "no {expected}");
    }
}

/// Resolves a name.
fn look_up(server: Ipv4Addr, name: &str) -> Vec<Ipv4Addr> {
    let mut question = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00".to_vec();
    for label in name.split('.') {
        question.push(u8::try_from(label.len()).unwrap());
        question.extend(label.as_bytes());
    }
    question.extend(b"\x00\x00\x01\x00\x01");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.send_to(&question, (server, 53)).unwrap();
    let mut answer = [0; 512];
    let count = socket.recv(&mut answer).unwrap();
    let records = answer[question.len()..count].chunks(16);
    records
        .map(|record| <[u8; 4]>::try_from(&record[12..]).unwrap().into())
        .collect()
}

#[test]
fn service_gets_address_endpoints_and_name() {
    let network = RecordingNetwork::new();
    let env = Environment::with_network("services", Arc::clone(&network) as Arc<dyn Network>);
    env.service(
        "web",
        &json!({
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}],
        }),
    );
    env.service(
        "each",
        &json!({"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 81}]}),
    );
    let address = env.wait_service("web");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "one", "labels": {"app": "web"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": "busybox:1",
                "command": ["sh", "-c", "cat /etc/resolv.conf; sleep 1000"],
                "ports": [{"name": "web", "containerPort": 8080}],
            }],
        },
    });
    let pod = serde_json::from_value(pod).unwrap();
    env.wait(env.pods().create(&PostParams::default(), &pod))
        .unwrap();
    env.wait_endpoints("web", "endpoint", |endpoints| {
        endpoints["subsets"][0]["addresses"][0]["ip"] == "10.9.8.7"
            && endpoints["subsets"][0]["ports"][0]["port"] == 8080
    });
    let targets = || {
        let all = network.forwards();
        all.into_iter()
            .map(|one| (one.front, one.port, one.targets))
            .collect::<Vec<_>>()
    };
    let front = Front::Service(address);
    let expected = vec![(front, 80, vec!["10.9.8.7:8080".parse().unwrap()])];
    env.until("forwarded", || targets() == expected);
    let of = |name: &str| look_up(network.dns, &format!("{name}.default.svc.cluster.local"));
    assert_eq!(of("web"), [address]);
    env.until("resolved", || of("each") == [Ipv4Addr::new(10, 9, 8, 7)]);
    env.until("configured with the DNS server", || {
        let log = env.log("/containerLogs/default/one/main").1;
        log.contains(&format!("nameserver {}\n", network.dns))
            && log.contains("search default.svc.cluster.local svc.cluster.local cluster.local")
    });
    env.script("two", "echo $WEB_SERVICE_HOST:$WEB_SERVICE_PORT", "Never");
    env.wait_phase("two", "Succeeded");
    let log = env.log("/containerLogs/default/two/main").1;
    assert_eq!(log, format!("{address}:80\n"));
    // Another service gets another address; one without a selector keeps its own endpoints.
    env.service("other", &json!({"ports": [{"port": 80}]}));
    assert_ne!(env.wait_service("other"), address);
    env.delete_and_wait("one");
    env.wait_endpoints("web", "end", |endpoints| {
        endpoints["subsets"].as_array().is_none_or(Vec::is_empty)
    });
    let services = Api::<Service>::default_namespaced(env.client.clone());
    env.wait(services.delete("web", &DeleteParams::default()))
        .unwrap();
    env.until("removed from DNS", || of("web").is_empty());
    env.wait_endpoints("web", "removal", Value::is_null);
}
