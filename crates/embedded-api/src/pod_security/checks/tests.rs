//! Each rule of the standards with pods that break it, and pods that keep it.

use serde_json::json;

use super::*;

fn level(text: &str) -> LevelVersion {
    let (level, version) = text.split_once(' ').unwrap_or((text, "latest"));
    let labels = json!({"pod-security.kubernetes.io/enforce": level,
                        "pod-security.kubernetes.io/enforce-version": version});
    let (policy, wrong) = super::super::policy::of(&json!({"metadata": {"labels": labels}}));
    assert!(wrong.is_empty(), "{text}");
    policy.enforce
}

/// A pod that keeps all rules, changed by a merge patch of its spec.
fn pod(change: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": "p"}, "spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container("c", &Value::Null)],
    }});
    merge(&mut pod["spec"], change);
    pod
}

fn container(name: &str, security: &Value) -> Value {
    let mut context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    merge(&mut context, security);
    json!({"name": name, "image": "i", "securityContext": context})
}

fn merge(target: &mut Value, change: &Value) {
    let Value::Object(fields) = change else {
        return;
    };
    for (name, value) in fields {
        if value.is_object() && target[name].is_object() {
            merge(&mut target[name], value);
        } else {
            target[name] = value.clone();
        }
    }
}

fn check(at: &str, change: &Value, expected: &str) {
    let found = evaluate(level(at), &pod(change));
    assert_eq!(found.details(), expected, "{at}: {change}");
}

/// A pod with one container of this security context.
fn one(security: &Value) -> Value {
    json!({"containers": [container("c", security)]})
}

#[test]
fn pod_that_keeps_all_rules_passes_every_level() {
    for at in [
        "privileged",
        "baseline",
        "restricted",
        "restricted v1.0",
        "baseline v1.30",
    ] {
        check(at, &json!({}), "");
    }
}

#[test]
fn privileged_level_allows_everything() {
    check(
        "privileged",
        &json!({"hostPID": true, "containers": [container("c", &json!({"privileged": true}))]}),
        "",
    );
}

#[test]
fn checks_are_ordered_by_id() {
    for list in [BASELINE, RESTRICTED] {
        assert!(list.is_sorted_by_key(|check| check.id));
    }
    for check in RESTRICTED.iter().filter(|check| !check.includes.is_empty()) {
        let included = BASELINE.iter().find(|one| one.id == check.includes);
        assert!(
            included.is_some(),
            "{} includes {}",
            check.id,
            check.includes
        );
    }
}

#[test]
fn baseline_refuses_what_reaches_the_host() {
    let b = "baseline";
    let two = |security: Value| {
        json!({"initContainers": [container("i", &security)],
                                       "containers": [container("c", &security)]})
    };
    check(
        b,
        &json!({"hostNetwork": true, "hostIPC": true, "hostPID": false}),
        "host namespaces (hostNetwork=true, hostIPC=true)",
    );
    check(
        b,
        &json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "e", "emptyDir": {}}]}),
        "hostPath volumes (volume \"v\")",
    );
    check(
        b,
        &json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}, {"name": "w", "hostPath": {"path": "/x"}}]}),
        "hostPath volumes (volumes \"v\", \"w\")",
    );
    check(
        b,
        &one(&json!({"privileged": true})),
        "privileged (container \"c\" must not set securityContext.privileged=true)",
    );
    check(
        b,
        &two(json!({"privileged": true})),
        "privileged (containers \"i\", \"c\" must not set securityContext.privileged=true)",
    );
    check(
        b,
        &one(&json!({"capabilities": {"add": ["NET_RAW", "CHOWN", "SYS_ADMIN"]}})),
        "non-default capabilities (container \"c\" must not include \"NET_RAW\", \"SYS_ADMIN\" in securityContext.capabilities.add)",
    );
    check(
        b,
        &one(&json!({"procMount": "Unmasked"})),
        "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
    );
    check(
        b,
        &json!({"containers": [{"name": "c", "ports": [{"hostPort": 8080}, {"hostPort": 80}, {"containerPort": 1}]}]}),
        "hostPort (container \"c\" uses hostPorts 80, 8080)",
    );
    check(
        b,
        &json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_syncookies"}]}}),
        "forbidden sysctls (kernel.msgmax)",
    );
    check(
        b,
        &json!({"securityContext": {"windowsOptions": {"hostProcess": true}},
                     "containers": [container("c", &json!({"windowsOptions": {"hostProcess": true}}))]}),
        "hostProcess (pod and container \"c\" must not set securityContext.windowsOptions.hostProcess=true)",
    );
    check(
        b,
        &json!({"containers": [{"name": "c", "livenessProbe": {"httpGet": {"host": "10.0.0.1"}},
                                     "lifecycle": {"preStop": {"tcpSocket": {"host": "a"}}}}]}),
        "probe or lifecycle host (container \"c\" uses probe or lifecycle hosts \"10.0.0.1\", \"a\")",
    );
}

