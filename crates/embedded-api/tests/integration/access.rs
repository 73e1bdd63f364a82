//! Authentication and authorization: roles, reviews, tokens, impersonation.

use std::task::Poll;

use crate::support::*;
use embedded_api::Identity;
use http::{Method, StatusCode};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const TOKEN: &str = "/api/v1/namespaces/default/serviceaccounts/default/token";
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

fn user(name: &str) -> Identity {
    Identity::new(name, &[])
}

fn role(name: &str, rules: &Value) -> Value {
    json!({"metadata": {"name": name}, "rules": rules})
}

fn rule(verbs: &[&str], resources: &[&str]) -> Value {
    json!({"verbs": verbs, "apiGroups": [""], "resources": resources})
}

fn binding(name: &str, role: &str, subject: &Value) -> Value {
    let (kind, role) = role.split_once('/').expect("kind/name");
    json!({"metadata": {"name": name}, "roleRef": {"kind": kind, "name": role},
           "subjects": [subject]})
}

fn named(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

async fn bind_reader(api: &Running) {
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let rules = json!([rule(&["get", "list"], &["pods"]),
                       {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"],
                        "resourceNames": ["one"]}]);
    api.create(&roles, role("reader", &rules)).await;
    api.create(&bindings, binding("reader", "Role/reader", &named("ann")))
        .await;
}

#[tokio::test]
async fn requests_without_a_matching_rule_are_forbidden() {
    let api = start().await;
    bind_reader(&api).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    for (method, uri, code) in [
        (Method::GET, PODS.to_owned(), 200),
        (Method::GET, format!("{PODS}/x"), 404),
        (Method::DELETE, format!("{PODS}/x"), 403),
        (Method::GET, format!("{PODS}/x/log"), 403),
        (Method::GET, format!("{PODS}?watch=1"), 403),
        (
            Method::GET,
            "/api/v1/namespaces/kube-system/pods".to_owned(),
            403,
        ),
        (Method::GET, "/api/v1/pods".to_owned(), 403),
        (Method::GET, format!("{maps}/one"), 404),
        (Method::GET, format!("{maps}/two"), 403),
        (Method::GET, maps.to_owned(), 403),
        (Method::GET, "/apis".to_owned(), 200),
        (Method::GET, "/metrics".to_owned(), 403),
        (
            Method::GET,
            "/apis/nothing.example.com/v1/things".to_owned(),
            403,
        ),
    ] {
        let (found, body) = api
            .as_user(&user("ann"), method.clone(), &uri, Value::Null)
            .await;
        assert_eq!(found.as_u16(), code, "{method} {uri}: {body}");
    }
}

#[tokio::test]
async fn refusals_name_user_verb_resource_and_scope() {
    let api = start().await;
    for (method, uri, message) in [
        (
            Method::DELETE,
            format!("{PODS}/x"),
            "pods \"x\" is forbidden: User \"ann\" cannot delete resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        (
            Method::GET,
            "/apis/kubevirt.io/v1/virtualmachines".to_owned(),
            "virtualmachines.kubevirt.io is forbidden: User \"ann\" cannot list resource \"virtualmachines\" in API group \"kubevirt.io\" at the cluster scope",
        ),
        (
            Method::GET,
            "/metrics".to_owned(),
            "forbidden: User \"ann\" cannot get path \"/metrics\"",
        ),
    ] {
        let (code, body) = api.as_user(&user("ann"), method, &uri, Value::Null).await;
        assert_eq!(code, StatusCode::FORBIDDEN);
        assert_eq!(body["message"], message);
        assert_eq!(body["reason"], "Forbidden");
    }
}

#[tokio::test]
async fn binding_to_a_missing_role_is_reported() {
    let api = start().await;
    let bindings = format!("{RBAC}/clusterrolebindings");
    api.create(&bindings, binding("b", "ClusterRole/lost", &named("ann")))
        .await;
    let (_, body) = api
        .as_user(&user("ann"), Method::GET, PODS, Value::Null)
        .await;
    let message = body["message"].as_str().unwrap_or_default();
    let expected = "RBAC: clusterrole.rbac.authorization.k8s.io \"lost\" not found";
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test]
async fn permissions_end_with_their_binding() {
    let api = start().await;
    bind_reader(&api).await;
    let read = async || {
        api.as_user(&user("ann"), Method::GET, PODS, Value::Null)
            .await
            .0
    };
    assert_eq!(read().await, StatusCode::OK);
    api.delete(&format!("{RBAC}/namespaces/default/rolebindings/reader"))
        .await;
    assert_eq!(read().await, StatusCode::FORBIDDEN);
}

/// The client may go away at any point of its request.
#[tokio::test]
async fn permissions_end_with_their_binding_even_if_nobody_waits_for_the_answer() {
    let api = start().await;
    bind_reader(&api).await;
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let uri = format!("{bindings}/reader");
    let ann = user("ann");
    let read = async || api.as_user(&ann, Method::GET, PODS, Value::Null).await.0;
    for polls in 1.. {
        assert_eq!(read().await, StatusCode::OK, "{polls}");
        let mut deletion = Box::pin(api.call(Method::DELETE, &uri, Value::Null));
        let mut left = polls;
        let has_ended = std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(false);
            }
            left -= 1;
            deletion.as_mut().poll(context).map(|_| true)
        })
        .await;
        drop(deletion);
        // Writes are stored in their order, so the deletion is stored by now or never.
        let map = json!({"metadata": {"generateName": "later-"}});
        api.create("/api/v1/namespaces/default/configmaps", map)
            .await;
        let (found, _) = api.call(Method::GET, &uri, Value::Null).await;
        if found == StatusCode::NOT_FOUND {
            let refused = async {
                while read().await != StatusCode::FORBIDDEN {
                    tokio::task::yield_now().await;
                }
            };
            let limit = std::time::Duration::from_mins(1);
            let refused = tokio::time::timeout(limit, refused).await;
            assert!(refused.is_ok(), "still permitted after {polls} polls");
            api.create(&bindings, binding("reader", "Role/reader", &named("ann")))
                .await;
        }
        if has_ended {
            break;
        }
    }
}

