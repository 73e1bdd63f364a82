//! Quantities that the user writes: memory, CPU and storage.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevirt_api::quantity::{Amount, NotAQuantity};

use crate::Guest;

/// A list under `spec.domain.resources`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceList {
    Requests,
    Limits,
}

/// A field whose text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct InvalidQuantity {
    pub field: String,
    pub problem: NotAQuantity,
}

impl ResourceList {
    /// Path of one of its entries in the VMI.
    pub fn field(self, resource: &str) -> String {
        let list = match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        };
        format!("spec.domain.resources.{list}[{resource}]")
    }
}

impl Guest<'_> {
    /// The entry of that resource, such as `memory`.
    pub fn resource(
        &self,
        list: ResourceList,
        resource: &str,
    ) -> Result<Option<Amount>, InvalidQuantity> {
        let resources = self.vmi.spec.domain.resources.as_ref();
        let quantities: Option<&BTreeMap<_, _>> = resources.map(|resources| match list {
            ResourceList::Requests => &resources.requests,
            ResourceList::Limits => &resources.limits,
        });
        let quantity = quantities.and_then(|quantities| quantities.get(resource));
        quantity
            .map(|quantity| parse(quantity, || list.field(resource)))
            .transpose()
    }

    /// Bytes of the guest's memory, if the VMI has that field.
    pub fn memory(&self) -> Result<Option<u64>, InvalidQuantity> {
        let memory = self.vmi.spec.domain.memory.as_ref();
        bytes(
            memory.and_then(|memory| memory.guest.as_ref()),
            "spec.domain.memory.guest",
        )
    }

    /// Bytes that the guest's memory may grow to.
    pub fn max_memory(&self) -> Result<Option<u64>, InvalidQuantity> {
        let memory = self.vmi.spec.domain.memory.as_ref();
        bytes(
            memory.and_then(|memory| memory.max_guest.as_ref()),
            "spec.domain.memory.maxGuest",
        )
    }
}

fn bytes(quantity: Option<&Quantity>, field: &str) -> Result<Option<u64>, InvalidQuantity> {
    let amount = quantity.map(|quantity| parse(quantity, || field.to_owned()));
    Ok(amount.transpose()?.map(Amount::units))
}

fn parse(quantity: &Quantity, field: impl Fn() -> String) -> Result<Amount, InvalidQuantity> {
    Amount::parse(quantity).map_err(|problem| InvalidQuantity {
        field: field(),
        problem,
    })
}

#[cfg(test)]
mod tests {
    use kubevirt_api::VirtualMachineInstance;
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read_and_bad_ones_named_by_field() {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({"spec": {"domain": {
            "memory": {"guest": "1Gi", "maxGuest": "much"},
            "resources": {"requests": {"memory": "2Gi"}, "limits": {"cpu": "many"}},
        }}}))
        .expect("a VMI");
        let guest = Guest::of(&vmi);
        assert_eq!(guest.memory(), Ok(Some(1 << 30)));
        let field = |error: InvalidQuantity| error.field;
        assert_eq!(
            guest.max_memory().map_err(field),
            Err("spec.domain.memory.maxGuest".to_owned())
        );
        let request = guest.resource(ResourceList::Requests, "memory");
        assert_eq!(request, Ok(Some(Amount::of(2 << 30))));
        assert_eq!(guest.resource(ResourceList::Limits, "memory"), Ok(None));
        assert_eq!(
            guest.resource(ResourceList::Limits, "cpu").map_err(field),
            Err("spec.domain.resources.limits[cpu]".to_owned())
        );
    }
}
