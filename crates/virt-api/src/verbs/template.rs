//! `process` and `create` of a template of VMs: fills in its parameters, and returns or creates the VM.
//!
//! The right to `create` is enough to create the VM, so an administrator can permit users to make VMs of templates
//! only. The VM is then created with the rights of virt-api, whose VMs may have more labels than those of users. Its
//! user is in the log of virt-api; policies of the cluster see virt-api.
//!
//! **Invariants**: a VM is created in the namespace of its template alone, and never with labels that are reserved
//! for components.

use axum::{
    Json,
    extract::{Path, Request, State},
    routing::post,
};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, PostParams},
};
use kubevirt_api::{
    API_VERSION, VirtualMachine, labels,
    template::{ProcessOptions, VirtualMachineTemplate},
};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;
use vm_template::{Problem, Processed, Values, process};

use super::{
    body,
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
    query,
};
use crate::{caller, refusal::Refusal, settings::Shared};

const PROCESS_NAME: &str = "process";
const CREATE_NAME: &str = "create";
const GATE: &str = "Template";
const ANSWER: Answer = Answer::Object("ProcessedVirtualMachineTemplate");
const BODY: &str = "ProcessOptions";
const DRY_RUN: &str = "dryRun";
/// The manager of the fields of a VM.
const MANAGER: &str = "virt-api";
/// A template has at most so many problems in a message.
const SHOWN_PROBLEMS: usize = 20;

pub(super) const PROCESS: Entry = Entry {
    object: Object::Template,
    name: PROCESS_NAME,
    verb: Verb::Create,
    level: Level::View,
    contract: Contract::new(ANSWER, &[400, 404, 422, 500]).with_body(BODY),
    handler: Handler::Built(|| post(show)),
};

pub(super) const CREATE: Entry = Entry {
    name: CREATE_NAME,
    level: Level::Edit,
    contract: Contract::new(ANSWER, &[400, 404, 409, 422, 500])
        .with_body(BODY)
        .with_query(&[(DRY_RUN, "string")]),
    handler: Handler::Built(|| post(create)),
    ..PROCESS
};

/// The parameters of the path.
#[derive(Debug, Deserialize)]
struct Place {
    namespace: String,
    name: String,
}

/// A template with its parameters filled in.
struct Filled {
    /// Of the request.
    version: String,
    /// The name of the user.
    user: String,
    processed: Processed,
}

async fn show(
    State(shared): State<Shared>,
    Path(place): Path<Place>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let filled = fill(&shared, &place, PROCESS_NAME, request).await?;
    Ok(Json(filled.answer(&place)))
}

async fn create(
    State(shared): State<Shared>,
    Path(place): Path<Place>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let dry_run = is_dry_run(request.uri().query())?;
    let mut filled = fill(&shared, &place, CREATE_NAME, request).await?;
    let vm = to_create(&filled.processed.vm, &place.namespace).map_err(|message| {
        let name = &place.name;
        Refusal::invalid(format!("VirtualMachineTemplate {name:?}: {message}"))
    })?;
    let kind = ApiResource::erase::<VirtualMachine>(&());
    let vms: Api<DynamicObject> =
        Api::namespaced_with(shared.client.clone(), &place.namespace, &kind);
    let parameters = PostParams {
        dry_run,
        field_manager: Some(MANAGER.to_owned()),
    };
    // Before the VM, so that none is without a user: the answer may be lost.
    tracing::info!(
        user = filled.user,
        namespace = place.namespace,
        template = place.name,
        vm = vm.metadata.name,
        dry_run,
        "creating a VM of a template"
    );
    let made = vms.create(&parameters, &vm).await?;
    tracing::info!(
        user = filled.user,
        namespace = place.namespace,
        template = place.name,
        vm = made.metadata.name,
        uid = made.metadata.uid,
        dry_run,
        "created a VM of a template"
    );
    filled.processed.vm =
        serde_json::to_value(made).map_err(|error| Refusal::internal(error.to_string()))?;
    Ok(Json(filled.answer(&place)))
}

/// Whether the VM is only checked.
fn is_dry_run(query: Option<&str>) -> Result<bool, Refusal> {
    match query::value(query, DRY_RUN) {
        None | Some("") => Ok(false),
        Some("All") => Ok(true),
        Some(other) => Err(Refusal::bad_request(format!(
            "query parameter {DRY_RUN}: {other:?} is unknown; give All, or leave it out"
        ))),
    }
}

