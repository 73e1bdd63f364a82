//! What policies come to, in tables.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr},
};

use k8s_openapi::api::{
    core::v1::{Namespace, Pod},
    networking::v1::NetworkPolicy,
};
use pod_network::{Allowed, Connections, Transport};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    own_address,
    plan::{Member, Planned, plan},
};

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn pod(namespace: &str, app: &str, last: u8) -> Pod {
    read(json!({
        "metadata": {"namespace": namespace, "uid": format!("{namespace}-{app}"), "labels": {"app": app}},
        "spec": {"containers": [{"name": "a", "ports": [
            {"name": "web", "containerPort": 8000 + u32::from(last)},
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        ]}]},
        "status": {"podIP": format!("10.244.0.{last}"), "phase": "Running"},
    }))
}

/// Three pods in namespace `a`, of which `web` is 2, `db` 3 and `job` 4, and `web` of namespace `b` is 5.
fn pods() -> Vec<Pod> {
    vec![
        pod("a", "web", 2),
        pod("a", "db", 3),
        pod("a", "job", 4),
        pod("b", "web", 5),
    ]
}

fn planned(pods: &[Pod], policies: &[Value]) -> Planned {
    let policies: Vec<NetworkPolicy> = policies
        .iter()
        .map(|spec| read(json!({"metadata": {"namespace": "a", "name": "p"}, "spec": spec})))
        .collect();
    let namespaces: Vec<Namespace> = ["a", "b"]
        .iter()
        .map(|name| read(json!({"metadata": {"name": name, "labels": {"team": name}}})))
        .collect();
    let none = HashMap::new();
    let members: Vec<Member<'_>> = pods
        .iter()
        .filter_map(|pod| Member::of(pod, &none))
        .collect();
    plan(
        &policies.iter().collect::<Vec<_>>(),
        &namespaces.iter().collect::<Vec<_>>(),
        &members,
    )
}

fn shown(connections: &Connections) -> String {
    let one = |allowed: &Allowed| {
        let peer = allowed.peer.map_or("all".to_owned(), |range| {
            let range = range.to_string();
            range.strip_suffix("/32").unwrap_or(&range).to_owned()
        });
        let ports = allowed.ports.map_or(String::new(), |ports| {
            let name = match ports.protocol {
                Transport::Tcp => "tcp",
                Transport::Udp => "udp",
                Transport::Sctp => "sctp",
            };
            format!(" {name} {}-{}", ports.first, ports.last)
        });
        peer + &ports
    };
    match connections {
        Connections::Free => "free".to_owned(),
        Connections::Only(allowed) => allowed.iter().map(one).collect::<Vec<_>>().join("; "),
    }
}

/// What pod 3, `db` of namespace `a`, may accept and open.
fn of_db(policies: &[Value]) -> (String, String) {
    let planned = planned(&pods(), policies);
    let db = Ipv4Addr::new(10, 244, 0, 3);
    let mut found = planned.restrictions.iter().filter(|one| one.pod == db);
    let found = found.next().unwrap();
    (shown(&found.ingress), shown(&found.egress))
}

#[test]
fn rules_name_pods_namespaces_blocks_and_ports() {
    let both = json!(["Ingress", "Egress"]);
    let db = json!({"matchLabels": {"app": "db"}});
    let web = json!({"matchLabels": {"app": "web"}});
    let team = |name: &str| json!({"matchLabels": {"team": name}});
    for (ingress, expected) in [
        (json!([]), ""),
        (json!([{}]), "all"),
        (json!([{"from": []}]), "all"),
        (json!([{"from": [{"podSelector": web}]}]), "10.244.0.2"),
        (
            json!([{"from": [{"namespaceSelector": {}, "podSelector": web}]}]),
            "10.244.0.2; 10.244.0.5",
        ),
        (
            json!([{"from": [{"namespaceSelector": team("b")}]}]),
            "10.244.0.5",
        ),
        (json!([{"from": [{"namespaceSelector": team("c")}]}]), ""),
        (
            json!([{"from": [{"ipBlock": {"cidr": "192.0.2.0/24", "except": ["192.0.2.8/30"]}}]}]),
            "192.0.2.0/29; 192.0.2.12/30; 192.0.2.16/28; 192.0.2.32/27; 192.0.2.64/26; \
             192.0.2.128/25",
        ),
        (
            json!([{"from": [{"ipBlock": {"cidr": "192.0.2.0/30", "except": ["192.0.2.0/30"]}}]}]),
            "",
        ),
        (
            json!([{"from": [{"ipBlock": {"cidr": "2001:db8::/32"}}]}]),
            "",
        ),
        (
            json!([{"ports": [{"port": 80}, {"port": 53, "endPort": 60, "protocol": "UDP"}]}]),
            "all tcp 80-80; all udp 53-60",
        ),
        (
            json!([{"ports": [{"protocol": "SCTP"}]}]),
            "all sctp 0-65535",
        ),
        // Names are those of the pod that accepts the connection.
        (
            json!([{"from": [{"podSelector": web}], "ports": [{"port": "web"}]}]),
            "10.244.0.2 tcp 8003-8003",
        ),
        (json!([{"ports": [{"port": "dns"}]}]), ""),
        (
            json!([{"ports": [{"port": "dns", "protocol": "UDP"}]}]),
            "all udp 53-53",
        ),
    ] {
        let policy = json!({"podSelector": db, "policyTypes": ["Ingress"], "ingress": ingress});
        let found = of_db(&[policy]);
        assert_eq!(found, (expected.to_owned(), "free".to_owned()), "{ingress}");
    }
    for (egress, expected) in [
        (json!([]), ""),
        (
            json!([{"to": [{"podSelector": web}], "ports": [{"port": "web"}]}]),
            "10.244.0.2 tcp 8002-8002",
        ),
        (
            json!([{"ports": [{"port": "web"}]}]),
            "10.244.0.2 tcp 8002-8002; 10.244.0.3 tcp 8003-8003; 10.244.0.4 tcp 8004-8004; \
             10.244.0.5 tcp 8005-8005",
        ),
    ] {
        let policy = json!({"podSelector": {}, "policyTypes": both, "egress": egress});
        assert_eq!(
            of_db(&[policy]),
            (String::new(), expected.to_owned()),
            "{egress}"
        );
    }
}

