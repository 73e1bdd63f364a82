//! Defaults and checks of the kinds beside VM and VMI: one file a kind or a group.
//!
//! A kind is a row of [`ROWS`]; its checks are a list of named rules, each a pure function, in the
//! order of the answer. What a check must know of other objects is in [`Neighbours`]: a row says
//! what it needs, whoever serves the webhook looks it up.
//!
//! Invariants: nothing here reads a cluster; a plain refusal (one without a field, such as a gate
//! that is off) ends the list, all other faults are told together; an object on its way out is not
//! checked, so that no rule can keep it from going.
//!
//! To add a kind: implement [`Kind`], add its row. To add a rule: its function and its row in
//! `RULES`, and cases under `tests/kinds/`.

mod backup;
mod clone;
pub mod eviction;
mod export;
mod instancetype;
mod kubevirt;
mod migration;
mod migration_policy;
mod neighbours;
mod numbers;
mod patches;
mod plugin;
mod pool;
mod preference;
mod preset;
mod references;
mod replica_set;
mod restore;
mod selector;
mod snapshot;
mod template;

use kubevirt_api::{
    VirtualMachine,
    backup::{VirtualMachineBackup, VirtualMachineBackupTracker},
    clone::VirtualMachineClone,
    duration::Duration,
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
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use neighbours::{Need, Neighbours};

use crate::{
    ClusterConfig, Surroundings, Violation,
    checks::{Occasion, Requester},
    review::read_object,
    rules::{Rule, Summary},
    unsupported,
};

/// What is being done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

/// What a check may look at.
#[derive(Debug)]
pub struct Asked<'a, T> {
    pub operation: Operation,
    /// As it would be written; as it is, when it is deleted.
    pub new: &'a T,
    /// As it was, when it is changed.
    pub old: Option<&'a T>,
    /// As written in the request; empty when it does not say.
    pub api_version: &'a str,
    pub requester: Requester,
    pub config: &'a ClusterConfig,
    pub around: Surroundings<'a>,
    pub among: &'a Neighbours,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A field is wrong.
    Field(Violation),
    /// The request as a whole cannot be had.
    Plain(String),
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Self::Field(violation)
    }
}

pub(crate) type Check<T> = fn(&Asked<'_, T>) -> Vec<Fault>;
pub(crate) type Fill<T> = fn(&mut T, Surroundings<'_>);

/// A kind of object and how it is judged.
pub(crate) trait Kind: DeserializeOwned + Serialize + Clone + 'static {
    /// Every check of what is written, in the order of the answer.
    const RULES: &'static [Rule<Check<Self>>];
    /// Every check of a deletion.
    const REMOVAL: &'static [Rule<Check<Self>>] = &[];
    /// What is filled into new objects.
    const DEFAULTS: &'static [Rule<Fill<Self>>] = &[];

    /// What the checks must know of other objects.
    fn needs(_: &Asked<'_, Self>) -> Vec<Need> {
        Vec::new()
    }

    /// What the author should know although nothing is wrong.
    fn warnings(_: &Asked<'_, Self>) -> Vec<String> {
        Vec::new()
    }
}

/// The answer to a question about one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    pub violations: Vec<Violation>,
    /// Rule and message of a refusal without a field.
    pub plain: Option<(&'static str, String)>,
    pub warnings: Vec<String>,
}

/// Runs the checks of a kind.
pub(crate) fn judge<T: Kind>(asked: &Asked<'_, T>) -> Judgement {
    let mut judgement = Judgement {
        warnings: T::warnings(asked),
        ..Judgement::default()
    };
    let rules = match asked.operation {
        Operation::Create | Operation::Update => T::RULES,
        Operation::Delete => T::REMOVAL,
    };
    for rule in rules {
        for fault in (rule.apply)(asked) {
            match fault {
                Fault::Field(violation) => judgement.violations.push(violation.of(rule.id)),
                // Wrong fields are worth more to the author than what would stop him anyway.
                Fault::Plain(message) => {
                    if judgement.violations.is_empty() {
                        judgement.plain = Some((rule.id, message));
                    }
                    return judgement;
                }
            }
        }
    }
    judgement
}

/// A kind in the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub group: &'static str,
    pub kind: &'static str,
    read: fn(&Request<'_>) -> Result<(), Violation>,
    judge: fn(&Request<'_>) -> Result<Judgement, Violation>,
    fill: fn(&Request<'_>) -> Result<Option<[Value; 2]>, Violation>,
    needs: fn(&Request<'_>) -> Result<Vec<Need>, Violation>,
    rules: fn() -> Vec<Summary>,
}

/// Every kind that is judged here.
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
    row::<Plugin>(Plugin::GROUP, Plugin::KIND),
    row::<VirtualMachineTemplate>(VirtualMachineTemplate::GROUP, VirtualMachineTemplate::KIND),
    row::<VirtualMachineTemplateRequest>(
        VirtualMachineTemplateRequest::GROUP,
        VirtualMachineTemplateRequest::KIND,
    ),
];

/// The `request` of a review and what belongs to its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) raw: &'a Value,
    pub(crate) operation: Operation,
    pub(crate) requester: Requester,
    pub(crate) config: &'a ClusterConfig,
    pub(crate) around: Surroundings<'a>,
    pub(crate) among: &'a Neighbours,
}

/// The row of a kind, given as reviews name it.
pub(crate) fn find(kind: &Value) -> Option<&'static Row> {
    ROWS.iter()
        .find(|row| kind["group"] == row.group && kind["kind"] == row.kind)
}

/// What must be looked up before a review of the validating webhooks can be answered.
pub fn needs(review: &Value, config: &ClusterConfig, around: Surroundings<'_>) -> Vec<Need> {
    let raw = &review["request"];
    if raw["subResource"]
        .as_str()
        .is_some_and(|part| !part.is_empty())
    {
        return of_part(raw);
    }
    let none = Neighbours::default();
    let asked = find(&raw["kind"]).zip(Operation::read(&raw["operation"]));
    let found = asked.map(|(row, operation)| {
        (row.needs)(&Request {
            raw,
            operation,
            requester: Requester::User,
            config,
            around,
            among: &none,
        })
    });
    // What cannot be read needs nothing: it is refused.
    found.and_then(Result::ok).unwrap_or_default()
}

/// Of all subresources, only the status of a VM is judged by what else there is.
fn of_part(raw: &Value) -> Vec<Need> {
    let is_vm = raw["kind"]["kind"] == VirtualMachine::KIND && raw["subResource"] == "status";
    let requests = &raw["object"]["status"]["volumeRequests"];
    let text = |key: &str| raw[key].as_str().unwrap_or_default().to_owned();
    if !is_vm || requests.as_array().is_none_or(Vec::is_empty) {
        return Vec::new();
    }
    vec![Need::Instance {
        namespace: text("namespace"),
        name: text("name"),
    }]
}

/// Every rule of the kinds here, checks and defaults.
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
    pub(crate) fn read(word: &Value) -> Option<Self> {
        match word.as_str()? {
            "CREATE" => Some(Self::Create),
            "UPDATE" => Some(Self::Update),
            "DELETE" => Some(Self::Delete),
            _ => None,
        }
    }
}

