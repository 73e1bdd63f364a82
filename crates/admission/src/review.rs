//! The webhooks' envelope: an `AdmissionReview` with a request in, one with a response out.
//!
//! Whatever comes in, an answer goes out: what cannot be read is refused with the path and the
//! reason. Patches hold only what changed.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kubevirt_api::{GROUP, VirtualMachine, VirtualMachineInstance};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    ClusterConfig, Surroundings, Violation,
    checks::Requester,
    defaults::{self, vm::Age},
    instancetype::infer,
    kinds::{self, Judgement, Neighbours},
    merge::carry_over,
    presets, vm, vmi,
};

/// Which of the two webhooks was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Mutate,
    Validate,
}

/// So many messages are joined in the summary; the rest is counted.
const SUMMARY: usize = 10;
/// So many causes are told one by one: an answer must not be larger than an API server reads.
const CAUSES: usize = 1000;

/// Last part of the name of nodes' agents.
const HANDLER: &str = ":kubevirt-handler";
/// What Kubernetes says of a token that is bound to a pod on a node.
const NODE_OF_TOKEN: &str = "authentication.kubernetes.io/node-name";

/// Answers a whole `AdmissionReview` with another, as if nothing else were in the cluster.
pub fn review(
    stage: Stage,
    review: &Value,
    config: &ClusterConfig,
    around: Surroundings<'_>,
) -> Value {
    review_among(stage, review, config, around, &Neighbours::default())
}

/// Answers a whole `AdmissionReview` with another; `among` holds what [`kinds::needs`] asked for.
pub fn review_among(
    stage: Stage,
    review: &Value,
    config: &ClusterConfig,
    around: Surroundings<'_>,
    among: &Neighbours,
) -> Value {
    let response = answer(stage, &review["request"], config, around, among);
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    })
}

/// The response to a `request` of the mutating webhooks: defaults, as a patch.
pub fn mutate(request: &Value, config: &ClusterConfig, around: Surroundings<'_>) -> Value {
    answer(
        Stage::Mutate,
        request,
        config,
        around,
        &Neighbours::default(),
    )
}

/// The response to a `request` of the validating webhooks.
pub fn validate(request: &Value, config: &ClusterConfig, around: Surroundings<'_>) -> Value {
    answer(
        Stage::Validate,
        request,
        config,
        around,
        &Neighbours::default(),
    )
}

fn answer(
    stage: Stage,
    request: &Value,
    config: &ClusterConfig,
    around: Surroundings<'_>,
    among: &Neighbours,
) -> Value {
    let call = Call {
        request,
        config,
        around,
        among,
    };
    response(request, &call.answer(stage))
}

fn response(request: &Value, verdict: &Verdict) -> Value {
    let status = if verdict.violations.is_empty() {
        verdict.plain.as_deref().map(plain_refusal)
    } else {
        Some(refusal(request, &verdict.violations))
    };
    let mut response = json!({ "uid": request["uid"], "allowed": status.is_none() });
    if let Some(status) = status {
        response["status"] = status;
    }
    if let Some(patch) = &verdict.patch {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(patch));
    }
    if !verdict.warnings.is_empty() {
        response["warnings"] = json!(verdict.warnings);
    }
    response
}

#[derive(Default)]
struct Verdict {
    violations: Vec<Violation>,
    /// Why the request as a whole cannot be had.
    plain: Option<String>,
    warnings: Vec<String>,
    patch: Option<String>,
}

impl From<Judgement> for Verdict {
    fn from(judgement: Judgement) -> Self {
        Self {
            violations: judgement.violations,
            plain: judgement.plain.map(|(_, message)| message),
            warnings: judgement.warnings,
            ..Verdict::default()
        }
    }
}

