//! The reference of the served kinds, `docs/reference/api-server.md`, made from their table.

use std::fmt::Write as _;

use crate::registry::builtin::{BuiltIn, KINDS};

const HEAD: &str = "\
# What the API server of a single host serves

On a single host, `ferrovirt up` runs an API server of its own. It serves the kinds below, those of every
custom resource definition, and aggregated APIs. kubectl answers a request for any other kind with
`the server doesn't have a resource type`. On a cluster, the API server is that of Kubernetes.

Made by `cargo xtask generate` from the table in `crates/embedded-api/src/registry/builtin/table.rs`.

## Kinds

";

const LEFT_OUT: &str = "
## Kinds that are left out

A single host runs VMs and the pods that belong to them. Kinds for other workloads, for several nodes and for
clouds are left out by design:

| kind | group | instead |
| --- | --- | --- |
";

const LEFT_OUT_SUBRESOURCES: &str = "
## Subresources that are left out

| subresource | instead |
| --- | --- |
";

const TAIL: &str = "
## Fields that do less than on a cluster

- `LoadBalancer` services get node ports, but no address: `EXTERNAL-IP` stays `<pending>`, as on a cluster
  without a load balancer.
- Services have IPv4 addresses only.
- With `sessionAffinity: ClientIP` a client keeps its pod while the pods of the service stay the same;
  `timeoutSeconds` has no effect.
- A priority class sets the priority of a pod; no pod is preempted.
- There is one node: taints, pod affinity and topology spread have no effect.
- Endpoints may have loopback addresses, which Kubernetes refuses: components of the host listen there.
";

/// A kind that is not served, and what to use instead.
struct LeftOut {
    kinds: &'static [&'static str],
    group: &'static str,
    instead: &'static str,
}

const KINDS_LEFT_OUT: [LeftOut; 14] = [
    LeftOut {
        kinds: &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
        group: "apps",
        instead: "pods; for VMs `VirtualMachine` and `VirtualMachineInstanceReplicaSet`",
    },
    LeftOut {
        kinds: &["PodTemplate", "ReplicationController"],
        group: "",
        instead: "pods",
    },
    LeftOut {
        kinds: &["ComponentStatus"],
        group: "",
        instead: "`kubectl get --raw /readyz`",
    },
    LeftOut {
        kinds: &["CronJob", "Job"],
        group: "batch",
        instead: "pods with `restartPolicy: OnFailure`",
    },
    LeftOut {
        kinds: &["HorizontalPodAutoscaler"],
        group: "autoscaling",
        instead: "`kubectl scale` of a replica set of VMs",
    },
    LeftOut {
        kinds: &["Ingress", "IngressClass"],
        group: "networking.k8s.io",
        instead: "services of type `NodePort`",
    },
    LeftOut {
        kinds: &["IPAddress", "ServiceCIDR"],
        group: "networking.k8s.io",
        instead: "the range of services follows from `--pod-cidr`",
    },
    LeftOut {
        kinds: &["RuntimeClass"],
        group: "node.k8s.io",
        instead: "nothing; a pod that names one is refused",
    },
    LeftOut {
        kinds: &[
            "CSIDriver",
            "CSINode",
            "CSIStorageCapacity",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
        group: "storage.k8s.io",
        instead: "the storage class `local`",
    },
    LeftOut {
        kinds: &[
            "MutatingAdmissionPolicy",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ],
        group: "admissionregistration.k8s.io",
        instead: "admission webhooks, or rules in a custom resource definition",
    },
    LeftOut {
        kinds: &["FlowSchema", "PriorityLevelConfiguration"],
        group: "flowcontrol.apiserver.k8s.io",
        instead: "nothing; requests are not queued",
    },
    LeftOut {
        kinds: &["CertificateSigningRequest", "ClusterTrustBundle"],
        group: "certificates.k8s.io",
        instead: "tokens of service accounts",
    },
    LeftOut {
        kinds: &[
            "DeviceClass",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
        ],
        group: "resource.k8s.io",
        instead: "resources of device plugins",
    },
    LeftOut {
        kinds: &["StorageVersion", "StorageVersionMigration"],
        group: "internal.apiserver.k8s.io",
        instead: "nothing; there is one server",
    },
];

const SUBRESOURCES_LEFT_OUT: [(&str, &str, &str); 5] = [
    ("nodes", "proxy", "`kubectl get --raw /metrics`"),
    (
        "pods",
        "ephemeralcontainers",
        "`kubectl exec`; `kubectl debug` does not work",
    ),
    ("pods", "proxy", "`kubectl port-forward`"),
    ("pods", "resize", "a new pod"),
    ("services", "proxy", "`kubectl port-forward service/NAME`"),
];

/// The page.
pub fn page() -> String {
    let mut out = HEAD.to_owned();
    out.push_str("| kind | group and version | names | scope | verbs | subresources |\n");
    out.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for kind in KINDS {
        out.push_str(&row(kind));
    }
    out.push_str(LEFT_OUT);
    for LeftOut {
        kinds,
        group,
        instead,
    } in KINDS_LEFT_OUT
    {
        let group = if group.is_empty() { "core" } else { group };
        // A write to a string cannot fail.
        writeln!(out, "| {} | {group} | {instead} |", kinds.join(", ")).ok();
    }
    out.push_str(LEFT_OUT_SUBRESOURCES);
    for (plural, name, instead) in SUBRESOURCES_LEFT_OUT {
        writeln!(out, "| `{plural}/{name}` | {instead} |").ok();
    }
    out.push_str(TAIL);
    out
}

fn row(kind: &BuiltIn) -> String {
    let version = if kind.group.is_empty() {
        kind.version.to_owned()
    } else {
        format!("{}/{}", kind.group, kind.version)
    };
    let names: Vec<&str> = [kind.plural]
        .into_iter()
        .chain(kind.short_names.iter().copied())
        .collect();
    let scope = if kind.namespaced {
        "namespace"
    } else {
        "cluster"
    };
    let verbs = if kind.verbs.len() > 7 {
        "all".to_owned()
    } else {
        kind.verbs.join(", ")
    };
    let subresources: Vec<&str> = kind.subresources.iter().map(|one| one.name).collect();
    format!(
        "| {} | `{version}` | {} | {scope} | {verbs} | {} |\n",
        kind.kind,
        names.join(", "),
        subresources.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_current() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/api-server.md"
        );
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            found == page(),
            "stale: run `cargo xtask generate` and commit the result"
        );
    }

    #[test]
    fn what_is_left_out_is_not_served() {
        for left_out in KINDS_LEFT_OUT {
            let served = |kind: &&str| {
                KINDS
                    .iter()
                    .any(|one| one.kind == *kind && one.group == left_out.group)
            };
            assert_eq!(left_out.kinds.iter().find(|kind| served(kind)), None);
        }
        for (plural, name, _) in SUBRESOURCES_LEFT_OUT {
            let kind = KINDS
                .iter()
                .find(|one| one.plural == plural && one.group.is_empty());
            let kind = kind.expect("a served kind");
            assert!(
                !kind.subresources.iter().any(|one| one.name == name),
                "{plural}/{name}"
            );
        }
    }
}
