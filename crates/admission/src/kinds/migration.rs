//! Requests to migrate a running guest.

use kubevirt_api::{
    conditions, finalizers, labels,
    migration_request::{
        VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationPhase,
        VirtualMachineInstanceMigrationSpec,
    },
    vmi_status::{VirtualMachineInstanceConditionType, VirtualMachineInstancePhase},
};
use reasons::Reason;

use super::{Asked, Check, Fault, Fill, Kind, Need, is_empty};
use crate::{Surroundings, Violation, checks::Requester, rules::Rule};

type Question<'a> = Asked<'a, VirtualMachineInstanceMigration>;

const GATE: &str = "DecentralizedLiveMigration";
/// Values of labels are at most that long.
const LABEL: usize = 63;
/// So many characters of a hash end a shortened name.
const HASH: usize = 8;

impl Kind for VirtualMachineInstanceMigration {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new("migration.instance", "4", "an instance is named", instance),
        Rule::new(
            "migration.priority",
            "4",
            "only the controller sets a priority",
            priority,
        ),
        Rule::new(
            "migration.decentralized-gate",
            "4",
            "sendTo and receive need their gate",
            gate,
        ),
        Rule::new(
            "migration.ids",
            "4",
            "sendTo and receive have one migrationID",
            ids,
        ),
        Rule::new("migration.fixed", "4", "the spec is fixed once made", fixed),
        Rule::new(
            "migration.label",
            "4",
            "the instance's label stays until the migration is over",
            label,
        ),
        Rule::new(
            "migration.instance-runs",
            "4",
            "the instance exists and has not ended",
            instance_runs,
        ),
        Rule::new(
            "migration.migratable",
            "4",
            "the instance can be migrated",
            migratable,
        ),
        Rule::new(
            "migration.alone",
            "4",
            "no other migration of the instance is under way",
            is_alone,
        ),
    ];

    const DEFAULTS: &'static [Rule<Fill<Self>>] = &[
        Rule::new(
            "migration.fill-label",
            "D4",
            "a label names the instance",
            fill_label,
        ),
        Rule::new(
            "migration.fill-finalizer",
            "D4",
            "a finalizer keeps the migration until it is over",
            fill_finalizer,
        ),
    ];

    fn needs(asked: &Question<'_>) -> Vec<Need> {
        let namespace = asked.new.metadata.namespace.clone().unwrap_or_default();
        let name = name_of_instance(&asked.new.spec).to_owned();
        if !asked.is_new() {
            return Vec::new();
        }
        vec![
            Need::Instance {
                namespace: namespace.clone(),
                name: name.clone(),
            },
            Need::Migrations {
                namespace,
                label: label_value(&name),
            },
        ]
    }
}

fn instance(asked: &Question<'_>) -> Vec<Fault> {
    if !asked.is_new() || !is_empty(asked.new.spec.vmi_name.as_deref()) {
        return Vec::new();
    }
    let detail = "missing; name the VirtualMachineInstance to migrate";
    vec![Violation::required("spec.vmiName", detail).into()]
}

fn priority(asked: &Question<'_>) -> Vec<Fault> {
    let is_given = asked.new.spec.priority.is_some();
    if !asked.is_new() || !is_given || asked.requester == Requester::Component {
        return Vec::new();
    }
    let detail = "only the system orders migrations; leave priority out";
    vec![Violation::forbidden("spec.migrationPriority", detail).into()]
}

fn gate(asked: &Question<'_>) -> Vec<Fault> {
    let spec = &asked.new.spec;
    let parts = [
        ("sendTo", spec.send_to.is_some()),
        ("receive", spec.receive.is_some()),
    ];
    if !asked.is_new() || asked.config.has_gate(GATE) {
        return Vec::new();
    }
    let faults = parts
        .into_iter()
        .filter(|(_, given)| *given)
        .map(|(part, _)| {
            let detail = format!("feature gate {GATE} is off; leave {part} out or switch it on");
            Violation::not_supported(format!("spec.{part}"), detail).into()
        });
    faults.collect()
}

fn ids(asked: &Question<'_>) -> Vec<Fault> {
    let spec = &asked.new.spec;
    match (&spec.send_to, &spec.receive) {
        (Some(sent), Some(received)) if sent.migration_id != received.migration_id => {
            let detail = format!(
                "{:?} differs from {:?} of sendTo; both sides of a migration share one",
                received.migration_id, sent.migration_id
            );
            vec![Violation::invalid("spec.receive.migrationID", detail).into()]
        }
        _ => Vec::new(),
    }
}

fn fixed(asked: &Question<'_>) -> Vec<Fault> {
    if asked.old.is_none_or(|old| old.spec == asked.new.spec) {
        return Vec::new();
    }
    let detail = "fixed once made; delete this migration to cancel it, and make another";
    vec![Violation::not_supported("spec", detail).into()]
}