#[tokio::test]
async fn privilege_escalation_is_rejected() {
    let api = start().await;
    bind_reader(&api).await;
    // Without `escalate` and `bind`.
    let manage = json!([{"verbs": ["create", "update", "patch", "get"],
                         "apiGroups": ["rbac.authorization.k8s.io"],
                         "resources": ["roles", "rolebindings"]}]);
    let cluster_roles = format!("{RBAC}/clusterroles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let roles = format!("{RBAC}/namespaces/default/roles");
    api.create(&cluster_roles, role("manage", &manage)).await;
    api.create(&bindings, binding("m", "ClusterRole/manage", &named("ann")))
        .await;
    let ann = user("ann");
    for (uri, object, code) in [
        (&roles, role("a", &json!([rule(&["get"], &["pods"])])), 201),
        (
            &roles,
            role("b", &json!([rule(&["get"], &["secrets"])])),
            403,
        ),
        (&bindings, binding("c", "Role/reader", &named("bob")), 201),
        (
            &bindings,
            binding("d", "ClusterRole/cluster-admin", &named("ann")),
            403,
        ),
        (&bindings, binding("e", "Role/missing", &named("ann")), 404),
    ] {
        let (found, body) = api.as_user(&ann, Method::POST, uri, object).await;
        assert_eq!(found.as_u16(), code, "{body}");
    }
    let (_, body) = api
        .as_user(
            &ann,
            Method::POST,
            &roles,
            role("b", &json!([rule(&["get"], &["secrets"])])),
        )
        .await;
    assert_eq!(
        body["message"],
        "roles.rbac.authorization.k8s.io \"b\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}"
    );
    // Nor does a label, which may make a role part of another one.
    let mut strong = role("strong", &json!([rule(&["get"], &["secrets"])]));
    strong["metadata"]["finalizers"] = json!(["example.com/a"]);
    api.create(&roles, strong).await;
    for (change, code) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), 403),
        (json!({"metadata": {"finalizers": null}}), 200),
    ] {
        let uri = format!("{roles}/strong");
        let language = "application/merge-patch+json";
        let (found, body) = api.patch_as(&ann, &uri, language, change).await;
        assert_eq!(found.as_u16(), code, "{body}");
    }
    // A patch does not circumvent the check.
    let more = json!({"rules": [rule(&["get"], &["secrets"])]});
    let (code, _) = api
        .patch_as(
            &ann,
            &format!("{roles}/a"),
            "application/merge-patch+json",
            more,
        )
        .await;
    assert_eq!(code, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn roles_are_aggregated_by_label() {
    let api = start().await;
    let labels = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    let mut part = role("part", &json!([rule(&["get"], &["widgets"])]));
    part["metadata"]["labels"] = labels;
    api.create(&format!("{RBAC}/clusterroles"), part).await;
    let uri = format!("{RBAC}/clusterroles/admin");
    let has = |role: &Value| {
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        rules.contains(&rule(&["get"], &["widgets"]))
    };
    api.until(&uri, has).await;
    api.delete(&format!("{RBAC}/clusterroles/part")).await;
    api.until(&uri, |role| !has(role)).await;
}

#[tokio::test]
async fn reviews_follow_the_same_rules() {
    let api = start().await;
    bind_reader(&api).await;
    let get = |resource: &str| {
        json!({"spec": {"resourceAttributes":
            {"namespace": "default", "verb": "get", "resource": resource}}})
    };
    let own = format!("{REVIEWS}/selfsubjectaccessreviews");
    let ann = user("ann");
    let (_, yes) = api.as_user(&ann, Method::POST, &own, get("pods")).await;
    assert_eq!(
        yes["status"],
        json!({"allowed": true, "reason":
            "RBAC: allowed by RoleBinding \"reader/default\" of Role \"reader\" to User \"ann\""})
    );
    let (_, no) = api.as_user(&ann, Method::POST, &own, get("secrets")).await;
    assert_eq!(no["status"], json!({"allowed": false}));
    let others = format!("{REVIEWS}/subjectaccessreviews");
    let mut question = get("pods");
    question["spec"]["user"] = "ann".into();
    let (code, _) = api
        .as_user(&ann, Method::POST, &others, question.clone())
        .await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let answer = api.create(&others, question).await;
    assert_eq!(answer["status"]["allowed"], true);
    let (code, wrong) = api.call(Method::POST, &others, get("pods")).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{wrong}");
    let rules = format!("{REVIEWS}/selfsubjectrulesreviews");
    let question = json!({"spec": {"namespace": "default"}});
    let (_, rules) = api.as_user(&ann, Method::POST, &rules, question).await;
    let found = rules["status"]["resourceRules"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert!(
        found.contains(&rule(&["get", "list"], &["pods"])),
        "{rules}"
    );
}

#[tokio::test]
async fn tokens_are_valid_while_their_bound_object_exists() {
    let api = start().await;
    let mut bound = pod("p");
    bound["spec"]["serviceAccountName"] = "default".into();
    let made = api.create(PODS, bound).await;
    let uid = made["metadata"]["uid"].clone();
    let wanted = json!({"spec": {"expirationSeconds": 700, "boundObjectRef":
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}}});
    let issued = api.create(TOKEN, wanted).await;
    assert_eq!(
        issued["status"]["expirationTimestamp"],
        "2026-01-02T03:15:45Z"
    );
    let token = issued["status"]["token"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let me = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, found) = api.with_token(&token, Method::POST, me, json!({})).await;
    assert_eq!(code, StatusCode::CREATED, "{found}");
    let info = &found["status"]["userInfo"];
    assert_eq!(info["username"], "system:serviceaccount:default:default");
    assert_eq!(
        info["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated"
        ])
    );
    assert_eq!(
        info["extra"]["authentication.kubernetes.io/pod-name"],
        json!(["p"])
    );
    let (code, _) = api.with_token(&token, Method::GET, PODS, Value::Null).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let review = json!({"spec": {"token": token}});
    let answer = api.create(TOKEN_REVIEWS, review.clone()).await;
    assert_eq!(answer["status"]["authenticated"], true);
    let foreign = json!({"spec": {"token": token, "audiences": ["vault"]}});
    let answer = api.create(TOKEN_REVIEWS, foreign).await;
    assert_eq!(answer["status"]["authenticated"], Value::Null);
    api.delete(&format!("{PODS}/p")).await;
    let (code, _) = api.with_token(&token, Method::POST, me, json!({})).await;
    assert_eq!(code, StatusCode::UNAUTHORIZED);
    let answer = api.create(TOKEN_REVIEWS, review).await;
    assert_eq!(answer["status"]["user"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn tokens_expire_and_end_with_their_account() {
    let api = start_with_moving_clock().await;
    let me = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let token = async |seconds: i64| {
        let wanted = json!({"spec": {"expirationSeconds": seconds}});
        let issued = api.create(TOKEN, wanted).await;
        issued["status"]["token"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let (short, long) = (token(600).await, token(100_000).await);
    let code = async |token: &str| api.with_token(token, Method::POST, me, json!({})).await.0;
    assert_eq!(code(&short).await, StatusCode::CREATED);
    tokio::time::advance(std::time::Duration::from_secs(700)).await;
    assert_eq!(code(&short).await, StatusCode::UNAUTHORIZED);
    assert_eq!(code(&long).await, StatusCode::CREATED);
    // A new account of the same name is a different account.
    api.delete("/api/v1/namespaces/default/serviceaccounts/default")
        .await;
    api.until("/api/v1/namespaces/default/serviceaccounts/default", |_| {
        true
    })
    .await;
    assert_eq!(code(&long).await, StatusCode::UNAUTHORIZED);
    assert_eq!(code("nonsense").await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn token_requests_are_validated() {
    let api = start().await;
    api.create(PODS, pod("p")).await;
    let bound = |kind: &str, name: &str, uid: &str| {
        json!({"spec": {"boundObjectRef":
            {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}})
    };
    let robot = "/api/v1/namespaces/default/serviceaccounts/robot";
    let robot_token = &format!("{robot}/token");
    let account = json!({"metadata": {"name": "robot"}});
    api.create("/api/v1/namespaces/default/serviceaccounts", account)
        .await;
    for (uri, body, code) in [
        (TOKEN, json!({"spec": {"expirationSeconds": 60}}), 422),
        (TOKEN, bound("Pod", "missing", ""), 404),
        (
            TOKEN,
            bound("Pod", "p", "11111111-1111-1111-1111-111111111111"),
            409,
        ),
        (TOKEN, bound("ConfigMap", "p", ""), 400),
        (robot_token, bound("Pod", "p", ""), 400),
        (robot_token, json!({}), 201),
        (
            "/api/v1/namespaces/default/serviceaccounts/none/token",
            json!({}),
            404,
        ),
    ] {
        let (found, answer) = api.call(Method::POST, uri, body).await;
        assert_eq!(found.as_u16(), code, "{answer}");
    }
}

#[tokio::test]
async fn permitted_users_may_impersonate() {
    let api = start().await;
    bind_reader(&api).await;
    let act = async |user: &Identity, headers: &[(&str, &str)], uri: &str| {
        api.with_headers(Some(user), headers, Method::GET, uri, Value::Null)
            .await
    };
    let master = Identity::component("test");
    let (code, _) = act(&master, &[("impersonate-user", "ann")], PODS).await;
    assert_eq!(code, StatusCode::OK);
    let (code, _) = act(&master, &[("impersonate-user", "bob")], PODS).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    let as_masters = [
        ("impersonate-user", "bob"),
        ("impersonate-group", "system:masters"),
    ];
    let (code, _) = act(&master, &as_masters, PODS).await;
    assert_eq!(code, StatusCode::OK);
    let (code, body) = act(&user("ann"), &[("impersonate-user", "bob")], PODS).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert_eq!(
        body["message"],
        "users \"bob\" is forbidden: User \"ann\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope"
    );
}

/// A header that is ignored makes the request run as the caller, with the caller's permissions.
#[tokio::test]
async fn unreadable_impersonation_never_runs_as_the_caller() {
    let api = start().await;
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    bind_reader(&api).await;
    let name = "jörg";
    api.create(&bindings, binding("utf8", "Role/reader", &named(name)))
        .await;
    let master = Identity::component("test");
    let latin1: &[u8] = b"j\xf6rg";
    let act = async |headers: &[(&str, &[u8])]| {
        let (code, _) = api
            .with_headers(Some(&master), headers, Method::GET, PODS, Value::Null)
            .await;
        code.as_u16()
    };
    let user = ("impersonate-user", name.as_bytes());
    for (headers, code) in [
        (vec![user], 200),
        (vec![("impersonate-user", "jürg".as_bytes())], 403),
        (vec![("impersonate-user", latin1)], 400),
        (vec![("impersonate-user", b"".as_slice())], 400),
        (vec![("impersonate-group", latin1)], 400),
        (vec![user, ("impersonate-group", latin1)], 400),
        (vec![user, ("impersonate-uid", latin1)], 400),
        (vec![user, ("impersonate-extra-team", latin1)], 400),
    ] {
        assert_eq!(act(&headers).await, code, "{headers:?}");
    }
}

#[tokio::test]
async fn anonymous_users_see_health_and_version_only() {
    let api = start().await;
    for (uri, code) in [
        ("/healthz", 200),
        ("/version", 200),
        ("/api", 403),
        (PODS, 403),
    ] {
        let (found, _) = api
            .with_headers(None, &[] as &[(&str, &str)], Method::GET, uri, Value::Null)
            .await;
        assert_eq!(found.as_u16(), code, "{uri}");
    }
}

#[tokio::test]
async fn every_namespace_has_default_account_and_root_ca() {
    let accounts = embedded_api::ServiceAccounts {
        key: embedded_api::SigningKey::generate().expect("a key"),
        root_ca: "PEM".to_owned(),
    };
    let api = start_with_accounts(accounts).await;
    let namespace = json!({"metadata": {"name": "n"}});
    api.create("/api/v1/namespaces", namespace).await;
    api.until("/api/v1/namespaces/n/serviceaccounts/default", |_| true)
        .await;
    let map = "/api/v1/namespaces/n/configmaps/kube-root-ca.crt";
    api.until(map, |map| map["data"]["ca.crt"] == "PEM").await;
    let (code, _) = api
        .patch(
            map,
            "application/merge-patch+json",
            json!({"data": {"ca.crt": "forged"}}),
        )
        .await;
    assert_eq!(code, StatusCode::OK);
    api.until(map, |map| map["data"]["ca.crt"] == "PEM").await;
}

#[tokio::test]
async fn containers_mount_the_account_token_unless_disabled() {
    let accounts = embedded_api::ServiceAccounts {
        key: embedded_api::SigningKey::generate().expect("a key"),
        root_ca: "PEM".to_owned(),
    };
    let api = start_with_accounts(accounts).await;
    api.until("/api/v1/namespaces/default/serviceaccounts/default", |_| {
        true
    })
    .await;
    let quiet = json!({"metadata": {"name": "quiet"}, "automountServiceAccountToken": false});
    api.create("/api/v1/namespaces/default/serviceaccounts", quiet)
        .await;
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    let own = json!([{"name": "mine", "mountPath": path}]);
    // The pod spec besides its containers, and whether each of two containers has a token.
    for (name, spec, mounted) in [
        ("plain", json!({}), [true, true]),
        (
            "refuses",
            json!({"automountServiceAccountToken": false}),
            [false, false],
        ),
        (
            "quiet",
            json!({"serviceAccountName": "quiet"}),
            [false, false],
        ),
        (
            "insists",
            json!({"serviceAccountName": "quiet", "automountServiceAccountToken": true}),
            [true, true],
        ),
        (
            "has-one",
            json!({"volumes": [{"name": "mine", "emptyDir": {}}]}),
            [true, false],
        ),
    ] {
        let mut pod = json!({"metadata": {"name": name}, "spec": spec});
        pod["spec"]["initContainers"] = json!([{"name": "first", "image": "i:1"}]);
        pod["spec"]["containers"] = json!([{"name": "c", "image": "i:1"}]);
        if name == "has-one" {
            pod["spec"]["containers"][0]["volumeMounts"] = own.clone();
        }
        let made = api.create(PODS, pod).await;
        let volumes = made["spec"]["volumes"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let access = |volume: &Value| {
            let name = volume["name"].as_str().unwrap_or_default();
            name.starts_with("kube-api-access-")
                .then(|| name.to_owned())
        };
        let access: Vec<String> = volumes.iter().filter_map(access).collect();
        assert_eq!(
            access.len(),
            usize::from(mounted[0] || mounted[1]),
            "{name}"
        );
        for (list, mounted) in ["initContainers", "containers"].into_iter().zip(mounted) {
            let mounts = &made["spec"][list][0]["volumeMounts"];
            let mounts = mounts.as_array().cloned().unwrap_or_default();
            let expected = json!({"name": access.first(), "readOnly": true, "mountPath": path});
            assert_eq!(mounts.contains(&expected), mounted, "{name} {list}");
        }
        if let Some(volume) = volumes
            .iter()
            .find(|volume| volume.get("projected").is_some())
        {
            let sources = volume["projected"]["sources"].as_array().expect("sources");
            assert_eq!(sources[0]["serviceAccountToken"]["path"], "token");
            assert_eq!(sources[1]["configMap"]["name"], "kube-root-ca.crt");
            assert_eq!(sources[2]["downwardAPI"]["items"][0]["path"], "namespace");
        }
    }
}
