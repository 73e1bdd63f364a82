//! `usage`: CPU time, memory, disk and network of a guest. `KubeVirt` has no such verb.

use kubevirt_api::VirtualMachineInstance;

use super::{
    BytesVerb, Level,
    contract::{Answer, Contract},
    guest,
};
use crate::refusal::Refusal;

#[derive(Debug)]
pub(super) struct Usage;

impl BytesVerb for Usage {
    const NAME: &'static str = "usage";
    const LEVEL: Level = Level::View;
    const CONTRACT: Contract = Contract::new(Answer::Json, &[500]);

    fn admit(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
        guest::require_running(vmi)
    }

    fn node_request(_query: Option<&str>) -> Result<String, Refusal> {
        Ok(Self::NAME.to_owned())
    }
}