/// Reads the template and fills it in, if the user has the right to the verb.
async fn fill(
    shared: &Shared,
    place: &Place,
    verb: &str,
    request: Request,
) -> Result<Filled, Refusal> {
    let version = version(request.uri().path()).to_owned();
    let access = caller::Access {
        namespace: &place.namespace,
        name: &place.name,
        resource: Object::Template.plural(),
        subresource: verb,
        verb: Verb::Create.name(),
    };
    let user = caller::user(shared, &request)?;
    let name = user.name().to_owned();
    let group = (Object::Template.api().group, version.as_str());
    caller::authorize_in(shared, user, group, &access).await?;
    if !shared.cluster.now().has_gate(GATE) {
        return Err(Refusal::bad_request(format!(
            "templates need the feature gate {GATE}: an administrator can add it to \
             spec.configuration.developerConfiguration.featureGates of the KubeVirt object"
        )));
    }
    let options: ProcessOptions = body::read(request).await?;
    let templates: Api<VirtualMachineTemplate> =
        Api::namespaced(shared.client.clone(), &place.namespace);
    let template = templates.get_opt(&place.name).await?;
    let template = template.ok_or_else(|| {
        Refusal::missing(format!(
            "virtualmachinetemplates.template.kubevirt.io {:?} not found",
            place.name
        ))
    })?;
    let processed = process_apart(template, options).await?;
    let processed = processed.map_err(|problems| refusal(&place.name, &problems))?;
    Ok(Filled {
        version,
        user: name,
        processed,
    })
}

/// Fills in the template on a thread of its own: a large one takes long, and other requests and webhooks go on.
async fn process_apart(
    template: VirtualMachineTemplate,
    options: ProcessOptions,
) -> Result<Result<Processed, Vec<Problem>>, Refusal> {
    let work = move || {
        let values = Values {
            given: &options.parameters,
            choose: &mut random_below,
        };
        process(&template, values)
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Refusal::internal(format!("fill in the template: {error}")))
}

/// The version in the path of a request.
fn version(path: &str) -> &str {
    // "", "apis", the group, the version.
    path.split('/').nth(3).unwrap_or_default()
}

/// A number below `count`, from the random numbers of the system; 0 for 0.
fn random_below(count: usize) -> usize {
    // The bits above are the version and the variant of the UUID.
    let bits = Uuid::new_v4().as_u128() & u128::from(u64::MAX >> 2);
    let number = u64::try_from(bits).unwrap_or_default();
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    let chosen = number.checked_rem(count).unwrap_or_default();
    usize::try_from(chosen).unwrap_or_default()
}

fn refusal(name: &str, problems: &[Problem]) -> Refusal {
    let shown = problems.iter().take(SHOWN_PROBLEMS);
    let mut texts: Vec<String> = shown.map(ToString::to_string).collect();
    let more = problems.len().saturating_sub(SHOWN_PROBLEMS);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    let all = texts.join("; ");
    Refusal::invalid(format!("VirtualMachineTemplate {name:?}: {all}"))
}

/// The VM to create in the namespace; the message if it must not be created.
fn to_create(vm: &Value, namespace: &str) -> Result<DynamicObject, String> {
    let own = vm.pointer("/metadata/namespace").and_then(Value::as_str);
    if let Some(own) = own.filter(|own| !own.is_empty() && *own != namespace) {
        return Err(format!(
            "spec.virtualMachine.metadata.namespace: {own:?} is not the namespace of the template, \
             {namespace:?}; create the VM there, or take the namespace out of the template"
        ));
    }
    let given = vm.pointer("/spec/template/metadata/labels");
    let mut reserved = labels::RESERVED_ON_VMI.iter();
    if let Some(key) = reserved.find(|key| given.is_some_and(|all| all.get(**key).is_some())) {
        return Err(format!(
            "spec.virtualMachine.spec.template.metadata.labels: label {key} is reserved for the \
             system; remove it"
        ));
    }
    let mut vm = vm.clone();
    vm["apiVersion"] = API_VERSION.into();
    vm["kind"] = VirtualMachine::KIND.into();
    serde_json::from_value(vm).map_err(|error| format!("spec.virtualMachine: {error}"))
}

