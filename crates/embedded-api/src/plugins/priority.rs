//! The priority of a pod, from its priority class; and the one default class.

use apimachinery::{Status, meta};
use serde_json::{Value, json};

use crate::{
    api::Api,
    error::ApiError,
    store::{Collection, Scope},
    verbs::{
        Call,
        write::{self, Ownership},
    },
};

const GROUP: &str = "scheduling.k8s.io";
const PLURAL: &str = "priorityclasses";
const USUAL_POLICY: &str = "PreemptLowerPriority";

/// The classes of Kubernetes' own components.
const SYSTEM: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// Creates the classes that every cluster has.
pub(crate) async fn bootstrap(api: &Api) -> Result<(), ApiError> {
    for (name, value, description) in SYSTEM {
        let Some(kind) = api.registry.find(GROUP, "v1", PLURAL) else {
            return Ok(());
        };
        let call = Call::internal(kind, "", Some(name));
        if api.store.get(&call.key(name)).await?.is_some() {
            continue;
        }
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "description": description,
        });
        Box::pin(write::create(api, &call, class, Ownership::Compute)).await?;
    }
    Ok(())
}

/// Sets the priority of a new pod.
pub(super) async fn of_pod(api: &Api, call: &Call, pod: &mut Value) -> Result<(), ApiError> {
    if !pod["spec"].is_object() {
        return Ok(());
    }
    let forbidden = |pod: &Value, why: String| -> ApiError {
        Status::forbidden(call.kind.resource(), meta::name(pod), &why).into()
    };
    let named = pod["spec"]["priorityClassName"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let class = if named.is_empty() {
        default_class(api).await?
    } else {
        let key = Collection::new(GROUP, PLURAL).key("", &named);
        let Some(stored) = api.store.get(&key).await? else {
            let why = format!("no PriorityClass with name {named} was found");
            return Err(forbidden(pod, why));
        };
        Some(stored.parse()?)
    };
    let value = class
        .as_ref()
        .and_then(|class| class["value"].as_i64())
        .unwrap_or_default();
    let policy = class
        .as_ref()
        .and_then(|class| class["preemptionPolicy"].as_str());
    let policy = policy.unwrap_or(USUAL_POLICY);
    if let Some(found) = pod["spec"]["priority"]
        .as_i64()
        .filter(|found| *found != value)
    {
        let why = format!(
            "the integer value of priority ({found}) must not be provided in pod spec; priority admission controller computed {value} from the given PriorityClass name"
        );
        return Err(forbidden(pod, why));
    }
    let found = pod["spec"]["preemptionPolicy"].as_str();
    if let Some(found) = found.filter(|found| *found != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({found}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(forbidden(pod, why));
    }
    if let (Some(class), true) = (&class, named.is_empty()) {
        pod["spec"]["priorityClassName"] = meta::name(class).into();
    }
    pod["spec"]["priority"] = value.into();
    pod["spec"]["preemptionPolicy"] = policy.into();
    Ok(())
}

/// A second default class is refused.
pub(super) async fn of_class(api: &Api, call: &Call, class: &Value) -> Result<(), ApiError> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    match default_class(api).await? {
        Some(other) if meta::name(&other) != meta::name(class) => {
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                meta::name(&other)
            );
            Err(Status::forbidden(call.kind.resource(), meta::name(class), &why).into())
        }
        _ => Ok(()),
    }
}

/// The default class, the one with the lowest value if there are several.
async fn default_class(api: &Api) -> Result<Option<Value>, ApiError> {
    let scope = Scope::all(Collection::new(GROUP, PLURAL));
    let mut found: Option<Value> = None;
    for stored in api.store.list(&scope, None, None).await?.items {
        let class = stored.parse()?;
        let is_lower = found
            .as_ref()
            .is_none_or(|found| class["value"].as_i64() < found["value"].as_i64());
        if class["globalDefault"] == true && is_lower {
            found = Some(class);
        }
    }
    Ok(found)
}
