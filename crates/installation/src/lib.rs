//! The objects of an installation in a cluster.
//!
//! - [`webhooks`] is the table of webhooks, [`registration`] has their configurations, the service and the
//!   aggregated API of virt-api;
//! - [`guard`] is a webhook against the deletion of an installation that still has VMs;
//! - [`policy`] has admission policies for rules that roles cannot express: the objects that a virt-handler may
//!   change, the kinds that virt-controller may define, and the limit to one installation;
//! - [`workloads`]: the pods of the components;
//! - [`objects`]: all of them in the order in which they are applied, with the roles of crate `roles`.
//!
//! Pure: from [`Settings`] to JSON. **Invariants**: the same settings give the same objects; they contain no
//! secrets, since the components create the certificates.

mod accounts;
pub mod guard;
pub mod policy;
pub mod registration;
mod settings;
pub mod webhooks;
pub mod workloads;

pub use accounts::{API_ACCOUNT, CONTROLLER_ACCOUNT, HANDLER_ACCOUNT, HANDLER_SIGNER};
pub use settings::Settings;

use roles::{Environment, RolesError};
use serde_json::{Value, json};

/// The label of all objects of an installation.
pub const COMPONENT_LABEL: &str = "kubevirt.io";

/// All objects except the definitions of kinds, whose names are given, in the order in which they are applied.
pub fn objects(settings: &Settings, definitions: &[&str]) -> Result<Vec<Value>, RolesError> {
    let mut all = vec![namespace(settings), priority_class()];
    all.extend(roles::objects(Environment::Cluster {
        namespace: &settings.namespace,
    })?);
    let api_services = registration::api_services(&settings.namespace);
    // Roles come first: policies refuse those of a second installation.
    let unique = [all.as_slice(), &api_services].concat();
    all.extend(policy::objects(&unique));
    all.push(registration::service(&settings.namespace));
    all.extend(registration::transfer_services(&settings.namespace));
    all.push(registration::metrics_service(&settings.namespace));
    all.extend(workloads::objects(settings));
    all.extend(api_services);
    let guard = guard::webhook(&settings.namespace, &all, definitions);
    all.extend(registration::webhook_configurations(
        &settings.namespace,
        guard,
    ));
    Ok(all)
}

fn namespace(settings: &Settings) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": settings.namespace,
            "labels": {
                COMPONENT_LABEL: "",
                // virt-handler enters the namespaces of pods.
                "pod-security.kubernetes.io/enforce": "privileged",
            },
        },
    })
}

fn priority_class() -> Value {
    json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": workloads::PRIORITY_CLASS},
        "value": 1_000_000_000,
        "description": "Components that run virtual machines",
    })
}
