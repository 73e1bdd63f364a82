//! Plugins.

use apimachinery::cel;
use kubevirt_api::plugin::{DomainHook, FailureStrategy, NodeHookPoint, Plugin};

use super::{Asked, Check, Fault, Kind, behind, duration};
use crate::{Violation, rules::Rule};

type Question<'a> = Asked<'a, Plugin>;

/// Below it each plugin has a directory of its own for sockets.
const SOCKETS: &str = "/var/run/kubevirt-plugin";
/// What the kernel takes as the path of a socket.
const SOCKET_PATH: usize = 108;

impl Kind for Plugin {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "plugin.gate",
            "4",
            "plugins need the gate Plugins",
            |asked| behind(asked, "Plugins"),
        ),
        Rule::new(
            "plugin.hook-kind",
            "4",
            "a domain hook is either an expression or a sidecar",
            hook_kind,
        ),
        Rule::new(
            "plugin.failure-strategy",
            "4",
            "failure strategies are known words",
            failure_strategy,
        ),
        Rule::new(
            "plugin.hook-points",
            "4",
            "node hooks name known moments",
            hook_points,
        ),
        Rule::new(
            "plugin.clean-socket",
            "4",
            "the path of a sidecar's socket is clean",
            clean_socket,
        ),
        Rule::new(
            "plugin.socket-place",
            "4",
            "a sidecar's socket is in the plugin's directory",
            socket_place,
        ),
        Rule::new(
            "plugin.expressions",
            "4",
            "conditions and expressions are CEL",
            expressions,
        ),
        Rule::new("plugin.timeouts", "4", "timeouts are durations", timeouts),
    ];

    fn warnings(asked: &Question<'_>) -> Vec<String> {
        let spec = &asked.new.spec;
        let references = [
            &spec.mutating_admission_policies,
            &spec.validating_admission_policies,
            &spec.mutating_admission_webhooks,
            &spec.validating_admission_webhooks,
        ];
        let is_idle = spec.domain_hooks.is_empty()
            && spec.node_hooks.is_empty()
            && references.iter().all(|list| list.is_empty());
        is_idle
            .then(|| {
                "spec: no hooks and no admission references, so the plugin does nothing".to_owned()
            })
            .into_iter()
            .collect()
    }
}

fn hook_kind(asked: &Question<'_>) -> Vec<Fault> {
    let wrong =
        domain_hooks(asked).filter(|(_, hook)| hook.cel.is_some() == hook.sidecar.is_some());
    let faults = wrong.map(|(field, _)| {
        Violation::invalid(field, "needs exactly one of cel and sidecar; give one").into()
    });
    faults.collect()
}

fn failure_strategy(asked: &Question<'_>) -> Vec<Fault> {
    let spec = &asked.new.spec;
    let own = [("spec".to_owned(), spec.failure_strategy.as_ref())];
    let domain = domain_hooks(asked).map(|(field, hook)| (field, hook.failure_strategy.as_ref()));
    let node = spec.node_hooks.iter().enumerate();
    let node = node.map(|(i, hook)| {
        (
            format!("spec.nodeHooks[{i}]"),
            hook.failure_strategy.as_ref(),
        )
    });
    let all = own.into_iter().chain(domain).chain(node);
    let faults = all.filter_map(|(field, strategy)| {
        let strategy = strategy.filter(|word| !word.is_known() && !word.as_str().is_empty())?;
        let known = FailureStrategy::KNOWN.join(" or ");
        let detail = format!("{:?} is unknown; use {known}", strategy.as_str());
        Some(Violation::invalid(format!("{field}.failureStrategy"), detail).into())
    });
    faults.collect()
}

