//! Migrations of a running guest.

use defaults::Environment;
use kubevirt_api::{
    conditions, labels,
    migration_request::{
        VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationPhase,
        VirtualMachineInstanceMigrationSpec,
    },
    vmi_status::{VirtualMachineInstanceConditionType, VirtualMachineInstancePhase},
};
use reasons::Reason;
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Fill, Kind, Problem, TypedRequest},
    refusals::is_empty,
    related::Lookup,
};
use crate::checks::Requester;

type Request<'a> = TypedRequest<'a, VirtualMachineInstanceMigration>;

const GATE: &str = "DecentralizedLiveMigration";
/// Maximum length of a label value.
const MAX_LABEL: usize = 63;
/// Maximum length of a migrationID.
const MAX_ID: usize = 253;
/// Length of the hash suffix of a shortened name.
const HASH_LENGTH: usize = 8;

impl Kind for VirtualMachineInstanceMigration {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "migration.instance",
            Subject::Migration,
            "a VMI is named",
            names_vmi,
        ),
        Rule::new(
            "migration.priority",
            Subject::Migration,
            "only the controller sets a priority",
            priority,
        ),
        Rule::new(
            "migration.decentralized-gate",
            Subject::Migration,
            "sendTo and receive need their feature gate",
            gate,
        ),
        Rule::new(
            "migration.ids",
            Subject::Migration,
            "sendTo and receive have a migrationID",
            ids,
        ),
        Rule::new(
            "migration.ends",
            Subject::Migration,
            "sendTo and receive exclude each other",
            ends,
        ),
        Rule::new(
            "migration.address",
            Subject::Migration,
            "connectURL of sendTo is this cluster",
            address,
        ),
        Rule::new(
            "migration.fixed",
            Subject::Migration,
            "the spec is immutable",
            fixed,
        ),
        Rule::new(
            "migration.label",
            Subject::Migration,
            "the label of the VMI is immutable until the migration ends",
            label,
        ),
        Rule::new(
            "migration.instance-runs",
            Subject::Migration,
            "the VMI exists and is not in a final phase",
            vmi_is_active,
        ),
        Rule::new(
            "migration.migratable",
            Subject::Migration,
            "the VMI is live-migratable",
            migratable,
        ),
        Rule::new(
            "migration.alone",
            Subject::Migration,
            "no other migration of the VMI is in progress",
            is_only_migration,
        ),
    ];

    const DEFAULTS: &'static [Rule<Fill<Self>>] = &[Rule::new(
        "migration.fill-label",
        Subject::Migration,
        "label with the name of the VMI",
        fill_label,
    )];

    fn lookups(request: &Request<'_>) -> Vec<Lookup> {
        let namespace = request.new.metadata.namespace.clone().unwrap_or_default();
        let name = vmi_name(&request.new.spec).to_owned();
        if !request.is_create() {
            return Vec::new();
        }
        vec![
            Lookup::Vmi {
                namespace: namespace.clone(),
                name: name.clone(),
            },
            Lookup::Migrations {
                namespace,
                label: label_value(&name),
            },
        ]
    }
}

fn names_vmi(request: &Request<'_>) -> Vec<Problem> {
    if !request.is_create() || !is_empty(request.new.spec.vmi_name.as_deref()) {
        return Vec::new();
    }
    let detail = "missing; name the VirtualMachineInstance to migrate";
    vec![Violation::required("spec.vmiName", detail).into()]
}

fn priority(request: &Request<'_>) -> Vec<Problem> {
    let is_given = request.new.spec.priority.is_some();
    if !request.is_create() || !is_given || request.requester == Requester::Component {
        return Vec::new();
    }
    let detail = "reserved for the system; leave priority out";
    vec![Violation::forbidden("spec.migrationPriority", detail).into()]
}

fn gate(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    let parts = [
        ("sendTo", spec.send_to.is_some()),
        ("receive", spec.receive.is_some()),
    ];
    if !request.is_create() || request.config.has_gate(GATE) {
        return Vec::new();
    }
    let problems = parts
        .into_iter()
        .filter(|(_, given)| *given)
        .map(|(part, _)| {
            let detail = format!("feature gate {GATE} is off; leave {part} out or switch it on");
            Violation::not_supported(format!("spec.{part}"), detail).into()
        });
    problems.collect()
}

fn ends(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    if !request.is_create() || spec.send_to.is_none() || spec.receive.is_none() {
        return Vec::new();
    }
    let detail = "a migration sends or receives a guest; leave receive or sendTo out, and create another migration \
                  for the other end";
    vec![Violation::invalid("spec.receive", detail).into()]
}

fn ids(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    let sent = spec.send_to.as_ref().map(|one| &one.migration_id);
    let received = spec.receive.as_ref().map(|one| &one.migration_id);
    let parts = [("sendTo", sent), ("receive", received)];
    if !request.is_create() || !request.config.has_gate(GATE) {
        return Vec::new();
    }
    let given = parts
        .into_iter()
        .filter_map(|(part, id)| Some((part, id?.as_str())));
    let problems = given.filter_map(|(part, id)| {
        let field = format!("spec.{part}.migrationID");
        if id.is_empty() {
            let detail =
                "missing; give both ends an ID that other users cannot guess, such as a UUID";
            return Some(Violation::required(field, detail).into());
        }
        let is_text = id.len() <= MAX_ID && id.bytes().all(|byte| byte.is_ascii_graphic());
        (!is_text).then(|| {
            let detail = format!("give at most {MAX_ID} letters, digits and signs, such as a UUID");
            Violation::invalid(field, detail).into()
        })
    });
    problems.collect()
}

