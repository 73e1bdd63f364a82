//! Plugins.

use apimachinery::cel;
use kubevirt_api::plugin::{DomainHook, FailureStrategy, NodeHookPoint, Plugin};
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    refusals::{duration, requires_gate},
};

type Request<'a> = TypedRequest<'a, Plugin>;

/// Parent of the socket directories of plugins.
const SOCKETS: &str = "/var/run/kubevirt-plugin";
/// Maximum length of a socket's path.
const MAX_SOCKET_PATH: usize = 108;

impl Kind for Plugin {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "plugin.gate",
            Subject::Plugin,
            "plugins need the gate Plugins",
            |request| requires_gate(request, "Plugins"),
        ),
        Rule::new(
            "plugin.hook-kind",
            Subject::Plugin,
            "a domain hook is either an expression or a sidecar",
            hook_kind,
        ),
        Rule::new(
            "plugin.failure-strategy",
            Subject::Plugin,
            "failure strategies are known",
            failure_strategy,
        ),
        Rule::new(
            "plugin.hook-points",
            Subject::Plugin,
            "node hooks name known hook points",
            hook_points,
        ),
        Rule::new(
            "plugin.clean-socket",
            Subject::Plugin,
            "the path of a sidecar's socket is normalised",
            normalised_socket,
        ),
        Rule::new(
            "plugin.socket-place",
            Subject::Plugin,
            "a sidecar's socket is in the plugin's directory",
            socket_directory,
        ),
        Rule::new(
            "plugin.expressions",
            Subject::Plugin,
            "conditions and expressions are valid CEL",
            expressions,
        ),
        Rule::new(
            "plugin.timeouts",
            Subject::Plugin,
            "timeouts are durations",
            timeouts,
        ),
    ];

    fn warnings(request: &Request<'_>) -> Vec<String> {
        let spec = &request.new.spec;
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

fn hook_kind(request: &Request<'_>) -> Vec<Problem> {
    let wrong =
        domain_hooks(request).filter(|(_, hook)| hook.cel.is_some() == hook.sidecar.is_some());
    let problems = wrong.map(|(field, _)| {
        Violation::invalid(field, "needs exactly one of cel and sidecar; give one").into()
    });
    problems.collect()
}

fn failure_strategy(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    let own = [("spec".to_owned(), spec.failure_strategy.as_ref())];
    let domain = domain_hooks(request).map(|(field, hook)| (field, hook.failure_strategy.as_ref()));
    let node = spec.node_hooks.iter().enumerate();
    let node = node.map(|(i, hook)| {
        (
            format!("spec.nodeHooks[{i}]"),
            hook.failure_strategy.as_ref(),
        )
    });
    let all = own.into_iter().chain(domain).chain(node);
    let problems = all.filter_map(|(field, strategy)| {
        let strategy = strategy.filter(|one| !one.is_known() && !one.as_str().is_empty())?;
        let known = FailureStrategy::KNOWN.join(" or ");
        let detail = format!("{:?} is unknown; use {known}", strategy.as_str());
        Some(Violation::invalid(format!("{field}.failureStrategy"), detail).into())
    });
    problems.collect()
}

fn hook_points(request: &Request<'_>) -> Vec<Problem> {
    let mut found = Vec::new();
    for (i, hook) in request.new.spec.node_hooks.iter().enumerate() {
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

fn timeouts(request: &Request<'_>) -> Vec<Problem> {
    let domain = domain_hooks(request).map(|(field, hook)| (field, hook.timeout.as_ref()));
    let node = request.new.spec.node_hooks.iter().enumerate();
    let node = node.map(|(i, hook)| (format!("spec.nodeHooks[{i}]"), hook.timeout.as_ref()));
    domain
        .chain(node)
        .flat_map(|(field, timeout)| duration(&format!("{field}.timeout"), timeout))
        .collect()
}

fn expressions(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    let own = [("spec.condition".to_owned(), spec.condition.as_deref())];
    let domain = domain_hooks(request).flat_map(|(field, hook)| {
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
    let problems = all.filter_map(|(field, source)| {
        let source = source.filter(|source| !source.is_empty())?;
        let error = cel::parse(source).err()?;
        let error = error.lines().next().unwrap_or_default();
        let detail = format!("invalid CEL expression: {error}");
        Some(Violation::invalid(field, detail).into())
    });
    problems.collect()
}

fn normalised_socket(request: &Request<'_>) -> Vec<Problem> {
    let wrong = sockets(request).filter(|(_, path)| !is_normalised(path));
    let problems = wrong.map(|(field, path)| {
        let detail = format!(
            "{path:?} is not a normalised path; write it without ., .., // and a trailing /"
        );
        Violation::invalid(field, detail).into()
    });
    problems.collect()
}

fn socket_directory(request: &Request<'_>) -> Vec<Problem> {
    let plugin = request.new.metadata.name.as_deref().unwrap_or_default();
    let directory = format!("{SOCKETS}/{plugin}/");
    let wrong = sockets(request).filter(|(_, path)| {
        !path.starts_with(&directory)
            || path.strip_suffix(".sock").is_none()
            || path.len() > MAX_SOCKET_PATH
    });
    let problems = wrong.map(|(field, path)| {
        let detail = format!(
            "{path:?} is not a valid socket path; use a file below {directory} that ends in .sock, \
             with at most {MAX_SOCKET_PATH} characters in total"
        );
        Violation::invalid(field, detail).into()
    });
    problems.collect()
}

fn domain_hooks<'a>(request: &Request<'a>) -> impl Iterator<Item = (String, &'a DomainHook)> {
    let hooks = request.new.spec.domain_hooks.iter().enumerate();
    hooks.map(|(i, hook)| (format!("spec.domainHooks[{i}]"), hook))
}

fn sockets<'a>(request: &Request<'a>) -> impl Iterator<Item = (String, &'a str)> {
    domain_hooks(request).filter_map(|(field, hook)| {
        let path = hook.sidecar.as_ref()?.socket_path.as_str();
        Some((format!("{field}.sidecar.socketPath"), path))
    })
}

/// Whether a path, absolute or relative, has no redundant components.
fn is_normalised(path: &str) -> bool {
    let parts = path.strip_prefix('/').unwrap_or(path);
    !parts.is_empty()
        && parts
            .split('/')
            .all(|part| !matches!(part, "" | "." | ".."))
}