impl Row {
    pub(crate) fn judge(&self, request: &Request<'_>) -> Result<Judgement, Violation> {
        let is_going = request.operation == Operation::Update
            && request.raw["object"]["metadata"]["deletionTimestamp"].is_string();
        if is_going {
            return Ok(Judgement::default());
        }
        let mut judgement = (self.judge)(request)?;
        if request.operation == Operation::Create {
            let warning = unsupported::kind(self.group, self.kind);
            judgement.warnings.extend(warning);
        }
        Ok(judgement)
    }

    /// Whether the objects of a request are of the types that the kind has.
    pub(crate) fn read(&self, request: &Request<'_>) -> Result<(), Violation> {
        (self.read)(request)
    }

    /// The object before and after defaults, if there is anything to fill in.
    pub(crate) fn fill(&self, request: &Request<'_>) -> Result<Option<[Value; 2]>, Violation> {
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
        read: |request| with::<T, _>(request, |_| ()),
        judge: |request| with::<T, _>(request, judge),
        fill: fill::<T>,
        needs: |request| with::<T, _>(request, T::needs),
        rules: || {
            let checks = T::RULES.iter().chain(T::REMOVAL).map(Rule::summary);
            checks
                .chain(T::DEFAULTS.iter().map(Rule::summary))
                .collect()
        },
    }
}

/// Reads the objects of a request and puts a question about them.
fn with<T: Kind, A>(
    request: &Request<'_>,
    question: impl FnOnce(&Asked<'_, T>) -> A,
) -> Result<A, Violation> {
    let read = |name| read_object::<T>(request.raw, name);
    let (new, old) = match request.operation {
        Operation::Create => (read("object")?, None),
        Operation::Update => (read("object")?, Some(read("oldObject")?)),
        Operation::Delete => (read("oldObject")?, None),
    };
    Ok(question(&Asked {
        operation: request.operation,
        new: &new,
        old: old.as_ref(),
        api_version: request.raw["object"]["apiVersion"]
            .as_str()
            .unwrap_or_default(),
        requester: request.requester,
        config: request.config,
        around: request.around,
        among: request.among,
    }))
}

fn fill<T: Kind>(request: &Request<'_>) -> Result<Option<[Value; 2]>, Violation> {
    if T::DEFAULTS.is_empty() {
        return Ok(None);
    }
    let before: T = read_object(request.raw, "object")?;
    let mut after = before.clone();
    for rule in T::DEFAULTS {
        (rule.apply)(&mut after, request.around);
    }
    Ok(Some([&before, &after].map(|object| {
        serde_json::to_value(object).unwrap_or_default()
    })))
}

impl<T> Asked<'_, T> {
    fn is_new(&self) -> bool {
        self.operation == Operation::Create
    }

    fn occasion(&self) -> Occasion {
        if self.is_new() {
            Occasion::Creation
        } else {
            Occasion::Change
        }
    }
}

/// Refuses new objects of a kind whose gate is off.
fn behind<T>(asked: &Asked<'_, T>, gate: &str) -> Vec<Fault> {
    if !asked.is_new() || asked.config.has_gate(gate) {
        return Vec::new();
    }
    vec![Fault::Plain(format!(
        "feature gate {gate} is off; add it to \
         spec.configuration.developerConfiguration.featureGates of the KubeVirt object"
    ))]
}

/// Refuses a change of what is fixed once made.
fn fixed<T: PartialEq>(old: Option<&T>, new: &T, what: &str) -> Vec<Fault> {
    if old.is_none_or(|old| old == new) {
        return Vec::new();
    }
    let detail = format!("fixed once made; delete this {what} and make another");
    vec![Violation::invalid("spec", detail).into()]
}

fn is_empty(text: Option<&str>) -> bool {
    text.is_none_or(str::is_empty)
}

/// What the original could not even read is refused by name here.
fn duration(field: &str, written: Option<&Duration>) -> Vec<Fault> {
    let error = written.and_then(|written| written.parse().err());
    let fault = error.map(|error| Violation::invalid(field, error).into());
    fault.into_iter().collect()
}

#[cfg(test)]
mod tests;
