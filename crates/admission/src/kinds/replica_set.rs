//! Replica sets of VMIs.

use std::collections::BTreeMap;

use kubevirt_api::replica_set::VirtualMachineInstanceReplicaSet;
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    selector,
};
use crate::checks::{self, Input, Origin};

type Request<'a> = TypedRequest<'a, VirtualMachineInstanceReplicaSet>;

impl Kind for VirtualMachineInstanceReplicaSet {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "replica-set.template-given",
            Subject::ReplicaSet,
            "there is a template",
            template_given,
        ),
        Rule::new(
            "replica-set.template",
            Subject::ReplicaSet,
            "the template is a valid VMI",
            template,
        ),
        Rule::new(
            "replica-set.selector",
            Subject::ReplicaSet,
            "the selector matches the template's labels",
            |request| {
                let metadata = request.new.spec.template.metadata.as_ref();
                let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
                selector::matches_template(&request.new.spec.selector, labels, "spec.template")
            },
        ),
    ];
}

fn template_given(request: &Request<'_>) -> Vec<Problem> {
    if request.new.spec.template.spec.is_some() {
        return Vec::new();
    }
    let detail = "missing; describe the VMI of each replica";
    vec![Violation::required("spec.template", detail).into()]
}

fn template(request: &Request<'_>) -> Vec<Problem> {
    let template = &request.new.spec.template;
    let Some(mut spec) = template.spec.clone() else {
        return Vec::new();
    };
    let path = "spec.template.spec";
    let filled = defaults::vmi::set_spec(&mut spec, request.config, request.env, path);
    let found = filled.err().unwrap_or_else(|| {
        let none = BTreeMap::new();
        let metadata = template.metadata.clone().unwrap_or_default();
        checks::run(&Input {
            spec: &spec,
            labels: metadata.labels.as_ref().unwrap_or(&none),
            annotations: metadata.annotations.as_ref().unwrap_or(&none),
            config: request.config,
            origin: Origin::ReplicaSetTemplate,
            occasion: request.occasion(),
            requester: request.requester,
        })
    });
    found.into_iter().map(Problem::from).collect()
}