#[test]
fn baseline_refuses_profiles_that_do_not_confine() {
    let b = "baseline";
    check(
        b,
        &json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")",
    );
    check(
        b,
        &json!({"securityContext": {"seccompProfile": {"type": "Unconfined"}},
                     "containers": [container("c", &json!({"seccompProfile": {"type": "Unconfined"}}))]}),
        "seccompProfile (pod and container \"c\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
    );
    check(
        b,
        &one(&json!({"appArmorProfile": {"type": "Unconfined"}})),
        "forbidden AppArmor profile (container \"c\" must not set AppArmor profile type to \"Unconfined\")",
    );
    check(
        b,
        &json!({"securityContext": {"seLinuxOptions": {"type": "spc_t", "user": "u", "role": "r"}}}),
        "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"spc_t\"; user may not be set; role may not be set)",
    );
    check(
        b,
        &one(&json!({"seLinuxOptions": {"type": "container_kvm_t", "level": "s0"}})),
        "",
    );
    check(
        b,
        &one(
            &json!({"seccompProfile": {"type": "Localhost"}, "appArmorProfile": {"type": "RuntimeDefault"}}),
        ),
        "",
    );
}

#[test]
fn annotations_of_older_clients_count() {
    let mut pod = pod(&json!({}));
    pod["metadata"]["annotations"] = json!({
        "container.apparmor.security.beta.kubernetes.io/c": "unconfined",
        "container.apparmor.security.beta.kubernetes.io/d": "runtime/default",
        "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
    });
    let app_armor = "forbidden AppArmor profile (annotation must not set AppArmor profile type to \
                     \"container.apparmor.security.beta.kubernetes.io/c=\"unconfined\"\")";
    assert_eq!(evaluate(level("baseline"), &pod).details(), app_armor);
    let seccomp = "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")";
    assert_eq!(
        evaluate(level("baseline v1.18"), &pod).details(),
        format!("{app_armor}, {seccomp}")
    );
}

#[test]
fn restricted_requires_hardening() {
    let r = "restricted";
    let bare = json!({"securityContext": null, "containers": [{"name": "c"}, {"name": "d"}]});
    check(
        r,
        &bare,
        "allowPrivilegeEscalation != false (containers \"c\", \"d\" must set securityContext.allowPrivilegeEscalation=false), \
           unrestricted capabilities (containers \"c\", \"d\" must set securityContext.capabilities.drop=[\"ALL\"]), \
           runAsNonRoot != true (pod or containers \"c\", \"d\" must set securityContext.runAsNonRoot=true), \
           seccompProfile (pod or containers \"c\", \"d\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
    );
    check("baseline", &bare, "");
    check(
        r,
        &one(&json!({"capabilities": {"add": ["NET_BIND_SERVICE", "CHOWN"]}})),
        "unrestricted capabilities (container \"c\" must not include \"CHOWN\" in securityContext.capabilities.add)",
    );
    check(
        r,
        &one(&json!({"runAsNonRoot": false, "runAsUser": 0})),
        "runAsNonRoot != true (container \"c\" must not set securityContext.runAsNonRoot=false), \
           runAsUser=0 (container \"c\" must not set runAsUser=0)",
    );
    check(
        r,
        &json!({"securityContext": {"runAsUser": 0}}),
        "runAsUser=0 (pod must not set runAsUser=0)",
    );
    check(
        r,
        &json!({"volumes": [{"name": "h", "hostPath": {"path": "/"}}, {"name": "i", "image": {}},
                                 {"name": "n", "nfs": {}}, {"name": "s", "secret": {}}]}),
        "restricted volume types (volumes \"h\", \"i\", \"n\" use restricted volume types \"hostPath\", \"nfs\", \"unknown\")",
    );
    check(
        r,
        &json!({"hostPID": true}),
        "host namespaces (hostPID=true)",
    );
    check(
        r,
        &one(&json!({"seccompProfile": {"type": "Unconfined"}})),
        "seccompProfile (container \"c\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
    );
}

#[test]
fn versions_have_their_own_rules() {
    let tcp = |name: &str| json!({"securityContext": {"sysctls": [{"name": name}]}});
    for (name, since) in [
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.tcp_fin_timeout", 29),
        ("net.ipv4.tcp_wmem", 32),
    ] {
        let before = format!("baseline v1.{}", since - 1);
        check(&before, &tcp(name), &format!("forbidden sysctls ({name})"));
        check(&format!("baseline v1.{since}"), &tcp(name), "");
    }
    let probe =
        json!({"containers": [{"name": "c", "startupProbe": {"tcpSocket": {"host": "h"}}}]});
    check("baseline v1.33", &probe, "");
    let engine = one(&json!({"seLinuxOptions": {"type": "container_engine_t"}}));
    check("baseline v1.31", &engine, "");
    check(
        "baseline v1.30",
        &engine,
        "seLinuxOptions (container \"c\" set forbidden securityContext.seLinuxOptions: type \"container_engine_t\")",
    );
    check("restricted v1.22", &one(&json!({"runAsUser": 0})), "");
    let windows = json!({"os": {"name": "windows"}, "securityContext": {"seccompProfile": null},
                         "containers": [{"name": "c"}]});
    check("restricted v1.25", &windows, "");
    let unmasked = json!({"hostUsers": false, "securityContext": {"runAsNonRoot": null},
                          "containers": [container("c", &json!({"procMount": "Unmasked"}))]});
    check("baseline", &unmasked, "");
    check(
        "baseline v1.34",
        &unmasked,
        "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
    );
    check(
        "restricted",
        &unmasked,
        "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")",
    );
}
