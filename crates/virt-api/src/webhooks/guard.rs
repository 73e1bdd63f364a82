//! The webhook that protects the installation from deletion while VMs exist.

use std::fmt::Debug;

use axum::{
    body::Bytes,
    extract::State,
    response::{IntoResponse, Response},
};
use kube::{Api, Resource, api::ListParams};
use kubevirt_api::{VirtualMachine, VirtualMachineInstance};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{read, respond, send};
use crate::{refusal::Refusal, settings::Shared};

pub(super) async fn answer(State(shared): State<Shared>, body: Bytes) -> Response {
    match review(&shared, &body).await {
        Ok(answer) => send(answer),
        Err(refusal) => refusal.into_response(),
    }
}

async fn review(shared: &Shared, body: &[u8]) -> Result<Value, Refusal> {
    let review = read(body)?;
    let vms = count::<VirtualMachine>(shared).await?;
    let vmis = count::<VirtualMachineInstance>(shared).await?;
    let refused = (vms + vmis > 0).then(|| {
        let request = &review["request"];
        let resource = request["resource"]["resource"].as_str().unwrap_or_default();
        let name = request["name"].as_str().unwrap_or_default();
        let message = format!(
            "{resource}/{name} is part of Ferrovirt and cannot be deleted: {vms} VirtualMachine(s) and \
             {vmis} VirtualMachineInstance(s) exist and would not be managed any more: delete them \
             first (kubectl delete vm,vmi --all --all-namespaces), or keep Ferrovirt by kubectl apply \
             of its manifest"
        );
        (403, "Forbidden", message)
    });
    Ok(respond(&review, refused))
}

/// The number of objects in all namespaces; 0 if the kind does not exist.
async fn count<K>(shared: &Shared) -> Result<i64, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let all: Api<K> = Api::all(shared.client.clone());
    match all.list_metadata(&ListParams::default().limit(1)).await {
        Ok(list) => {
            let more = list.metadata.remaining_item_count.unwrap_or_default();
            Ok(more + i64::try_from(list.items.len()).unwrap_or_default())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(0),
        Err(err) => Err(err),
    }
}
