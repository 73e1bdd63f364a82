//! Instance types, of a namespace and of the cluster: one list of rules for both.

use kubevirt_api::instancetype::{
    VirtualMachineClusterInstancetype, VirtualMachineInstancetype, VirtualMachineInstancetypeSpec,
};

use super::{Asked, Check, Fault, Kind};
use crate::{Violation, rules::Rule};

macro_rules! instancetype {
    ($kind:ident) => {
        impl Kind for $kind {
            const RULES: &'static [Rule<Check<Self>>] = &[
                Rule::new(
                    "instancetype.overcommit",
                    "4",
                    "overcommitPercent is a percentage",
                    |asked| overcommit(&asked.new.spec),
                ),
                Rule::new(
                    "instancetype.overcommit-hugepages",
                    "4",
                    "huge pages are not overcommitted",
                    |asked| hugepages(&asked.new.spec),
                ),
            ];

            fn warnings(asked: &Asked<'_, Self>) -> Vec<String> {
                warnings(&asked.new.spec)
            }
        }
    };
}

instancetype!(VirtualMachineInstancetype);
instancetype!(VirtualMachineClusterInstancetype);

fn overcommit(spec: &VirtualMachineInstancetypeSpec) -> Vec<Fault> {
    let percent = spec.memory.overcommit_percent.unwrap_or(0);
    if (0..=100).contains(&percent) {
        return Vec::new();
    }
    let detail = format!("{percent} is no percentage; use a number from 0 to 100");
    vec![Violation::invalid("spec.memory.overcommitPercent", detail).into()]
}

fn hugepages(spec: &VirtualMachineInstancetypeSpec) -> Vec<Fault> {
    let memory = &spec.memory;
    if memory.hugepages.is_none() || memory.overcommit_percent.unwrap_or(0) == 0 {
        return Vec::new();
    }
    let detail = "not together with hugepages, which cannot be overcommitted; remove one of them";
    vec![Violation::invalid("spec.memory.overcommitPercent", detail).into()]
}

fn warnings(spec: &VirtualMachineInstancetypeSpec) -> Vec<String> {
    let is_old = spec.launch_security.is_some();
    is_old
        .then(|| {
            "spec.launchSecurity is deprecated here; use spec.preferredLaunchSecurity of a \
             preference"
                .to_owned()
        })
        .into_iter()
        .collect()
}
