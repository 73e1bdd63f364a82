//! Admission reviews: an `AdmissionReview` with a request in, one with a response out.
//!
//! Every input gets a response: malformed objects are refused with path and reason. Patches contain
//! only the changes.

mod response;

use cluster_config::ClusterConfig;
use defaults::{Environment, carry_over, vm::Age, write_fractions_as_text};
use instancetype::{infer, presets};
use kubevirt_api::{GROUP, VirtualMachine, VirtualMachineInstance};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use validation::Violation;

use self::response::{Outcome, json_patch};
use crate::{
    checks::Requester,
    kinds::{self, Related},
    request::read_object,
    vm, vmi,
};

/// The kind of webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Mutate,
    Validate,
}

/// Suffix of the user name of virt-handler.
const HANDLER_SUFFIX: &str = ":kubevirt-handler";
/// Extra field of a service account token that is bound to a pod on a node.
const NODE_NAME_KEY: &str = "authentication.kubernetes.io/node-name";

/// Responds to an `AdmissionReview`, without any related objects.
pub fn review(stage: Stage, review: &Value, config: &ClusterConfig, env: Environment<'_>) -> Value {
    review_with(stage, review, config, env, &Related::default())
}

/// Responds to an `AdmissionReview`; `related` holds the results of [`kinds::lookups`].
pub fn review_with(
    stage: Stage,
    review: &Value,
    config: &ClusterConfig,
    env: Environment<'_>,
    related: &Related,
) -> Value {
    let response = respond(stage, &review["request"], config, env, related);
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    })
}

/// Responds to a `request` of the mutating webhooks: defaults, as a patch.
pub fn mutate(request: &Value, config: &ClusterConfig, env: Environment<'_>) -> Value {
    respond(Stage::Mutate, request, config, env, &Related::default())
}

/// Responds to a `request` of the validating webhooks.
pub fn validate(request: &Value, config: &ClusterConfig, env: Environment<'_>) -> Value {
    respond(Stage::Validate, request, config, env, &Related::default())
}

fn respond(
    stage: Stage,
    request: &Value,
    config: &ClusterConfig,
    env: Environment<'_>,
    related: &Related,
) -> Value {
    let context = RequestContext {
        request,
        config,
        env,
        related,
    };
    context.outcome(stage).to_response(request)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    Update,
}

struct RequestContext<'a> {
    request: &'a Value,
    config: &'a ClusterConfig,
    env: Environment<'a>,
    related: &'a Related,
}

