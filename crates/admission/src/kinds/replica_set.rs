//! Sets of like instances.

use std::collections::BTreeMap;

use kubevirt_api::replica_set::VirtualMachineInstanceReplicaSet;

use super::{Asked, Check, Fault, Kind, selector};
use crate::{
    Violation,
    checks::{self, Input, Origin},
    defaults,
    rules::Rule,
};

type Question<'a> = Asked<'a, VirtualMachineInstanceReplicaSet>;

impl Kind for VirtualMachineInstanceReplicaSet {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "replica-set.template-given",
            "4",
            "there is a template",
            template_given,
        ),
        Rule::new(
            "replica-set.template",
            "4",
            "the template is a good instance",
            template,
        ),
        Rule::new(
            "replica-set.selector",
            "4",
            "the selector matches the template's labels",
            |asked| {
                let metadata = asked.new.spec.template.metadata.as_ref();
                let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
                selector::matches_template(&asked.new.spec.selector, labels, "spec.template")
            },
        ),
    ];
}

fn template_given(asked: &Question<'_>) -> Vec<Fault> {
    if asked.new.spec.template.spec.is_some() {
        return Vec::new();
    }
    let detail = "missing; describe the instance that each replica is";
    vec![Violation::required("spec.template", detail).into()]
}

fn template(asked: &Question<'_>) -> Vec<Fault> {
    let template = &asked.new.spec.template;
    let Some(mut spec) = template.spec.clone() else {
        return Vec::new();
    };
    let path = "spec.template.spec";
    let filled = defaults::vmi::set_spec(&mut spec, asked.config, asked.around, path);
    let found = filled.err().unwrap_or_else(|| {
        let none = BTreeMap::new();
        let metadata = template.metadata.clone().unwrap_or_default();
        checks::run(&Input {
            spec: &spec,
            labels: metadata.labels.as_ref().unwrap_or(&none),
            annotations: metadata.annotations.as_ref().unwrap_or(&none),
            config: asked.config,
            origin: Origin::TemplateOfSet,
            occasion: asked.occasion(),
            requester: asked.requester,
        })
    });
    found.into_iter().map(Fault::from).collect()
}