fn hook_points(asked: &Question<'_>) -> Vec<Fault> {
    let mut found = Vec::new();
    for (i, hook) in asked.new.spec.node_hooks.iter().enumerate() {
        for (j, point) in hook.permitted_hooks.iter().enumerate() {
            if point.is_known() {
                continue;
            }
            let known = NodeHookPoint::KNOWN.join(", ");
            let detail = format!("{:?} is unknown; use one of {known}", point.as_str());
            let field = format!("spec.nodeHooks[{i}].permittedHooks[{j}]");
            found.push(Violation::invalid(field, detail).into());
        }
    }
    found
}

fn timeouts(asked: &Question<'_>) -> Vec<Fault> {
    let domain = domain_hooks(asked).map(|(field, hook)| (field, hook.timeout.as_ref()));
    let node = asked.new.spec.node_hooks.iter().enumerate();
    let node = node.map(|(i, hook)| (format!("spec.nodeHooks[{i}]"), hook.timeout.as_ref()));
    domain
        .chain(node)
        .flat_map(|(field, timeout)| duration(&format!("{field}.timeout"), timeout))
        .collect()
}

fn expressions(asked: &Question<'_>) -> Vec<Fault> {
    let spec = &asked.new.spec;
    let own = [("spec.condition".to_owned(), spec.condition.as_deref())];
    let domain = domain_hooks(asked).flat_map(|(field, hook)| {
        let expression = hook.cel.as_ref().map(|cel| cel.expression.as_str());
        [
            (format!("{field}.condition"), hook.condition.as_deref()),
            (format!("{field}.cel.expression"), expression),
        ]
    });
    let node = spec.node_hooks.iter().enumerate().map(|(i, hook)| {
        let field = format!("spec.nodeHooks[{i}].condition");
        (field, hook.condition.as_deref())
    });
    let all = own.into_iter().chain(domain).chain(node);
    let faults = all.filter_map(|(field, source)| {
        let source = source.filter(|source| !source.is_empty())?;
        let why = cel::parse(source).err()?;
        let why = why.lines().next().unwrap_or_default();
        let detail = format!("no CEL expression: {why}");
        Some(Violation::invalid(field, detail).into())
    });
    faults.collect()
}

fn clean_socket(asked: &Question<'_>) -> Vec<Fault> {
    let wrong = sockets(asked).filter(|(_, path)| !is_clean(path));
    let faults = wrong.map(|(field, path)| {
        let detail =
            format!("{path:?} is no clean path; write it without ., .., // and a / at the end");
        Violation::invalid(field, detail).into()
    });
    faults.collect()
}

fn socket_place(asked: &Question<'_>) -> Vec<Fault> {
    let plugin = asked.new.metadata.name.as_deref().unwrap_or_default();
    let directory = format!("{SOCKETS}/{plugin}/");
    let wrong = sockets(asked).filter(|(_, path)| {
        !path.starts_with(&directory)
            || path.strip_suffix(".sock").is_none()
            || path.len() > SOCKET_PATH
    });
    let faults = wrong.map(|(field, path)| {
        let detail = format!(
            "{path:?} is no place for a socket; use a file of {directory} that ends in .sock, with \
             at most {SOCKET_PATH} characters in all"
        );
        Violation::invalid(field, detail).into()
    });
    faults.collect()
}

fn domain_hooks<'a>(asked: &Question<'a>) -> impl Iterator<Item = (String, &'a DomainHook)> {
    let hooks = asked.new.spec.domain_hooks.iter().enumerate();
    hooks.map(|(i, hook)| (format!("spec.domainHooks[{i}]"), hook))
}

fn sockets<'a>(asked: &Question<'a>) -> impl Iterator<Item = (String, &'a str)> {
    domain_hooks(asked).filter_map(|(field, hook)| {
        let path = hook.sidecar.as_ref()?.socket_path.as_str();
        Some((format!("{field}.sidecar.socketPath"), path))
    })
}

/// Absolute or not, but without anything that a shorter text for the same file would lack.
fn is_clean(path: &str) -> bool {
    let parts = path.strip_prefix('/').unwrap_or(path);
    !parts.is_empty()
        && parts
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".."))
}
