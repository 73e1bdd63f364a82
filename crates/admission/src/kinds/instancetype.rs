//! Instance types, namespaced and cluster-wide, with the same rules.

use kubevirt_api::instancetype::{
    VirtualMachineClusterInstancetype, VirtualMachineInstancetype, VirtualMachineInstancetypeSpec,
};
use validation::{Rule, Subject, Violation};

use super::kind::{Check, Kind, Problem, TypedRequest};

macro_rules! instancetype {
    ($kind:ident) => {
        impl Kind for $kind {
            const RULES: &'static [Rule<Check<Self>>] = &[
                Rule::new(
                    "instancetype.overcommit",
                    Subject::Instancetype,
                    "overcommitPercent is a percentage",
                    |request| overcommit(&request.new.spec),
                ),
                Rule::new(
                    "instancetype.overcommit-hugepages",
                    Subject::Instancetype,
                    "huge pages are not overcommitted",
                    |request| hugepages(&request.new.spec),
                ),
            ];

            fn warnings(request: &TypedRequest<'_, Self>) -> Vec<String> {
                warnings(&request.new.spec)
            }
        }
    };
}

instancetype!(VirtualMachineInstancetype);
instancetype!(VirtualMachineClusterInstancetype);

fn overcommit(spec: &VirtualMachineInstancetypeSpec) -> Vec<Problem> {
    let percent = spec.memory.overcommit_percent.unwrap_or(0);
    if (0..=100).contains(&percent) {
        return Vec::new();
    }
    let detail = format!("{percent} is not a percentage; use a number from 0 to 100");
    vec![Violation::invalid("spec.memory.overcommitPercent", detail).into()]
}

fn hugepages(spec: &VirtualMachineInstancetypeSpec) -> Vec<Problem> {
    let memory = &spec.memory;
    if memory.hugepages.is_none() || memory.overcommit_percent.unwrap_or(0) == 0 {
        return Vec::new();
    }
    let detail = "hugepages are set, which cannot be overcommitted; remove one of them";
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