#[test]
fn policies_add_up_and_end_at_their_namespace() {
    let all = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
    let from = |app: &str| {
        let peer = json!({"podSelector": {"matchLabels": {"app": app}}});
        json!({"podSelector": {"matchLabels": {"app": "db"}}, "policyTypes": ["Ingress"],
               "ingress": [{"from": [peer]}]})
    };
    let policies = [all, from("web"), from("job")];
    let (ingress, egress) = of_db(&policies);
    assert_eq!(
        (ingress.as_str(), egress.as_str()),
        ("10.244.0.2; 10.244.0.4", "free")
    );
    let planned = planned(&pods(), &policies);
    let last = |restriction: &pod_network::Restriction| restriction.pod.octets()[3];
    let restricted: Vec<u8> = planned.restrictions.iter().map(last).collect();
    assert_eq!(restricted, [2, 3, 4]);
}

#[test]
fn only_pods_with_an_address_of_their_own_take_part() {
    let none = HashMap::new();
    let mut ended = pod("a", "web", 2);
    ended.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
    assert!(Member::of(&ended, &none).is_none());
    let mut on_host = pod("a", "web", 2);
    on_host.spec.as_mut().unwrap().host_network = Some(true);
    assert!(Member::of(&on_host, &none).is_none());
    let mut elsewhere = pod("a", "web", 2);
    let default = (
        "v1.multus-cni.io/default-network".to_owned(),
        "n".to_owned(),
    );
    elsewhere.metadata.annotations = Some([default].into());
    assert!(Member::of(&elsewhere, &none).is_none());
    let address = [IpAddr::from([10, 244, 0, 2])];
    assert_eq!(own_address(&elsewhere, &address), None);
    // A new pod has the address that an old one had.
    let old = pod("a", "web", 2);
    let mut new = pod("b", "web", 0);
    new.status = None;
    assert!(Member::of(&new, &none).is_none());
    let leased = HashMap::from([("b-web".to_owned(), Ipv4Addr::new(10, 244, 0, 2))]);
    assert!(Member::of(&old, &leased).is_none());
    assert!(Member::of(&new, &leased).is_some());
}

#[test]
fn namespace_with_too_many_rules_gets_no_connections() {
    let ports: Vec<Value> = (1..=9000).map(|port| json!({"port": port})).collect();
    let peers = vec![json!({"podSelector": {}, "namespaceSelector": {}}); 9000];
    let except: Vec<String> = (0..9000_u32)
        .map(|at| format!("{}/32", Ipv4Addr::from_bits(at * 128)))
        .collect();
    let block = json!({"ipBlock": {"cidr": "0.0.0.0/0", "except": except}});
    for rule in [
        json!({"ports": ports}),
        json!({"from": peers, "ports": ports}),
        json!({"from": peers}),
        json!({"from": [block]}),
    ] {
        let policy = json!({"podSelector": {"matchLabels": {"app": "db"}},
                            "policyTypes": ["Ingress"], "ingress": [rule]});
        let found = planned(&pods(), &[policy]);
        assert!(found.too_large.contains("a"));
        let [only] = found.restrictions.as_slice() else {
            panic!("{} pods are restricted", found.restrictions.len());
        };
        assert_eq!(only.ingress, Connections::Only(Vec::new()));
        assert_eq!(only.egress, Connections::Only(Vec::new()));
    }
}

#[test]
fn large_namespaces_take_nothing_from_small_ones() {
    let names: Vec<String> = (0..6).map(|at| format!("n{at}")).collect();
    let pods: Vec<Pod> = names
        .iter()
        .zip(2..)
        .map(|(name, last)| pod(name, "web", last))
        .collect();
    let of = |name: &String, count: u16| -> NetworkPolicy {
        let ports: Vec<Value> = (1..=count).map(|port| json!({"port": port})).collect();
        read(json!({"metadata": {"namespace": name, "name": "p"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{"ports": ports}]}}))
    };
    let mut policies: Vec<NetworkPolicy> =
        names.iter().skip(1).map(|name| of(name, 8000)).collect();
    policies.push(of(&names[0], 10));
    let none = HashMap::new();
    let members: Vec<Member<'_>> = pods
        .iter()
        .filter_map(|pod| Member::of(pod, &none))
        .collect();
    let found = plan(&policies.iter().collect::<Vec<_>>(), &[], &members);
    assert_eq!(found.too_large.iter().collect::<Vec<_>>(), ["n5"]);
    assert_eq!(found.restrictions.len(), 6);
    let Connections::Only(of_small) = &found.restrictions[0].ingress else {
        panic!("{:?}", found.restrictions[0]);
    };
    assert_eq!(of_small.len(), 10);
}