impl From<Vec<Violation>> for Verdict {
    fn from(violations: Vec<Violation>) -> Self {
        Self {
            violations,
            ..Self::default()
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Create,
    Update,
}

struct Call<'a> {
    request: &'a Value,
    config: &'a ClusterConfig,
    around: Surroundings<'a>,
    among: &'a Neighbours,
}

impl Call<'_> {
    fn answer(&self, stage: Stage) -> Verdict {
        if let Some(row) = kinds::find(&self.request["kind"]) {
            let answer = self.answer_for(row, stage);
            return answer.unwrap_or_else(|violation| vec![violation].into());
        }
        let operation = match self.request["operation"].as_str() {
            Some("CREATE") => Operation::Create,
            Some("UPDATE") => Operation::Update,
            _ => return Verdict::default(),
        };
        let kind = &self.request["kind"];
        if kind["group"] != GROUP {
            return Verdict::default();
        }
        let answer = match (kind["kind"].as_str(), stage) {
            (Some(VirtualMachine::KIND), Stage::Validate) if self.is_of_status() => {
                self.validate_vm_status(operation)
            }
            _ if self.is_of_part() => return Verdict::default(),
            (Some(VirtualMachine::KIND), Stage::Mutate) => self.mutate_vm(operation),
            (Some(VirtualMachine::KIND), Stage::Validate) => self.validate_vm(operation),
            (Some(VirtualMachineInstance::KIND), Stage::Mutate) => self.mutate_vmi(operation),
            (Some(VirtualMachineInstance::KIND), Stage::Validate) => self.validate_vmi(operation),
            _ => return Verdict::default(),
        };
        answer.unwrap_or_else(|violation| vec![violation].into())
    }

    /// For a kind that is a row of [`kinds::ROWS`].
    fn answer_for(&self, row: &kinds::Row, stage: Stage) -> Result<Verdict, Violation> {
        let Some(operation) = kinds::Operation::read(&self.request["operation"]) else {
            return Ok(Verdict::default());
        };
        let request = kinds::Request {
            raw: self.request,
            operation,
            requester: self.caller().requester(),
            config: self.config,
            around: self.around,
            among: self.among,
        };
        Ok(match stage {
            // A status has no rules beyond its types, which reading it checks.
            Stage::Validate if self.is_of_status() => {
                row.read(&request)?;
                Verdict::default()
            }
            _ if self.is_of_part() => Verdict::default(),
            Stage::Mutate => match row.fill(&request)? {
                Some([before, after]) => self.patch(&before, &after),
                None => Verdict::default(),
            },
            Stage::Validate => row.judge(&request)?.into(),
        })
    }

    fn is_of_status(&self) -> bool {
        self.request["subResource"] == "status"
    }

    /// Whether the request is about a subresource.
    fn is_of_part(&self) -> bool {
        has_text(&self.request["subResource"])
    }

    fn mutate_vm(&self, operation: Operation) -> Result<Verdict, Violation> {
        let before: VirtualMachine = self.object("object")?;
        if before.metadata.deletion_timestamp.is_some() {
            return Ok(Verdict::default());
        }
        let age = match operation {
            Operation::Create => Age::New,
            Operation::Update => Age::Old,
        };
        let mut after = before.clone();
        if let Err(message) = infer::settle(&mut after, &self.among.inferred) {
            return Ok(Verdict {
                plain: Some(message),
                ..Verdict::default()
            });
        }
        let context = defaults::vm::Context {
            age,
            found: defaults::vm::Found {
                preference: self.among.preference.as_deref(),
                architecture: self.among.architecture.as_deref(),
            },
            config: self.config,
            around: self.around,
        };
        defaults::vm::set(&mut after, &context);
        Ok(self.patch(&before, &after))
    }

    fn mutate_vmi(&self, operation: Operation) -> Result<Verdict, Violation> {
        if operation == Operation::Update {
            return Ok(self.keep_status());
        }
        let before: VirtualMachineInstance = self.object("object")?;
        let mut after = before.clone();
        let warnings = match presets::apply(&mut after, &self.among.presets) {
            Ok(warnings) => warnings,
            Err(violations) => return Ok(violations.into()),
        };
        Ok(
            match defaults::vmi::set(&mut after, self.config, self.around) {
                Ok(()) => Verdict {
                    warnings,
                    ..self.patch(&before, &after)
                },
                Err(violations) => violations.into(),
            },
        )
    }

    fn validate_vm(&self, operation: Operation) -> Result<Verdict, Violation> {
        let new: VirtualMachine = self.object("object")?;
        if new.metadata.deletion_timestamp.is_some() {
            return Ok(Verdict::default());
        }
        let old = self.old(operation)?;
        Ok(Verdict {
            violations: vm::validate(&self.vm_input(&new, old.as_ref())),
            warnings: vm::warnings(&new, self.config),
            ..Verdict::default()
        })
    }

