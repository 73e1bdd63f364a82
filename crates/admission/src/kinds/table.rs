//! The table of kinds: from the JSON of an admission request to the typed rules of its kind.

use cluster_config::ClusterConfig;
use defaults::Environment;
use kubevirt_api::{
    VirtualMachine,
    backup::{VirtualMachineBackup, VirtualMachineBackupTracker},
    backup_restore::VirtualMachineBackupRestore,
    clone::VirtualMachineClone,
    export::VirtualMachineExport,
    instancetype::{VirtualMachineClusterInstancetype, VirtualMachineInstancetype},
    kubevirt::KubeVirt,
    migration_policy::MigrationPolicy,
    migration_request::VirtualMachineInstanceMigration,
    plugin::Plugin,
    pool::VirtualMachinePool,
    preference::{VirtualMachineClusterPreference, VirtualMachinePreference},
    preset::VirtualMachineInstancePreset,
    replica_set::VirtualMachineInstanceReplicaSet,
    restore::VirtualMachineRestore,
    snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotContent},
    template::{VirtualMachineTemplate, VirtualMachineTemplateRequest},
};
use serde_json::Value;
use validation::{Rule, Summary, Violation};

use super::{
    kind::{Findings, Kind, Operation, TypedRequest, validate},
    related::{Lookup, Related},
};
use crate::{checks::Requester, request::read_object, unsupported};

