//! The list of all checks of a VM.

use validation::{Rule, Subject, Violation};

use super::{
    busy, data_volumes,
    input::{Check, Input},
    matchers, run_state, sizes, template, volume_requests,
};

/// All checks of the VM's own fields, in the order their violations are reported.
#[rustfmt::skip]
pub const ALL: &[Rule<Check>] = &[
    Rule::new("vm.matchers", Subject::VmInstancetype, "ambiguous references to instance type and preference", matchers::matchers),
    Rule::new("vm.revisions", Subject::VmInstancetype, "a new instance type or preference with the old revision", matchers::revisions),
    Rule::new("vm.instancetype-spread", Subject::VmInstancetype, "vCPUs that cannot be spread evenly as the preference requests", sizes::check_spread),
    Rule::new("vm.instancetype-conflicts", Subject::VmInstancetype, "fields that the instance type sets", sizes::check_conflicts),
    Rule::new("vm.preference-requirements", Subject::VmInstancetype, "less than the preference requires", sizes::check_requirements),
    Rule::new("vm.template", Subject::VmTemplate, "missing template", template::is_given),
    Rule::new("vm.data-volume-templates", Subject::DataVolumeTemplates, "data volume templates without name, unused, or in another namespace", data_volumes::templates),
    Rule::new("vm.data-volume-storage", Subject::DataVolumeTemplates, "data volume templates without exactly one of pvc and storage", data_volumes::storage),
    Rule::new("vm.data-volume-source", Subject::DataVolumeTemplates, "data volume templates without exactly one source", data_volumes::sources),
    Rule::new("vm.run-strategy", Subject::RunStrategy, "not exactly one of running and runStrategy, or an unknown one", run_state::strategy),
    Rule::new("vm.receiver", Subject::RunStrategy, "WaitAsReceiver without its feature gate", run_state::receiver),
    Rule::new("vm.live-update", Subject::LiveUpdate, "memory maximum that the guest cannot grow to", run_state::max_guest),
    Rule::new("vm.snapshot-in-progress", Subject::SnapshotInProgress, "volumes or run strategy changed during a snapshot", busy::snapshot),
    Rule::new("vm.restore-in-progress", Subject::SnapshotInProgress, "run strategy changed during a restore", busy::restore),
    Rule::new("vm.volume-requests", Subject::VolumeRequests, "hot-plug requests that contradict each other or the disks", volume_requests::requests),
];

/// Checks a new or changed VM: its own fields, and its template as the VMI it will become.
pub fn validate(input: &Input<'_>) -> Vec<Violation> {
    let mut found: Vec<Violation> = ALL
        .iter()
        .flat_map(|rule| rule.attribute((rule.apply)(input)))
        .collect();
    found.extend(template::violations(input));
    found
}

/// Subjects of the rules that apply to a write to the status subresource.
const STATUS_SUBJECTS: &[Subject] = &[Subject::SnapshotInProgress, Subject::VolumeRequests];

/// Checks a change of the status only.
pub fn validate_status(input: &Input<'_>) -> Vec<Violation> {
    ALL.iter()
        .filter(|rule| STATUS_SUBJECTS.contains(&rule.subject))
        .flat_map(|rule| rule.attribute((rule.apply)(input)))
        .collect()
}
