//! What a kind provides: checks, defaults, the lookups they need, and warnings.

use std::collections::BTreeMap;

use cluster_config::ClusterConfig;
use defaults::Environment;
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use serde::{Serialize, de::DeserializeOwned};
use validation::{Rule, Violation};

use super::related::{Lookup, Related};
use crate::checks::{self, Input, Occasion, Origin, Requester};

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

/// Input of a check: a typed admission request.
#[derive(Debug)]
pub(crate) struct TypedRequest<'a, T> {
    pub operation: Operation,
    /// The object to be written; the existing object for a deletion.
    pub new: &'a T,
    /// The object before an update.
    pub old: Option<&'a T>,
    /// `apiVersion` of the object in the request; empty if it has none.
    pub api_version: &'a str,
    pub requester: Requester,
    pub config: &'a ClusterConfig,
    pub env: Environment<'a>,
    pub related: &'a Related,
}

impl<T> TypedRequest<'_, T> {
    /// What the checks of a guest report for a spec that the object contains a part of.
    pub(crate) fn check_guest(&self, spec: &VirtualMachineInstanceSpec) -> Vec<Violation> {
        let none = BTreeMap::new();
        checks::run(&Input {
            spec,
            labels: &none,
            annotations: &none,
            config: self.config,
            origin: Origin::Vmi,
            occasion: self.occasion(),
            requester: self.requester,
        })
    }
}

/// A problem that a check reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// A field is wrong.
    Field(Violation),
    /// The request as a whole is refused, with this message.
    Request(String),
}

impl From<Violation> for Problem {
    fn from(violation: Violation) -> Self {
        Self::Field(violation)
    }
}

pub(crate) type Check<T> = fn(&TypedRequest<'_, T>) -> Vec<Problem>;
pub(crate) type Fill<T> = fn(&mut T, Environment<'_>);

/// A kind of object with its rules.
pub(crate) trait Kind: DeserializeOwned + Serialize + Clone + 'static {
    /// All checks of a create or update, in the order their problems are reported.
    const RULES: &'static [Rule<Check<Self>>];
    /// All checks of a deletion.
    const DELETION: &'static [Rule<Check<Self>>] = &[];
    /// All defaults of new objects.
    const DEFAULTS: &'static [Rule<Fill<Self>>] = &[];

    /// The related objects that the checks need.
    fn lookups(_: &TypedRequest<'_, Self>) -> Vec<Lookup> {
        Vec::new()
    }

    /// Warnings for the author of a valid object.
    fn warnings(_: &TypedRequest<'_, Self>) -> Vec<String> {
        Vec::new()
    }
}

/// A refusal of a request as a whole, without a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub rule: &'static str,
    pub message: String,
}

/// Result of all checks of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub violations: Vec<Violation>,
    pub rejection: Option<Rejection>,
    pub warnings: Vec<String>,
}

/// Runs the checks of a kind.
pub(crate) fn validate<T: Kind>(request: &TypedRequest<'_, T>) -> Findings {
    let mut findings = Findings {
        warnings: T::warnings(request),
        ..Findings::default()
    };
    let rules = match request.operation {
        Operation::Create | Operation::Update => T::RULES,
        Operation::Delete => T::DELETION,
    };
    for rule in rules {
        for problem in (rule.apply)(request) {
            match problem {
                Problem::Field(violation) => {
                    findings.violations.push(violation.reported_by(rule.id));
                }
                // Report wrong fields first: they remain to be fixed anyway.
                Problem::Request(message) => {
                    if findings.violations.is_empty() {
                        let rule = rule.id;
                        findings.rejection = Some(Rejection { rule, message });
                    }
                    return findings;
                }
            }
        }
    }
    findings
}

impl<T> TypedRequest<'_, T> {
    pub(super) fn is_create(&self) -> bool {
        self.operation == Operation::Create
    }

    pub(super) fn occasion(&self) -> Occasion {
        if self.is_create() {
            Occasion::Creation
        } else {
            Occasion::Change
        }
    }
}