    fn validate_vm_status(&self, operation: Operation) -> Result<Verdict, Violation> {
        let new: VirtualMachine = self.object("object")?;
        if new.metadata.deletion_timestamp.is_some() {
            return Ok(Verdict::default());
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
                instancetype: self.among.instancetype.as_deref(),
                preference: self.among.preference.as_deref(),
                instance: self.among.instance.as_deref(),
            },
            config: self.config,
            requester: self.caller().requester(),
            around: self.around,
        }
    }

    fn validate_vmi(&self, operation: Operation) -> Result<Verdict, Violation> {
        let new: VirtualMachineInstance = self.object("object")?;
        Ok(match operation {
            Operation::Create => Verdict {
                violations: vmi::validate_create(&new, self.config, self.caller().requester()),
                warnings: vmi::warnings(&new, self.config),
                ..Verdict::default()
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

    /// Users' changes of a status are put back without a word: the object has no status
    /// subresource that could keep them out.
    fn keep_status(&self) -> Verdict {
        let (old, new) = (&self.request["oldObject"], &self.request["object"]);
        if self.caller().requester() == Requester::Component || old["status"] == new["status"] {
            return Verdict::default();
        }
        let mut kept = new.clone();
        match (kept.as_object_mut(), old.get("status")) {
            (Some(object), Some(status)) => {
                object.insert("status".to_owned(), status.clone());
            }
            (Some(object), None) => {
                object.remove("status");
            }
            (None, _) => {}
        }
        Verdict {
            patch: patch_text(new, &kept),
            ..Verdict::default()
        }
    }

    fn patch<T: Serialize>(&self, before: &T, after: &T) -> Verdict {
        let [before, after] =
            [before, after].map(|object| serde_json::to_value(object).unwrap_or_default());
        let raw = &self.request["object"];
        let mut changed = raw.clone();
        carry_over(&mut changed, &before, &after);
        // Types write the stored version; the request may be in the older one.
        if let Some(version) = raw.get("apiVersion") {
            changed["apiVersion"] = version.clone();
        }
        Verdict {
            patch: patch_text(raw, &changed),
            ..Verdict::default()
        }
    }

    fn caller(&self) -> vmi::Caller<'_> {
        let info = &self.request["userInfo"];
        let user = info["username"].as_str().unwrap_or_default();
        if !self.config.is_component(user) {
            return vmi::Caller::User;
        }
        if !user.ends_with(HANDLER) {
            return vmi::Caller::Component;
        }
        // Kubernetes says of tokens more than the name, and of certificates nothing.
        let extra = info["extra"].as_object();
        vmi::Caller::Handler(match extra.filter(|extra| !extra.is_empty()) {
            None => vmi::Identity::Certificate,
            Some(extra) => {
                let node = extra.get(NODE_OF_TOKEN);
                vmi::Identity::Token(node.and_then(|names| names[0].as_str()))
            }
        })
    }

    fn object<T: DeserializeOwned>(&self, name: &str) -> Result<T, Violation> {
        read_object(self.request, name)
    }
}

/// Reads `object` or `oldObject` of a request.
pub(crate) fn read_object<T: DeserializeOwned>(
    request: &Value,
    name: &str,
) -> Result<T, Violation> {
    serde_path_to_error::deserialize(&request[name]).map_err(|error| {
        let field = match error.path().to_string() {
            path if path == "." => name.to_owned(),
            path => path,
        };
        Violation::invalid(field, error.inner())
    })
}

fn patch_text(old: &Value, new: &Value) -> Option<String> {
    let patch = json_patch::diff(old, new);
    if patch.0.is_empty() {
        return None;
    }
    serde_json::to_string(&patch).ok()
}

fn has_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn plain_refusal(message: &str) -> Value {
    json!({ "status": "Failure", "message": message, "reason": "BadRequest", "code": 400 })
}

fn refusal(request: &Value, violations: &[Violation]) -> Value {
    let shown: Vec<&str> = violations
        .iter()
        .take(SUMMARY)
        .map(|violation| violation.message.as_str())
        .collect();
    let rest = violations.len() - shown.len();
    let mut message = shown.join("; ");
    if rest > 0 {
        message = format!("{message}; and {rest} more");
    }
    let causes = violations.iter().take(CAUSES).map(Violation::to_json);
    let causes: Vec<Value> = causes.collect();
    json!({
        "status": "Failure",
        "message": message,
        "reason": "Invalid",
        "code": 422,
        "details": {
            "group": request["kind"]["group"],
            "kind": request["kind"]["kind"],
            "name": request["name"],
            "causes": causes,
        },
    })
}

#[cfg(test)]
mod tests;
