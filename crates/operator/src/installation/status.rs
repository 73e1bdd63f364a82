//! The status of a `KubeVirt` object: pure, from the observed components.

use cluster_config::ClusterConfig;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    COMPATIBLE_VERSION,
    conditions::{self, ConditionValue, FALSE, TRUE},
    kubevirt::{KubeVirtConditionType as Type, KubeVirtPhase as Phase, KubeVirtStatus},
};
use reasons::Reason;
use reconcile::Key;

use crate::{
    components::{Component, Rollout},
    release::Release,
    view::Installation,
};

pub(super) struct Observed<'a> {
    pub(super) before: &'a KubeVirtStatus,
    pub(super) generation: Option<i64>,
    pub(super) components: &'a [Component],
    pub(super) release: &'a Release,
    pub(super) now: Timestamp,
}

/// The stages of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It was never complete.
    Deploying,
    /// It was complete, and its pods are being replaced.
    Updating,
    /// It was complete, and components are missing or do not run.
    Impaired,
    Ready,
}

/// The status of the object in effect.
pub(super) fn of_installation(observed: &Observed<'_>) -> KubeVirtStatus {
    let release = observed.release;
    let stage = stage(observed);
    let version = || Some(COMPATIBLE_VERSION.to_owned());
    let mut status = observed.before.clone();
    status.operator_version = version();
    status.target_kubevirt_version = version();
    status.target_kubevirt_registry = Some(release.registry.clone());
    status.target_deployment_config = Some(release.config.clone());
    status.target_deployment_id = Some(release.id.clone());
    status.observed_generation = observed.generation;
    status.default_architecture = Some(ClusterConfig::default().default_architecture);
    status.generations = observed
        .components
        .iter()
        .filter_map(|component| component.generation.clone())
        .collect();
    if stage == Stage::Ready {
        status.observed_kubevirt_version = version();
        status.observed_kubevirt_registry = Some(release.registry.clone());
        status.observed_deployment_config = Some(release.config.clone());
        status.observed_deployment_id = Some(release.id.clone());
    }
    status.phase = Some(if stage == Stage::Deploying {
        Phase::Deploying
    } else {
        Phase::Deployed
    });
    set_conditions(&mut status, stage, observed);
    status
}

fn stage(observed: &Observed<'_>) -> Stage {
    let components = observed.components;
    let is_deployed = observed.before.phase == Some(Phase::Deployed);
    let is_current = observed.before.observed_deployment_id.as_ref() == Some(&observed.release.id);
    let is_rolling = components
        .iter()
        .any(|component| component.rollout == Rollout::Running);
    match (is_deployed, components.iter().all(Component::is_ready)) {
        (_, true) => Stage::Ready,
        (false, false) => Stage::Deploying,
        (true, false) if is_rolling || !is_current => Stage::Updating,
        (true, false) => Stage::Impaired,
    }
}

fn set_conditions(status: &mut KubeVirtStatus, stage: Stage, observed: &Observed<'_>) {
    let now = Time(observed.now);
    let message = message(stage, observed.components);
    let reason = match stage {
        Stage::Deploying => Reason::DeploymentInProgress,
        Stage::Updating => Reason::UpdateInProgress,
        Stage::Impaired => Reason::ComponentsNotReady,
        Stage::Ready => Reason::AllComponentsReady,
    };
    let are_available = observed.components.iter().all(Component::is_available);
    let are_all_created = observed
        .components
        .iter()
        .all(|component| component.rollout != Rollout::Missing);
    let of_stage = |holds: bool| ConditionValue {
        status: if holds { TRUE } else { FALSE },
        reason: reason.as_str(),
        message: &message,
    };
    let created = ConditionValue {
        status: TRUE,
        reason: Reason::AllResourcesCreated.as_str(),
        message: "all objects of the installation exist",
    };
    let is_rolling = matches!(stage, Stage::Deploying | Stage::Updating);
    let is_degraded = matches!(stage, Stage::Updating | Stage::Impaired);
    let is_available = stage != Stage::Deploying && are_available;
    // `None`: the object does not have the condition.
    let values = [
        (Type::Available, Some(of_stage(is_available))),
        (Type::Progressing, Some(of_stage(is_rolling))),
        (Type::Degraded, Some(of_stage(is_degraded))),
        (
            Type::Synchronized,
            (stage == Stage::Ready).then(|| of_stage(true)),
        ),
        (Type::Created, are_all_created.then_some(created)),
    ];
    for (kind, value) in values {
        match value {
            Some(value) => conditions::set(&mut status.conditions, kind, &value, &now),
            None => conditions::remove(&mut status.conditions, &kind),
        }
    }
}

fn message(stage: Stage, components: &[Component]) -> String {
    if stage == Stage::Ready {
        return "all components are ready".to_owned();
    }
    let waiting: Vec<String> = components
        .iter()
        .filter(|component| !component.is_ready())
        .map(describe)
        .collect();
    waiting.join("; ")
}

fn describe(component: &Component) -> String {
    let Component {
        name,
        rollout,
        ready,
        wanted,
        ..
    } = component;
    match rollout {
        Rollout::Missing => format!("{name} is missing"),
        Rollout::Running => format!("{name} is being rolled out: {ready} of {wanted} are ready"),
        Rollout::Complete => format!("{name}: {ready} of {wanted} are ready"),
    }
}

