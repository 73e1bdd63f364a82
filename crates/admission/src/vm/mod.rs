//! Whether a `VirtualMachine` may be written.
//!
//! A VM is judged as the instance it will make: its template is completed by a copy of all
//! defaults, then goes through the checks of instances.

mod busy;
mod data_volumes;
mod matchers;
mod run_state;
mod sizes;
mod volume_requests;

use std::collections::BTreeMap;

use kubevirt_api::{
    VirtualMachine, VirtualMachineInstance, instancetype::VirtualMachineInstancetypeSpec,
    preference::VirtualMachinePreferenceSpec, vmi::VirtualMachineInstanceSpec,
};

use crate::{
    ClusterConfig, Surroundings, Violation,
    checks::{self, Occasion, Origin, Requester},
    gates,
    rules::Rule,
};

/// What was found in the cluster that a VM refers to. Absent is what it does not refer to, and
/// what could not be found: that is told when the VM starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found<'a> {
    pub instancetype: Option<&'a VirtualMachineInstancetypeSpec>,
    pub preference: Option<&'a VirtualMachinePreferenceSpec>,
    /// The instance of the same name.
    pub instance: Option<&'a VirtualMachineInstance>,
}

/// What a check may look at.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub vm: &'a VirtualMachine,
    pub old: Option<&'a VirtualMachine>,
    pub found: Found<'a>,
    pub config: &'a ClusterConfig,
    pub requester: Requester,
    pub around: Surroundings<'a>,
}

impl<'a> Input<'a> {
    fn occasion(&self) -> Occasion {
        match self.old {
            Some(_) => Occasion::Change,
            None => Occasion::Creation,
        }
    }

    fn template(&self) -> Option<&'a VirtualMachineInstanceSpec> {
        self.vm.spec.template.spec.as_ref()
    }
}

pub type Check = fn(&Input<'_>) -> Vec<Violation>;

/// Every check of the VM's own fields, in the order of the answer.
#[rustfmt::skip]
pub const ALL: &[Rule<Check>] = &[
    Rule::new("vm.matchers", "3", "instance type and preference named unclearly", matchers::matchers),
    Rule::new("vm.revisions", "3", "another instance type or preference under the old revision", matchers::revisions),
    Rule::new("vm.instancetype-spread", "3.1", "vCPUs that cannot be spread as the preference prefers", sizes::spread),
    Rule::new("vm.instancetype-conflicts", "3.1", "fields that the instance type decides", sizes::conflicts),
    Rule::new("vm.preference-requirements", "3.2", "less than the preference demands", sizes::requirements),
    Rule::new("vm.template", "3.4", "no template", template_is_given),
    Rule::new("vm.data-volume-templates", "3.5", "data volume templates without name, unused or elsewhere", data_volumes::templates),
    Rule::new("vm.data-volume-storage", "3.5", "data volume templates without exactly one of pvc and storage", data_volumes::storage),
    Rule::new("vm.data-volume-source", "3.5", "data volume templates without exactly one source", data_volumes::sources),
    Rule::new("vm.run-strategy", "3.6", "not exactly one of running and runStrategy, or an unknown one", run_state::strategy),
    Rule::new("vm.receiver", "3.6", "waiting as receiver without the gate", run_state::receiver),
    Rule::new("vm.live-update", "3.7", "head room that the guest cannot grow into", run_state::head_room),
    Rule::new("vm.snapshot-in-progress", "3.8", "volumes or run state changed during a snapshot", busy::snapshot),
    Rule::new("vm.restore-in-progress", "3.8", "run strategy changed during a restore", busy::restore),
    Rule::new("vm.volume-requests", "3.9", "requests to plug volumes that contradict each other or the disks", volume_requests::requests),
];

/// Checks a new or changed object: its own fields, and its template as the instance it will be.
pub fn validate(input: &Input<'_>) -> Vec<Violation> {
    let mut found: Vec<Violation> = ALL
        .iter()
        .flat_map(|rule| rule.sign((rule.apply)(input)))
        .collect();
    found.extend(template(input));
    found
}

/// Sections of the rules that a write to the status is put to: it changes nothing else.
const OF_STATUS: &[&str] = &["3.8", "3.9"];

/// Checks a change of the status alone.
pub fn validate_status(input: &Input<'_>) -> Vec<Violation> {
    ALL.iter()
        .filter(|rule| OF_STATUS.contains(&rule.section))
        .flat_map(|rule| rule.sign((rule.apply)(input)))
        .collect()
}

/// What the author should know although nothing is wrong.
pub fn warnings(vm: &VirtualMachine, config: &ClusterConfig) -> Vec<String> {
    let old_switch = "spec.running is deprecated; use spec.runStrategy: Always instead of true, \
                      Halted instead of false";
    let mut all = Vec::new();
    if vm.spec.running.is_some() {
        all.push(old_switch.to_owned());
    }
    let mut missing = Vec::new();
    if let Some(spec) = &vm.spec.template.spec {
        let default = &config.default_architecture;
        all.extend(gates::deprecated_in_use(spec, &config.gates, default));
        missing.extend(model::unsupported::in_spec(
            spec,
            Origin::TemplateOfVm.path(),
        ));
    }
    all.extend(missing.iter().map(model::Unsupported::warning));
    all
}

fn template_is_given(input: &Input<'_>) -> Vec<Violation> {
    let template = &input.vm.spec.template;
    if template.spec.is_some() {
        return Vec::new();
    }
    let field = match template.metadata {
        Some(_) => "spec.template.spec",
        None => "spec.template",
    };
    let detail = "missing; describe the guest in spec.template.spec, at least domain";
    vec![Violation::required(field, detail)]
}

/// The template's violations as those of the instance.
fn template(input: &Input<'_>) -> Vec<Violation> {
    let completed = match sizes::completed(input) {
        Some(Ok(completed)) => completed,
        Some(Err(found)) => return found,
        None => return Vec::new(),
    };
    let none = BTreeMap::new();
    let metadata = input.vm.spec.template.metadata.as_ref();
    let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
    checks::run(&checks::Input {
        spec: &completed.spec,
        labels: labels.unwrap_or(&none),
        annotations: &completed.annotations,
        config: input.config,
        origin: Origin::TemplateOfVm,
        occasion: input.occasion(),
        requester: input.requester,
    })
}
