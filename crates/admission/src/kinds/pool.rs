//! Pools of VMs.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubevirt_api::{VirtualMachine, pool::VirtualMachinePool};

use super::{Asked, Check, Fault, Kind, duration, selector};
use crate::{Violation, rules::Rule, vm};

type Question<'a> = Asked<'a, VirtualMachinePool>;

/// Where the VM is in a pool.
const TEMPLATE: &str = "spec.virtualMachineTemplate";

impl Kind for VirtualMachinePool {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new("pool.version", "4", "only v1beta1 is judged", version),
        Rule::new(
            "pool.template-given",
            "4",
            "there is a template",
            template_given,
        ),
        Rule::new("pool.template", "4", "the template is a good VM", template),
        Rule::new(
            "pool.selector",
            "4",
            "the selector matches the template's labels",
            |asked| {
                let metadata = asked.new.spec.virtual_machine_template.metadata.as_ref();
                let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
                selector::matches_template(&asked.new.spec.selector, labels, TEMPLATE)
            },
        ),
        Rule::new(
            "pool.selector-fixed",
            "4",
            "the selector is never changed",
            selector_is_fixed,
        ),
        Rule::new(
            "pool.max-unavailable",
            "4",
            "maxUnavailable is a number of VMs or a percentage",
            max_unavailable,
        ),
        Rule::new(
            "pool.autohealing",
            "4",
            "minFailingToStartDuration is a duration",
            |asked| {
                let healing = asked.new.spec.autohealing.as_ref();
                let written =
                    healing.and_then(|healing| healing.min_failing_to_start_duration.as_ref());
                duration("spec.autohealing.minFailingToStartDuration", written)
            },
        ),
        Rule::new(
            "pool.update-strategy",
            "4",
            "one update strategy is chosen",
            update_strategy,
        ),
        Rule::new(
            "pool.scale-in-strategy",
            "4",
            "one strategy for scaling in is chosen",
            scale_in_strategy,
        ),
    ];
}

/// The API server shows pools of the other version in this one, so another means that somebody
/// else asks.
fn version(asked: &Question<'_>) -> Vec<Fault> {
    if asked.api_version.is_empty() || asked.api_version == VirtualMachinePool::API_VERSION {
        return Vec::new();
    }
    vec![Fault::Plain(format!(
        "expected a VirtualMachinePool of {}, not of {}; register this webhook with matchPolicy \
         Equivalent",
        VirtualMachinePool::API_VERSION,
        asked.api_version
    ))]
}

fn template_given(asked: &Question<'_>) -> Vec<Fault> {
    if asked.new.spec.virtual_machine_template.spec.is_some() {
        return Vec::new();
    }
    let detail = "missing; describe the VM that each member is made like";
    vec![Violation::required(format!("{TEMPLATE}.spec"), detail).into()]
}

fn template(asked: &Question<'_>) -> Vec<Fault> {
    let Some(vm) = member(asked.new) else {
        return Vec::new();
    };
    let found = vm::validate(&vm::Input {
        vm: &vm,
        old: asked.old.and_then(member).as_ref(),
        found: vm::Found::default(),
        config: asked.config,
        requester: asked.requester,
        around: asked.around,
    });
    found
        .into_iter()
        .map(|violation| violation.below(TEMPLATE).into())
        .collect()
}

/// The VM that a member would be.
fn member(pool: &VirtualMachinePool) -> Option<VirtualMachine> {
    let template = &pool.spec.virtual_machine_template;
    Some(VirtualMachine {
        metadata: template.metadata.clone().unwrap_or_default(),
        spec: template.spec.clone()?,
        status: None,
    })
}

fn selector_is_fixed(asked: &Question<'_>) -> Vec<Fault> {
    let new = &asked.new.spec.selector;
    if asked.old.is_none_or(|old| old.spec.selector == *new) {
        return Vec::new();
    }
    let detail = "fixed once made; delete this pool and make another";
    vec![Violation::invalid("spec.selector", detail).into()]
}

fn max_unavailable(asked: &Question<'_>) -> Vec<Fault> {
    let detail = match &asked.new.spec.max_unavailable {
        None => return Vec::new(),
        Some(IntOrString::Int(number)) if *number > 0 => return Vec::new(),
        Some(IntOrString::Int(number)) => {
            format!("{number} would stop every update; use 1 or more, or a percentage such as 25%")
        }
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
            if percent.is_some_and(|percent: u8| (1..=100).contains(&percent)) {
                return Vec::new();
            }
            format!("{text:?} is no percentage; use a number, or a text from \"1%\" to \"100%\"")
        }
    };
    vec![Violation::invalid("spec.maxUnavailable", detail).into()]
}

fn update_strategy(asked: &Question<'_>) -> Vec<Fault> {
    let Some(strategy) = &asked.new.spec.update_strategy else {
        return Vec::new();
    };
    at_most_one(
        "spec.updateStrategy",
        [
            strategy.unmanaged.is_some(),
            strategy.opportunistic.is_some(),
            strategy.proactive.is_some(),
        ],
    )
}

fn scale_in_strategy(asked: &Question<'_>) -> Vec<Fault> {
    let Some(strategy) = &asked.new.spec.scale_in_strategy else {
        return Vec::new();
    };
    at_most_one(
        "spec.scaleInStrategy",
        [
            strategy.unmanaged.is_some(),
            strategy.opportunistic.is_some(),
            strategy.proactive.is_some(),
        ],
    )
}

fn at_most_one(field: &str, given: [bool; 3]) -> Vec<Fault> {
    if given.into_iter().filter(|given| *given).count() <= 1 {
        return Vec::new();
    }
    let detail = "more than one of unmanaged, opportunistic and proactive; choose one";
    vec![Violation::invalid(field, detail).into()]
}