/// The status of an object that is not in effect.
pub(super) fn of_other(object: &Installation, current: &Key, now: Timestamp) -> KubeVirtStatus {
    let mut status = KubeVirtStatus {
        conditions: object.status.conditions.clone(),
        observed_generation: object.metadata.generation,
        ..KubeVirtStatus::default()
    };
    let message = format!("the installation is configured by {current}; delete this object");
    let value = ConditionValue::fails(Reason::ExistingDeployment.as_str(), &message);
    status
        .conditions
        .retain(|condition| condition.type_ == Type::Synchronized);
    conditions::set(
        &mut status.conditions,
        Type::Synchronized,
        &value,
        &Time(now),
    );
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &'static str, rollout: Rollout, ready: i32) -> Component {
        Component {
            name,
            rollout,
            ready,
            wanted: 2,
            generation: None,
        }
    }

    fn installed(before: &KubeVirtStatus, handler: Component, image: &str) -> KubeVirtStatus {
        of_installation(&Observed {
            before,
            generation: Some(3),
            components: &[component("virt-api", Rollout::Complete, 2), handler],
            release: &Release::new("kubevirt", image),
            now: Timestamp::UNIX_EPOCH,
        })
    }

    /// Conditions as `Type=Status`, with the reason of `Available`, and the phase.
    fn shown(status: &KubeVirtStatus) -> (String, String, String) {
        let of = |condition: &kubevirt_api::kubevirt::KubeVirtCondition| {
            format!("{}={}", condition.type_.as_str(), condition.status)
        };
        let all: Vec<String> = status.conditions.iter().map(of).collect();
        let available = conditions::find(&status.conditions, &Type::Available);
        let reason = available.and_then(|one| one.reason.clone());
        let phase = status.phase.as_ref().map(|phase| phase.as_str().to_owned());
        (
            all.join(" "),
            reason.unwrap_or_default(),
            phase.unwrap_or_default(),
        )
    }

    #[test]
    fn conditions_follow_the_components() {
        use Rollout::{Complete, Missing, Running};
        let new = KubeVirtStatus::default();
        let deployed = installed(&new, component("virt-handler", Complete, 2), "a/b:1");
        let cases = [
            (
                &new,
                (Missing, 0, "a/b:1"),
                "Available=False Progressing=True Degraded=False",
                "DeploymentInProgress",
                "Deploying",
            ),
            (
                &new,
                (Running, 1, "a/b:1"),
                "Created=True Available=False Progressing=True Degraded=False",
                "DeploymentInProgress",
                "Deploying",
            ),
            (
                &new,
                (Complete, 2, "a/b:1"),
                "Synchronized=True Created=True Available=True Progressing=False Degraded=False",
                "AllComponentsReady",
                "Deployed",
            ),
            (
                &deployed,
                (Running, 1, "a/b:1"),
                "Created=True Available=True Progressing=True Degraded=True",
                "UpdateInProgress",
                "Deployed",
            ),
            (
                &deployed,
                (Complete, 1, "a/b:2"),
                "Created=True Available=True Progressing=True Degraded=True",
                "UpdateInProgress",
                "Deployed",
            ),
            (
                &deployed,
                (Complete, 1, "a/b:1"),
                "Created=True Available=True Progressing=False Degraded=True",
                "ComponentsNotReady",
                "Deployed",
            ),
            (
                &deployed,
                (Complete, 0, "a/b:1"),
                "Created=True Available=False Progressing=False Degraded=True",
                "ComponentsNotReady",
                "Deployed",
            ),
            (
                &deployed,
                (Missing, 0, "a/b:1"),
                "Available=False Progressing=False Degraded=True",
                "ComponentsNotReady",
                "Deployed",
            ),
        ];
        for (before, (rollout, ready, image), expected, reason, phase) in cases {
            let handler = component("virt-handler", rollout, ready);
            let found = shown(&installed(before, handler, image));
            let expected = (expected.to_owned(), reason.to_owned(), phase.to_owned());
            assert_eq!(found, expected, "{rollout:?} {ready} {image}");
        }
    }

    #[test]
    fn observed_release_follows_the_target_once_all_components_run() {
        let new = KubeVirtStatus::default();
        let first = installed(
            &new,
            component("virt-handler", Rollout::Complete, 2),
            "a/b:1",
        );
        let observed = |status: &KubeVirtStatus| status.observed_deployment_id.clone();
        let target = |status: &KubeVirtStatus| status.target_deployment_id.clone();
        assert_eq!(first.observed_kubevirt_version.as_deref(), Some("v1.9.0"));
        assert_eq!(first.observed_generation, Some(3));
        assert_eq!(observed(&first), target(&first));
        let running = component("virt-handler", Rollout::Running, 1);
        let update = installed(&first, running, "a/b:2");
        assert_eq!(observed(&update), observed(&first));
        assert_ne!(target(&update), target(&first));
        let complete = component("virt-handler", Rollout::Complete, 2);
        let second = installed(&update, complete.clone(), "a/b:2");
        assert_eq!(observed(&second), target(&update));
        assert_eq!(second, installed(&second, complete, "a/b:2"), "settles");
    }

    #[test]
    fn message_names_the_components_that_are_not_ready() {
        let new = KubeVirtStatus::default();
        let status = installed(
            &new,
            component("virt-handler", Rollout::Complete, 1),
            "a/b:1",
        );
        let available = conditions::find(&status.conditions, &Type::Available);
        let message = available.and_then(|one| one.message.as_deref());
        assert_eq!(message, Some("virt-handler: 1 of 2 are ready"));
    }
}