impl Filled {
    fn answer(self, place: &Place) -> Value {
        let Processed { vm, message } = self.processed;
        let mut answer = json!({
            "apiVersion": format!("{}/{}", Object::Template.api().group, self.version),
            "kind": "ProcessedVirtualMachineTemplate",
            "metadata": {},
            "templateRef": {"namespace": place.namespace, "name": place.name},
            "virtualMachine": vm,
        });
        if let Some(message) = message.filter(|message| !message.is_empty()) {
            answer["message"] = message.into();
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vm() -> Value {
        json!({
            "apiVersion": "kubevirt.io/v1alpha3", "kind": "VirtualMachine",
            "metadata": {"name": "web"},
            "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}},
        })
    }

    #[test]
    fn vm_is_created_in_the_namespace_of_its_template() {
        let made = to_create(&vm(), "a").unwrap();
        let types = made.types.unwrap();
        assert_eq!(
            (types.api_version.as_str(), types.kind.as_str()),
            ("kubevirt.io/v1", "VirtualMachine")
        );
        let mut other = vm();
        other["metadata"]["namespace"] = "a".into();
        assert!(to_create(&other, "a").is_ok());
        let message = to_create(&other, "b").unwrap_err();
        assert!(message.contains("metadata.namespace"), "{message}");
    }

    #[test]
    fn labels_of_components_are_refused() {
        for key in labels::RESERVED_ON_VMI {
            let mut labelled = vm();
            labelled["spec"]["template"]["metadata"] = json!({"labels": {*key: "a"}});
            let message = to_create(&labelled, "a").unwrap_err();
            assert!(message.contains(key), "{message}");
        }
        let mut labelled = vm();
        labelled["spec"]["template"]["metadata"] = json!({"labels": {"app": "web"}});
        assert!(to_create(&labelled, "a").is_ok());
    }

    #[test]
    fn answer_has_the_version_of_the_request() {
        let path = "/apis/subresources.template.kubevirt.io/v1alpha1/namespaces/a/x/b/process";
        let filled = |message: Option<&str>| Filled {
            version: version(path).to_owned(),
            user: "ann".to_owned(),
            processed: Processed {
                vm: vm(),
                message: message.map(str::to_owned),
            },
        };
        let place = Place {
            namespace: "a".to_owned(),
            name: "b".to_owned(),
        };
        let answer = filled(Some("start it")).answer(&place);
        assert_eq!(
            answer["apiVersion"],
            "subresources.template.kubevirt.io/v1alpha1"
        );
        assert_eq!(
            answer["templateRef"],
            json!({"namespace": "a", "name": "b"})
        );
        assert_eq!(answer["message"], "start it");
        let without = filled(Some("")).answer(&place);
        assert_eq!(without.get("message"), None);
    }

    #[test]
    fn dry_runs_are_read_from_the_query() {
        assert!(is_dry_run(Some("dryRun=All")).unwrap());
        assert!(!is_dry_run(Some("fieldManager=a")).unwrap());
        assert!(!is_dry_run(None).unwrap());
        assert_eq!(is_dry_run(Some("dryRun=Some")).unwrap_err().code, 400);
    }

    #[test]
    fn message_has_a_limited_number_of_problems() {
        let problem = |number: usize| Problem {
            field: format!("spec.parameters[{number}].value"),
            detail: "give one".to_owned(),
        };
        let few: Vec<Problem> = (0..2).map(problem).collect();
        assert_eq!(
            refusal("web", &few).message,
            "VirtualMachineTemplate \"web\": spec.parameters[0].value: give one; \
             spec.parameters[1].value: give one"
        );
        let many: Vec<Problem> = (0..50).map(problem).collect();
        let refusal = refusal("web", &many);
        assert_eq!(refusal.code, 422);
        assert!(
            refusal.message.ends_with("; and 30 more"),
            "{}",
            refusal.message
        );
    }

    #[test]
    fn every_number_below_the_count_is_chosen() {
        let chosen: std::collections::BTreeSet<usize> =
            (0..500).map(|_| random_below(10)).collect();
        assert_eq!(chosen, (0..10).collect());
        assert_eq!(random_below(0), 0);
    }
}
