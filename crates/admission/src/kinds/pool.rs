//! Pools of VMs.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubevirt_api::{VirtualMachine, pool::VirtualMachinePool};
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    refusals::duration,
    selector,
};
use crate::vm;

type Request<'a> = TypedRequest<'a, VirtualMachinePool>;

/// Path of the VM template in a pool.
const TEMPLATE: &str = "spec.virtualMachineTemplate";

impl Kind for VirtualMachinePool {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "pool.version",
            Subject::Pool,
            "the request is of version v1beta1",
            version,
        ),
        Rule::new(
            "pool.template-given",
            Subject::Pool,
            "there is a template",
            template_given,
        ),
        Rule::new(
            "pool.template",
            Subject::Pool,
            "the template is a valid VM",
            template,
        ),
        Rule::new(
            "pool.selector",
            Subject::Pool,
            "the selector matches the template's labels",
            |request| {
                let metadata = request.new.spec.virtual_machine_template.metadata.as_ref();
                let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
                selector::matches_template(&request.new.spec.selector, labels, TEMPLATE)
            },
        ),
        Rule::new(
            "pool.selector-fixed",
            Subject::Pool,
            "the selector is immutable",
            selector_is_immutable,
        ),
        Rule::new(
            "pool.max-unavailable",
            Subject::Pool,
            "maxUnavailable is a number of VMs or a percentage",
            max_unavailable,
        ),
        Rule::new(
            "pool.autohealing",
            Subject::Pool,
            "minFailingToStartDuration is a duration",
            |request| {
                let healing = request.new.spec.autohealing.as_ref();
                let written =
                    healing.and_then(|healing| healing.min_failing_to_start_duration.as_ref());
                duration("spec.autohealing.minFailingToStartDuration", written)
            },
        ),
        Rule::new(
            "pool.update-strategy",
            Subject::Pool,
            "at most one update strategy is set",
            update_strategy,
        ),
        Rule::new(
            "pool.scale-in-strategy",
            Subject::Pool,
            "at most one scale-in strategy is set",
            scale_in_strategy,
        ),
    ];
}

/// With matchPolicy Equivalent, the API server converts requests to this version; another version
/// means that the webhook is registered differently.
fn version(request: &Request<'_>) -> Vec<Problem> {
    if request.api_version.is_empty() || request.api_version == VirtualMachinePool::API_VERSION {
        return Vec::new();
    }
    vec![Problem::Request(format!(
        "expected a VirtualMachinePool of {}, not of {}; register this webhook with matchPolicy \
         Equivalent",
        VirtualMachinePool::API_VERSION,
        request.api_version
    ))]
}

fn template_given(request: &Request<'_>) -> Vec<Problem> {
    if request.new.spec.virtual_machine_template.spec.is_some() {
        return Vec::new();
    }
    let detail = "missing; describe the VM that each member is created from";
    vec![Violation::required(format!("{TEMPLATE}.spec"), detail).into()]
}

fn template(request: &Request<'_>) -> Vec<Problem> {
    let Some(vm) = member(request.new) else {
        return Vec::new();
    };
    let found = vm::validate(&vm::Input {
        vm: &vm,
        old: request.old.and_then(member).as_ref(),
        found: vm::Found::default(),
        config: request.config,
        requester: request.requester,
        env: request.env,
    });
    found
        .into_iter()
        .map(|violation| violation.nested_in(TEMPLATE).into())
        .collect()
}

/// The VM of a member.
fn member(pool: &VirtualMachinePool) -> Option<VirtualMachine> {
    let template = &pool.spec.virtual_machine_template;
    Some(VirtualMachine {
        metadata: template.metadata.clone().unwrap_or_default(),
        spec: template.spec.clone()?,
        status: None,
    })
}

fn selector_is_immutable(request: &Request<'_>) -> Vec<Problem> {
    let new = &request.new.spec.selector;
    if request.old.is_none_or(|old| old.spec.selector == *new) {
        return Vec::new();
    }
    let detail = "immutable; delete this pool and create another";
    vec![Violation::invalid("spec.selector", detail).into()]
}

fn max_unavailable(request: &Request<'_>) -> Vec<Problem> {
    let detail = match &request.new.spec.max_unavailable {
        None => return Vec::new(),
        Some(IntOrString::Int(number)) if *number > 0 => return Vec::new(),
        Some(IntOrString::Int(number)) => {
            format!("{number} would block every update; use 1 or more, or a percentage such as 25%")
        }
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|text| text.parse().ok());
            if percent.is_some_and(|percent: u8| (1..=100).contains(&percent)) {
                return Vec::new();
            }
            format!(
                "{text:?} is not a percentage; use a number, or a string from \"1%\" to \"100%\""
            )
        }
    };
    vec![Violation::invalid("spec.maxUnavailable", detail).into()]
}

fn update_strategy(request: &Request<'_>) -> Vec<Problem> {
    let Some(strategy) = &request.new.spec.update_strategy else {
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

fn scale_in_strategy(request: &Request<'_>) -> Vec<Problem> {
    let Some(strategy) = &request.new.spec.scale_in_strategy else {
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

fn at_most_one(field: &str, given: [bool; 3]) -> Vec<Problem> {
    if given.into_iter().filter(|given| *given).count() <= 1 {
        return Vec::new();
    }
    let detail = "more than one of unmanaged, opportunistic and proactive; choose one";
    vec![Violation::invalid(field, detail).into()]
}