/// A kind in the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub group: &'static str,
    pub kind: &'static str,
    read: fn(&RawRequest<'_>) -> Result<(), Violation>,
    validate: fn(&RawRequest<'_>) -> Result<Findings, Violation>,
    fill: fn(&RawRequest<'_>) -> Result<Option<Filled>, Violation>,
    lookups: fn(&RawRequest<'_>) -> Result<Vec<Lookup>, Violation>,
    rules: fn() -> Vec<Summary>,
}

/// An object before and after defaults.
#[derive(Clone, Debug)]
pub(crate) struct Filled {
    pub(crate) before: Value,
    pub(crate) after: Value,
}

/// All kinds that are checked here.
pub const ROWS: &[Row] = &[
    row::<KubeVirt>(KubeVirt::GROUP, KubeVirt::KIND),
    row::<VirtualMachineInstanceMigration>(
        VirtualMachineInstanceMigration::GROUP,
        VirtualMachineInstanceMigration::KIND,
    ),
    row::<VirtualMachineInstanceReplicaSet>(
        VirtualMachineInstanceReplicaSet::GROUP,
        VirtualMachineInstanceReplicaSet::KIND,
    ),
    row::<VirtualMachineInstancePreset>(
        VirtualMachineInstancePreset::GROUP,
        VirtualMachineInstancePreset::KIND,
    ),
    row::<VirtualMachineSnapshot>(VirtualMachineSnapshot::GROUP, VirtualMachineSnapshot::KIND),
    row::<VirtualMachineSnapshotContent>(
        VirtualMachineSnapshotContent::GROUP,
        VirtualMachineSnapshotContent::KIND,
    ),
    row::<VirtualMachineRestore>(VirtualMachineRestore::GROUP, VirtualMachineRestore::KIND),
    row::<VirtualMachineClone>(VirtualMachineClone::GROUP, VirtualMachineClone::KIND),
    row::<VirtualMachineExport>(VirtualMachineExport::GROUP, VirtualMachineExport::KIND),
    row::<VirtualMachineInstancetype>(
        VirtualMachineInstancetype::GROUP,
        VirtualMachineInstancetype::KIND,
    ),
    row::<VirtualMachineClusterInstancetype>(
        VirtualMachineClusterInstancetype::GROUP,
        VirtualMachineClusterInstancetype::KIND,
    ),
    row::<VirtualMachinePreference>(
        VirtualMachinePreference::GROUP,
        VirtualMachinePreference::KIND,
    ),
    row::<VirtualMachineClusterPreference>(
        VirtualMachineClusterPreference::GROUP,
        VirtualMachineClusterPreference::KIND,
    ),
    row::<VirtualMachinePool>(VirtualMachinePool::GROUP, VirtualMachinePool::KIND),
    row::<MigrationPolicy>(MigrationPolicy::GROUP, MigrationPolicy::KIND),
    row::<VirtualMachineBackup>(VirtualMachineBackup::GROUP, VirtualMachineBackup::KIND),
    row::<VirtualMachineBackupTracker>(
        VirtualMachineBackupTracker::GROUP,
        VirtualMachineBackupTracker::KIND,
    ),
    row::<VirtualMachineBackupRestore>(
        VirtualMachineBackupRestore::GROUP,
        VirtualMachineBackupRestore::KIND,
    ),
    row::<Plugin>(Plugin::GROUP, Plugin::KIND),
    row::<VirtualMachineTemplate>(VirtualMachineTemplate::GROUP, VirtualMachineTemplate::KIND),
    row::<VirtualMachineTemplateRequest>(
        VirtualMachineTemplateRequest::GROUP,
        VirtualMachineTemplateRequest::KIND,
    ),
];

/// The `request` of a review with the context of its response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRequest<'a> {
    pub(crate) raw: &'a Value,
    pub(crate) operation: Operation,
    pub(crate) requester: Requester,
    pub(crate) config: &'a ClusterConfig,
    pub(crate) env: Environment<'a>,
    pub(crate) related: &'a Related,
}

/// The row of the kind that a review names.
pub(crate) fn find(kind: &Value) -> Option<&'static Row> {
    ROWS.iter()
        .find(|row| kind["group"] == row.group && kind["kind"] == row.kind)
}

/// The lookups that a review of the validating webhooks needs.
pub fn lookups(review: &Value, config: &ClusterConfig, env: Environment<'_>) -> Vec<Lookup> {
    let raw = &review["request"];
    if raw["subResource"]
        .as_str()
        .is_some_and(|subresource| !subresource.is_empty())
    {
        return lookups_of_subresource(raw);
    }
    let none = Related::default();
    let known = find(&raw["kind"]).zip(Operation::read(&raw["operation"]));
    let lookups = known.map(|(row, operation)| {
        (row.lookups)(&RawRequest {
            raw,
            operation,
            requester: Requester::User,
            config,
            env,
            related: &none,
        })
    });
    // A malformed object needs no lookups: it is refused.
    lookups.and_then(Result::ok).unwrap_or_default()
}

/// The only checks of a subresource that need a lookup are those of a VM's status.
fn lookups_of_subresource(raw: &Value) -> Vec<Lookup> {
    let is_vm_status =
        raw["kind"]["kind"] == VirtualMachine::KIND && raw["subResource"] == "status";
    let requests = &raw["object"]["status"]["volumeRequests"];
    let text = |key: &str| raw[key].as_str().unwrap_or_default().to_owned();
    if !is_vm_status || requests.as_array().is_none_or(Vec::is_empty) {
        return Vec::new();
    }
    vec![Lookup::Vmi {
        namespace: text("namespace"),
        name: text("name"),
    }]
}

/// All rules of the table, checks and defaults.
pub(crate) fn rules() -> Vec<Summary> {
    let mut all: Vec<Summary> = Vec::new();
    for summary in ROWS.iter().flat_map(|row| (row.rules)()) {
        // Kinds of one group share rules.
        if !all.contains(&summary) {
            all.push(summary);
        }
    }
    all
}

impl Operation {
    pub(crate) fn read(value: &Value) -> Option<Self> {
        match value.as_str()? {
            "CREATE" => Some(Self::Create),
            "UPDATE" => Some(Self::Update),
            "DELETE" => Some(Self::Delete),
            _ => None,
        }
    }
}

impl Row {
    pub(crate) fn validate(&self, request: &RawRequest<'_>) -> Result<Findings, Violation> {
        let is_terminating = request.operation == Operation::Update
            && request.raw["object"]["metadata"]["deletionTimestamp"].is_string();
        if is_terminating {
            return Ok(Findings::default());
        }
        let mut findings = (self.validate)(request)?;
        if request.operation == Operation::Create {
            let warning = unsupported::kind(self.group, self.kind);
            findings.warnings.extend(warning);
        }
        Ok(findings)
    }

    /// Checks that the objects of a request match the types of the kind.
    pub(crate) fn read(&self, request: &RawRequest<'_>) -> Result<(), Violation> {
        (self.read)(request)
    }

    /// Fills defaults into a new object; `None` if there are none.
    pub(crate) fn fill(&self, request: &RawRequest<'_>) -> Result<Option<Filled>, Violation> {
        if request.operation != Operation::Create {
            return Ok(None);
        }
        (self.fill)(request)
    }
}

const fn row<T: Kind>(group: &'static str, kind: &'static str) -> Row {
    Row {
        group,
        kind,
        read: |request| with_typed::<T, _>(request, |_| ()),
        validate: |request| with_typed::<T, _>(request, validate),
        fill: fill::<T>,
        lookups: |request| with_typed::<T, _>(request, T::lookups),
        rules: || {
            let checks = T::RULES.iter().chain(T::DELETION).map(Rule::summary);
            checks
                .chain(T::DEFAULTS.iter().map(Rule::summary))
                .collect()
        },
    }
}

/// Deserializes the objects of a request and calls a function with them.
fn with_typed<T: Kind, R>(
    request: &RawRequest<'_>,
    function: impl FnOnce(&TypedRequest<'_, T>) -> R,
) -> Result<R, Violation> {
    let read = |name| read_object::<T>(request.raw, name);
    let (new, old) = match request.operation {
        Operation::Create => (read("object")?, None),
        Operation::Update => (read("object")?, Some(read("oldObject")?)),
        Operation::Delete => (read("oldObject")?, None),
    };
    Ok(function(&TypedRequest {
        operation: request.operation,
        new: &new,
        old: old.as_ref(),
        api_version: request.raw["object"]["apiVersion"]
            .as_str()
            .unwrap_or_default(),
        requester: request.requester,
        config: request.config,
        env: request.env,
        related: request.related,
    }))
}

fn fill<T: Kind>(request: &RawRequest<'_>) -> Result<Option<Filled>, Violation> {
    if T::DEFAULTS.is_empty() {
        return Ok(None);
    }
    let before: T = read_object(request.raw, "object")?;
    let mut after = before.clone();
    for rule in T::DEFAULTS {
        (rule.apply)(&mut after, request.env);
    }
    let to_value = |object: &T| serde_json::to_value(object).unwrap_or_default();
    Ok(Some(Filled {
        before: to_value(&before),
        after: to_value(&after),
    }))
}

#[cfg(test)]
mod tests;