fn label(asked: &Question<'_>) -> Vec<Fault> {
    let Some(old) = asked.old else {
        return Vec::new();
    };
    let value = |migration: &VirtualMachineInstanceMigration| {
        let found = migration.metadata.labels.as_ref();
        found.and_then(|found| found.get(labels::MIGRATION_VMI_NAME).cloned())
    };
    let before = value(old);
    if before.is_none() || before == value(asked.new) || is_over(asked.new) {
        return Vec::new();
    }
    let detail = format!(
        "label {} says whose migration this is; leave it as it is until the migration is over",
        labels::MIGRATION_VMI_NAME
    );
    vec![Violation::not_supported("metadata.labels", detail).into()]
}

fn instance_runs(asked: &Question<'_>) -> Vec<Fault> {
    if !asked.is_new() {
        return Vec::new();
    }
    let name = name_of_instance(&asked.new.spec);
    let Some(instance) = &asked.among.instance else {
        return vec![Fault::Plain(format!(
            "spec.vmiName: there is no VirtualMachineInstance {name:?}; start its VM first"
        ))];
    };
    let phase = instance
        .status
        .as_ref()
        .and_then(|status| status.phase.as_ref());
    match phase {
        Some(
            phase @ (VirtualMachineInstancePhase::Succeeded | VirtualMachineInstancePhase::Failed),
        ) => {
            let phase = phase.as_str();
            vec![Fault::Plain(format!(
                "spec.vmiName: VirtualMachineInstance {name:?} has ended ({phase}); start its VM \
                 first"
            ))]
        }
        _ => Vec::new(),
    }
}

/// Disks that stay behind are no hindrance when the other side brings its own.
fn migratable(asked: &Question<'_>) -> Vec<Fault> {
    let Some(instance) = asked.among.instance.as_ref().filter(|_| asked.is_new()) else {
        return Vec::new();
    };
    let spec = &asked.new.spec;
    let is_decentralized = spec.send_to.is_some() || spec.receive.is_some();
    let status = instance.status.clone().unwrap_or_default();
    let kind = VirtualMachineInstanceConditionType::LiveMigratable;
    let Some(condition) = conditions::find(&status.conditions, &kind) else {
        return Vec::new();
    };
    let reason = condition.reason.as_deref().unwrap_or_default();
    let is_tolerated = is_decentralized && reason == Reason::DisksNotLiveMigratable;
    if condition.status != conditions::FALSE || is_tolerated {
        return Vec::new();
    }
    let name = name_of_instance(spec);
    let why = condition.message.as_deref().unwrap_or(reason);
    vec![Fault::Plain(format!(
        "spec.vmiName: VirtualMachineInstance {name:?} cannot be migrated: {why}; change that in \
         its VM and restart it"
    ))]
}

fn is_alone(asked: &Question<'_>) -> Vec<Fault> {
    if !asked.is_new() {
        return Vec::new();
    }
    let own = asked.new.metadata.name.as_deref();
    let other = asked
        .among
        .migrations
        .iter()
        .filter(|other| !is_over(other) && other.spec.vmi_name == asked.new.spec.vmi_name)
        .filter_map(|other| other.metadata.name.as_deref())
        .find(|name| Some(*name) != own);
    let fault = other.map(|other| {
        Fault::Plain(format!(
            "spec.vmiName: migration {other:?} of this instance is under way; wait for it or \
             delete it"
        ))
    });
    fault.into_iter().collect()
}

fn is_over(migration: &VirtualMachineInstanceMigration) -> bool {
    use VirtualMachineInstanceMigrationPhase::{Failed, Succeeded};

    let phase = migration
        .status
        .as_ref()
        .and_then(|status| status.phase.as_ref());
    matches!(phase, Some(Succeeded | Failed))
}

fn name_of_instance(spec: &VirtualMachineInstanceMigrationSpec) -> &str {
    spec.vmi_name.as_deref().unwrap_or_default()
}

fn fill_label(migration: &mut VirtualMachineInstanceMigration, _: Surroundings<'_>) {
    let name = name_of_instance(&migration.spec).to_owned();
    if name.is_empty() {
        return;
    }
    let found = migration.metadata.labels.get_or_insert_default();
    found.insert(labels::MIGRATION_VMI_NAME.to_owned(), label_value(&name));
}

fn fill_finalizer(migration: &mut VirtualMachineInstanceMigration, _: Surroundings<'_>) {
    let found = migration.metadata.finalizers.get_or_insert_default();
    if !found
        .iter()
        .any(|finalizer| finalizer == finalizers::MIGRATION)
    {
        found.push(finalizers::MIGRATION.to_owned());
    }
}

/// A name as the value of a label: itself, or shortened with a hash that keeps it apart from others.
fn label_value(name: &str) -> String {
    if name.len() <= LABEL {
        return name.to_owned();
    }
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, name.as_bytes());
    let hash: String = hash.simple().to_string().chars().take(HASH).collect();
    let kept: String = name.chars().take(LABEL - HASH - 1).collect();
    format!("{}-{hash}", kept.trim_end_matches(['-', '.', '_']))
}