fn address(request: &Request<'_>) -> Vec<Problem> {
    let sent = request.new.spec.send_to.as_ref();
    let sent = sent.filter(|_| request.is_create() && request.config.has_gate(GATE));
    let own = model::SYNCHRONIZATION_ADDRESS;
    if sent.is_none_or(|sent| sent.connect_url == own) {
        return Vec::new();
    }
    let detail = format!(
        "guests move between VirtualMachineInstances of one cluster in this version; give {own}, as \
         status.synchronizationAddresses of the migration that receives"
    );
    vec![Violation::not_supported("spec.sendTo.connectURL", detail).into()]
}

fn fixed(request: &Request<'_>) -> Vec<Problem> {
    if request.old.is_none_or(|old| old.spec == request.new.spec) {
        return Vec::new();
    }
    let detail = "immutable; delete this migration to cancel it, and create another";
    vec![Violation::not_supported("spec", detail).into()]
}

fn label(request: &Request<'_>) -> Vec<Problem> {
    let Some(old) = request.old else {
        return Vec::new();
    };
    let value = |migration: &VirtualMachineInstanceMigration| {
        let found = migration.metadata.labels.as_ref();
        found.and_then(|found| found.get(labels::MIGRATION_VMI_NAME).cloned())
    };
    let before = value(old);
    if before.is_none() || before == value(request.new) || is_finished(request.new) {
        return Vec::new();
    }
    let detail = format!(
        "label {} names the migrating VirtualMachineInstance; do not change it before the migration ends",
        labels::MIGRATION_VMI_NAME
    );
    vec![Violation::not_supported("metadata.labels", detail).into()]
}

fn vmi_is_active(request: &Request<'_>) -> Vec<Problem> {
    if !request.is_create() {
        return Vec::new();
    }
    let name = vmi_name(&request.new.spec);
    let Some(vmi) = &request.related.vmi else {
        return vec![Problem::Request(format!(
            "spec.vmiName: there is no VirtualMachineInstance {name:?}; start its VM first"
        ))];
    };
    let phase = vmi.status.as_ref().and_then(|status| status.phase.as_ref());
    match phase {
        Some(
            phase @ (VirtualMachineInstancePhase::Succeeded | VirtualMachineInstancePhase::Failed),
        ) => {
            let phase = phase.as_str();
            vec![Problem::Request(format!(
                "spec.vmiName: VirtualMachineInstance {name:?} has ended ({phase}); start its VM \
                 first"
            ))]
        }
        _ => Vec::new(),
    }
}

/// In a decentralized migration the other side has its own disks, so shared disks are not required.
fn migratable(request: &Request<'_>) -> Vec<Problem> {
    let Some(vmi) = request.related.vmi.as_ref().filter(|_| request.is_create()) else {
        return Vec::new();
    };
    let spec = &request.new.spec;
    let is_decentralized = spec.send_to.is_some() || spec.receive.is_some();
    let status = vmi.status.clone().unwrap_or_default();
    let kind = VirtualMachineInstanceConditionType::LiveMigratable;
    let Some(condition) = conditions::find(&status.conditions, &kind) else {
        return Vec::new();
    };
    let reason = condition.reason.as_deref().unwrap_or_default();
    let is_tolerated = is_decentralized && reason == Reason::DisksNotLiveMigratable;
    if condition.status != conditions::FALSE || is_tolerated {
        return Vec::new();
    }
    let name = vmi_name(spec);
    let cause = condition.message.as_deref().unwrap_or(reason);
    let remedy = if reason == Reason::LiveMigrationNotSupported {
        "stop and start its VM instead"
    } else {
        "change its VM and restart it"
    };
    vec![Problem::Request(format!(
        "spec.vmiName: VirtualMachineInstance {name:?} cannot be migrated: {cause}; {remedy}"
    ))]
}

fn is_only_migration(request: &Request<'_>) -> Vec<Problem> {
    if !request.is_create() {
        return Vec::new();
    }
    let own = request.new.metadata.name.as_deref();
    let other = request
        .related
        .migrations
        .iter()
        .filter(|other| !is_finished(other) && other.spec.vmi_name == request.new.spec.vmi_name)
        .filter_map(|other| other.metadata.name.as_deref())
        .find(|name| Some(*name) != own);
    let problem = other.map(|other| {
        Problem::Request(format!(
            "spec.vmiName: migration {other:?} of this VirtualMachineInstance is in progress; wait \
             for it or delete it"
        ))
    });
    problem.into_iter().collect()
}

fn is_finished(migration: &VirtualMachineInstanceMigration) -> bool {
    use VirtualMachineInstanceMigrationPhase::{Failed, Succeeded};

    let phase = migration
        .status
        .as_ref()
        .and_then(|status| status.phase.as_ref());
    matches!(phase, Some(Succeeded | Failed))
}

fn vmi_name(spec: &VirtualMachineInstanceMigrationSpec) -> &str {
    spec.vmi_name.as_deref().unwrap_or_default()
}

fn fill_label(migration: &mut VirtualMachineInstanceMigration, _: Environment<'_>) {
    let name = vmi_name(&migration.spec).to_owned();
    if name.is_empty() {
        return;
    }
    let found = migration.metadata.labels.get_or_insert_default();
    found.insert(labels::MIGRATION_VMI_NAME.to_owned(), label_value(&name));
}

/// A name as a label value; a long name is shortened and made unique by a hash.
fn label_value(name: &str) -> String {
    if name.len() <= MAX_LABEL {
        return name.to_owned();
    }
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes());
    let hash: String = hash
        .simple()
        .to_string()
        .chars()
        .take(HASH_LENGTH)
        .collect();
    let kept: String = name.chars().take(MAX_LABEL - HASH_LENGTH - 1).collect();
    format!("{}-{hash}", kept.trim_end_matches(['-', '.', '_']))
}
