//! Verbs that change a VM; virt-controller acts on the change.

use std::collections::BTreeMap;

use axum::{
    extract::{Path, Request, State},
    http::StatusCode,
    routing::put,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, migration_request::VirtualMachineInstanceMigration,
};
use serde_json::{Value, json};

use super::{
    body::{self, Options},
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
};
use crate::{caller, refusal::Refusal, settings::Shared};

/// The name under which this component writes.
const MANAGER: &str = "virt-api";

/// A verb on a VM: a pure decision about the observed VM and VMI.
pub(crate) trait VmVerb: Send + Sync + 'static {
    const NAME: &'static str;
    /// Codes of refusals.
    const REFUSALS: &'static [u16] = &[404, 409];
    /// The feature gate of the verb.
    const GATE: Option<&'static str> = None;
    type Body: Options;

    fn dry_run(body: &Self::Body) -> &[String];

    /// The changes, in order.
    fn decide(observed: &ObservedVm<'_>, body: &Self::Body) -> Result<Vec<Change>, Refusal>;
}

/// The objects that a verb decides about.
#[derive(Debug)]
pub(crate) struct ObservedVm<'a> {
    pub(crate) vm: &'a VirtualMachine,
    pub(crate) vmi: Option<&'a VirtualMachineInstance>,
}

/// A JSON patch, with tests that turn a lost race into a conflict; or a new object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    Vm(Value),
    VmStatus(Value),
    Vmi(Value),
    /// Creates a migration to a node with these labels.
    Migrate(BTreeMap<String, String>),
}

pub(super) const fn entry<V: VmVerb>() -> Entry {
    Entry {
        object: Object::Vm,
        name: V::NAME,
        verb: Verb::Update,
        level: Level::Edit,
        contract: Contract {
            body: V::Body::TYPE,
            ..Contract::new(Answer::Accepted, V::REFUSALS)
        },
        handler: Handler::Built(|| put(handle::<V>)),
    }
}

async fn handle<V: VmVerb>(
    State(shared): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Result<StatusCode, Refusal> {
    let access = caller::Access {
        namespace: &namespace,
        name: &name,
        resource: Object::Vm.plural(),
        subresource: V::NAME,
        verb: Verb::Update.name(),
    };
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    if let Some(gate) = V::GATE
        && !shared.cluster.now().has_gate(gate)
    {
        let message = format!("Enable {gate} feature gate to use this API.");
        return Err(Refusal::bad_request(message));
    }
    let body: V::Body = body::read(request).await?;
    let client = &shared.client;
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), &namespace);
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), &namespace);
    let vm = vms
        .get_opt(&name)
        .await?
        .ok_or_else(|| Refusal::not_found(Object::Vm.singular(), &name))?;
    let vmi = vmis.get_opt(&name).await?;
    let changes = V::decide(
        &ObservedVm {
            vm: &vm,
            vmi: vmi.as_ref(),
        },
        &body,
    );
    let about = |refusal: Refusal| refusal.about(Object::Vm.singular(), &name);
    for change in changes.map_err(about)? {
        let applied = apply(client, &namespace, &name, change, V::dry_run(&body)).await;
        applied.map_err(about)?;
    }
    Ok(StatusCode::ACCEPTED)
}

fn migration(
    name: &str,
    selector: &BTreeMap<String, String>,
) -> Result<VirtualMachineInstanceMigration, Refusal> {
    let object = json!({
        "metadata": {"generateName": "kubevirt-migrate-vm-"},
        "spec": {"vmiName": name, "addedNodeSelector": selector},
    });
    serde_json::from_value(object).map_err(|err| Refusal::internal(err.to_string()))
}

async fn apply(
    client: &Client,
    namespace: &str,
    name: &str,
    change: Change,
    dry_run: &[String],
) -> Result<(), Refusal> {
    let vms: Api<VirtualMachine> = Api::namespaced(client.clone(), namespace);
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(client.clone(), namespace);
    let migrations: Api<VirtualMachineInstanceMigration> =
        Api::namespaced(client.clone(), namespace);
    let parameters = PatchParams {
        dry_run: dry_run.iter().any(|value| value == "All"),
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patch = |value: Value| -> Result<Patch<()>, Refusal> {
        let patch = serde_json::from_value(value);
        Ok(Patch::Json(
            patch.map_err(|err| Refusal::internal(err.to_string()))?,
        ))
    };
    let applied = match change {
        Change::Vm(value) => vms.patch(name, &parameters, &patch(value)?).await.map(drop),
        Change::VmStatus(value) => vms
            .patch_status(name, &parameters, &patch(value)?)
            .await
            .map(drop),
        Change::Vmi(value) => vmis
            .patch(name, &parameters, &patch(value)?)
            .await
            .map(drop),
        Change::Migrate(selector) => {
            let created = migration(name, &selector)?;
            let parameters = PostParams {
                dry_run: parameters.dry_run,
                field_manager: parameters.field_manager,
            };
            migrations.create(&parameters, &created).await.map(drop)
        }
    };
    applied.map_err(|err| match Refusal::from(err) {
        // A test of the patch failed: another writer was faster.
        refusal if refusal.code == StatusCode::UNPROCESSABLE_ENTITY => Refusal::conflict(format!(
            "{name} was changed in the meantime: {}",
            refusal.message
        )),
        refusal => refusal,
    })
}