impl RequestContext<'_> {
    fn outcome(&self, stage: Stage) -> Outcome {
        if let Some(row) = kinds::find(&self.request["kind"]) {
            let outcome = self.outcome_for_kind(row, stage);
            return outcome.unwrap_or_else(|violation| vec![violation].into());
        }
        let operation = match self.request["operation"].as_str() {
            Some("CREATE") => Operation::Create,
            Some("UPDATE") => Operation::Update,
            _ => return Outcome::default(),
        };
        let kind = &self.request["kind"];
        if kind["group"] != GROUP {
            return Outcome::default();
        }
        let outcome = match (kind["kind"].as_str(), stage) {
            (Some(VirtualMachine::KIND), Stage::Validate) if self.is_status() => {
                self.validate_vm_status(operation)
            }
            _ if self.is_subresource() => return Outcome::default(),
            (Some(VirtualMachine::KIND), Stage::Mutate) => self.mutate_vm(operation),
            (Some(VirtualMachine::KIND), Stage::Validate) => self.validate_vm(operation),
            (Some(VirtualMachineInstance::KIND), Stage::Mutate) => self.mutate_vmi(operation),
            (Some(VirtualMachineInstance::KIND), Stage::Validate) => self.validate_vmi(operation),
            _ => return Outcome::default(),
        };
        outcome.unwrap_or_else(|violation| vec![violation].into())
    }

    /// For a kind of [`kinds::ROWS`].
    fn outcome_for_kind(&self, row: &kinds::Row, stage: Stage) -> Result<Outcome, Violation> {
        let Some(operation) = kinds::Operation::read(&self.request["operation"]) else {
            return Ok(Outcome::default());
        };
        let request = kinds::RawRequest {
            raw: self.request,
            operation,
            requester: self.caller().requester(),
            config: self.config,
            env: self.env,
            related: self.related,
        };
        Ok(match stage {
            // A status has no rules besides its types.
            Stage::Validate if self.is_status() => {
                row.read(&request)?;
                Outcome::default()
            }
            _ if self.is_subresource() => Outcome::default(),
            Stage::Mutate => match row.fill(&request)? {
                Some(filled) => self.patch(&filled.before, &filled.after),
                None => Outcome::default(),
            },
            Stage::Validate => row.validate(&request)?.into(),
        })
    }

    fn is_status(&self) -> bool {
        self.request["subResource"] == "status"
    }

    fn is_subresource(&self) -> bool {
        has_text(&self.request["subResource"])
    }

    fn mutate_vm(&self, operation: Operation) -> Result<Outcome, Violation> {
        let before: VirtualMachine = self.object("object")?;
        if before.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::default());
        }
        let age = match operation {
            Operation::Create => Age::New,
            Operation::Update => Age::Existing,
        };
        let mut after = before.clone();
        if let Err(message) = infer::resolve(&mut after, &self.related.inferred) {
            return Ok(Outcome {
                rejection: Some(message),
                ..Outcome::default()
            });
        }
        let context = defaults::vm::Context {
            age,
            found: defaults::vm::Found {
                preference: self.related.preference.as_deref(),
                architecture: self.related.architecture.as_deref(),
            },
            config: self.config,
            env: self.env,
        };
        defaults::vm::set(&mut after, &context);
        Ok(self.patch(&before, &after))
    }

    fn mutate_vmi(&self, operation: Operation) -> Result<Outcome, Violation> {
        if operation == Operation::Update {
            return Ok(self.preserve_status());
        }
        let mut before: VirtualMachineInstance = self.object("object")?;
        let mut base = self.request["object"].clone();
        if self.caller().requester() != Requester::Component {
            // The kind has no status subresource that would drop it. A user who chose the first status could, among
            // others, name the node, the pods and the migration of the guest.
            before.status = None;
            if let Some(object) = base.as_object_mut() {
                object.remove("status");
            }
        }
        let mut after = before.clone();
        let warnings = match presets::apply(&mut after, &self.related.presets) {
            Ok(warnings) => warnings,
            Err(violations) => return Ok(violations.into()),
        };
        Ok(
            match defaults::vmi::set(&mut after, self.config, self.env) {
                Ok(()) => Outcome {
                    warnings,
                    ..self.patch_from(base, &before, &after)
                },
                Err(violations) => violations.into(),
            },
        )
    }

    fn validate_vm(&self, operation: Operation) -> Result<Outcome, Violation> {
        let new: VirtualMachine = self.object("object")?;
        if new.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::default());
        }
        let old = self.old(operation)?;
        Ok(Outcome {
            violations: vm::validate(&self.vm_input(&new, old.as_ref())),
            warnings: vm::warnings(&new, self.config),
            ..Outcome::default()
        })
    }

    fn validate_vm_status(&self, operation: Operation) -> Result<Outcome, Violation> {
        let new: VirtualMachine = self.object("object")?;
        if new.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::default());
        }
        let old = self.old(operation)?;
        Ok(vm::validate_status(&self.vm_input(&new, old.as_ref())).into())
    }

    fn old(&self, operation: Operation) -> Result<Option<VirtualMachine>, Violation> {
        match operation {
            Operation::Create => Ok(None),
            Operation::Update => self.object("oldObject").map(Some),
        }
    }

    fn vm_input<'a>(
        &'a self,
        vm: &'a VirtualMachine,
        old: Option<&'a VirtualMachine>,
    ) -> vm::Input<'a> {
        vm::Input {
            vm,
            old,
            found: vm::Found {
                instancetype: self.related.instancetype.as_deref(),
                preference: self.related.preference.as_deref(),
                vmi: self.related.vmi.as_deref(),
            },
            config: self.config,
            requester: self.caller().requester(),
            env: self.env,
        }
    }

    fn validate_vmi(&self, operation: Operation) -> Result<Outcome, Violation> {
        let new: VirtualMachineInstance = self.object("object")?;
        Ok(match operation {
            Operation::Create => Outcome {
                violations: vmi::validate_create(&new, self.config, self.caller().requester()),
                warnings: vmi::warnings(&new, self.config),
                ..Outcome::default()
            },
            Operation::Update => vmi::validate_update(&vmi::Update {
                old: &self.object("oldObject")?,
                new: &new,
                config: self.config,
                caller: self.caller(),
            })
            .into(),
        })
    }

    /// Silently reverts users' changes of a VMI's status: the kind has no status subresource that
    /// would ignore them.
    fn preserve_status(&self) -> Outcome {
        let (old, new) = (&self.request["oldObject"], &self.request["object"]);
        if self.caller().requester() == Requester::Component || old["status"] == new["status"] {
            return Outcome::default();
        }
        let mut restored = new.clone();
        match (restored.as_object_mut(), old.get("status")) {
            (Some(object), Some(status)) => {
                object.insert("status".to_owned(), status.clone());
            }
            (Some(object), None) => {
                object.remove("status");
            }
            (None, _) => {}
        }
        Outcome {
            patch: json_patch(new, &restored),
            ..Outcome::default()
        }
    }

    fn patch<T: Serialize>(&self, before: &T, after: &T) -> Outcome {
        self.patch_from(self.request["object"].clone(), before, after)
    }

    /// The patch that makes the request's object what `changed` is with the changes from `before` to `after`.
    fn patch_from<T: Serialize>(&self, mut changed: Value, before: &T, after: &T) -> Outcome {
        let [before, after] =
            [before, after].map(|object| serde_json::to_value(object).unwrap_or_default());
        let raw = &self.request["object"];
        carry_over(&mut changed, &before, &after);
        write_fractions_as_text(&mut changed, &after);
        // The types serialize the storage version; the request may use an older one.
        if let Some(version) = raw.get("apiVersion") {
            changed["apiVersion"] = version.clone();
        }
        Outcome {
            patch: json_patch(raw, &changed),
            ..Outcome::default()
        }
    }

    fn caller(&self) -> vmi::Caller<'_> {
        let info = &self.request["userInfo"];
        let user = info["username"].as_str().unwrap_or_default();
        if !self.config.is_component(user) {
            return vmi::Caller::User;
        }
        if !user.ends_with(HANDLER_SUFFIX) {
            return vmi::Caller::Component;
        }
        // Kubernetes adds extra fields for tokens, none for certificates.
        let extra = info["extra"].as_object();
        vmi::Caller::Handler(match extra.filter(|extra| !extra.is_empty()) {
            None => vmi::Identity::Certificate,
            Some(extra) => {
                let node = extra.get(NODE_NAME_KEY);
                vmi::Identity::Token(node.and_then(|names| names[0].as_str()))
            }
        })
    }

    fn object<T: DeserializeOwned>(&self, name: &str) -> Result<T, Violation> {
        read_object(self.request, name)
    }
}

fn has_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
