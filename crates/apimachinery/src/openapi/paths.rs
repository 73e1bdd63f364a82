//! The paths of resources and their operations.

use serde_json::{Map, Value, json};

use super::definitions::{Dialect, PATCH, STATUS, name_of};
use crate::resource::split_api_version;
use crate::{Resource, Subresource};

const MEDIA_TYPES: [&str; 2] = ["application/json", "application/yaml"];
const PATCH_TYPES: [&str; 3] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];
const STRATEGIC: &str = "application/strategic-merge-patch+json";

pub(super) fn all(resources: &[&Resource], dialect: Dialect) -> Value {
    let mut out = Map::new();
    for resource in resources {
        let root = format!("/{}", group_path(&resource.group, &resource.version));
        let collection = if resource.namespaced {
            format!("{root}/namespaces/{{namespace}}/{}", resource.plural)
        } else {
            format!("{root}/{}", resource.plural)
        };
        let maker = Maker { resource, dialect };
        if resource.namespaced {
            let everywhere = format!("{root}/{}", resource.plural);
            let list = maker.methods(&[("list", "get", "ForAllNamespaces")], Place::Everywhere);
            add(&mut out, everywhere, list);
        }
        let verbs = [
            ("list", "get", ""),
            ("create", "post", ""),
            ("deletecollection", "delete", "Collection"),
        ];
        add(
            &mut out,
            collection.clone(),
            maker.methods(&verbs, Place::Collection),
        );
        let item = format!("{collection}/{{name}}");
        let verbs = [
            ("get", "get", ""),
            ("update", "put", ""),
            ("patch", "patch", ""),
            ("delete", "delete", ""),
        ];
        add(&mut out, item.clone(), maker.methods(&verbs, Place::Item));
        for sub in &resource.subresources {
            add(
                &mut out,
                format!("{item}/{}", sub.name),
                maker.subresource(sub),
            );
        }
    }
    Value::Object(out)
}

fn add(out: &mut Map<String, Value>, path: String, item: Option<Value>) {
    if let Some(item) = item {
        out.insert(path, item);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Everywhere,
    Collection,
    Item,
}

struct Maker<'a> {
    resource: &'a Resource,
    dialect: Dialect,
}

/// One operation on a path.
struct Action<'a> {
    verb: &'a str,
    id: String,
    /// Name of the definition of the response.
    answer: String,
    gvk: Value,
}

impl Maker<'_> {
    /// The resource's methods (verb, HTTP method, end of the operation's name).
    fn methods(&self, verbs: &[(&str, &str, &str)], place: Place) -> Option<Value> {
        let r = self.resource;
        let mut out = Map::new();
        for (verb, method, suffix) in verbs
            .iter()
            .filter(|(v, _, _)| r.verbs.iter().any(|o| o == v))
        {
            let kind = name_of(r);
            let action = Action {
                verb,
                id: format!("{}{}", self.operation(verb), suffix),
                answer: match *verb {
                    "list" => format!("{kind}List"),
                    "delete" | "deletecollection" => STATUS.to_owned(),
                    _ => kind,
                },
                gvk: json!({"group": r.group, "kind": r.kind, "version": r.version}),
            };
            out.insert((*method).to_owned(), self.operation_body(&action));
        }
        self.with_parameters(out, place)
    }

    fn subresource(&self, sub: &Subresource) -> Option<Value> {
        let r = self.resource;
        let own = r.api_version();
        let (group, version) = split_api_version(sub.api_version.as_deref().unwrap_or(&own));
        let same = sub.kind == r.kind && sub.api_version.is_none();
        let mut out = Map::new();
        for verb in &sub.verbs {
            let method = match verb.as_str() {
                "get" => "get",
                "create" => "post",
                "update" => "put",
                "patch" => "patch",
                "delete" => "delete",
                _ => continue,
            };
            let action = Action {
                verb,
                id: format!("{}{}", self.operation(verb), camel(&sub.name)),
                answer: if same { name_of(r) } else { PATCH.to_owned() },
                gvk: json!({"group": group, "kind": sub.kind, "version": version}),
            };
            out.insert(method.to_owned(), self.operation_body(&action));
        }
        self.with_parameters(out, Place::Item)
    }

    /// `patchKubevirtIoV1NamespacedVirtualMachine`
    fn operation(&self, verb: &str) -> String {
        let r = self.resource;
        let group = if r.group.is_empty() {
            "core".to_owned()
        } else {
            r.group.clone()
        };
        let verb = match verb {
            "get" => "read",
            "update" => "replace",
            "deletecollection" => "delete",
            verb => verb,
        };
        let scope = if r.namespaced { "Namespaced" } else { "" };
        format!(
            "{verb}{}{}{scope}{}",
            camel(&group),
            camel(&r.version),
            r.kind
        )
    }

    fn operation_body(&self, action: &Action<'_>) -> Value {
        let sends = matches!(action.verb, "create" | "update" | "patch");
        let parameters: Vec<Value> = query_parameters(action.verb)
            .map(|(name, kind)| self.query(name, kind))
            .collect();
        let action_name = match action.verb {
            "create" => "post",
            "update" => "put",
            verb => verb,
        };
        let mut out = json!({
            "description": format!("{} {}", action.verb, self.resource.kind),
            "operationId": action.id,
            "parameters": parameters,
            "responses": {"200": self.response(&action.answer)},
            "x-kubernetes-action": action_name,
            "x-kubernetes-group-version-kind": action.gvk,
        });
        if sends {
            let body = if action.verb == "patch" {
                PATCH
            } else {
                action.answer.as_str()
            };
            self.add_body(&mut out, action.verb, body);
        } else if self.dialect == Dialect::V2 {
            out["produces"] = MEDIA_TYPES.to_vec().into();
        }
        out
    }

    fn add_body(&self, out: &mut Value, verb: &str, name: &str) {
        let types: Vec<&str> = match (verb, self.dialect) {
            ("patch", Dialect::V2) if self.resource.takes_strategic_patches => {
                PATCH_TYPES.into_iter().chain([STRATEGIC]).collect()
            }
            ("patch", _) => PATCH_TYPES.to_vec(),
            _ => MEDIA_TYPES.to_vec(),
        };
        let schema = self.dialect.reference(name);
        match self.dialect {
            Dialect::V3 => {
                let content: Map<String, Value> = types
                    .iter()
                    .map(|t| ((*t).to_owned(), json!({"schema": schema})))
                    .collect();
                out["requestBody"] = json!({"required": true, "content": content});
            }
            Dialect::V2 => {
                let body =
                    json!({"name": "body", "in": "body", "required": true, "schema": schema});
                if let Some(parameters) = out["parameters"].as_array_mut() {
                    parameters.insert(0, body);
                }
                out["consumes"] = types.into();
                out["produces"] = MEDIA_TYPES.to_vec().into();
            }
        }
    }

    fn response(&self, name: &str) -> Value {
        let schema = self.dialect.reference(name);
        match self.dialect {
            Dialect::V2 => json!({"description": "OK", "schema": schema}),
            Dialect::V3 => {
                let content: Map<String, Value> = MEDIA_TYPES
                    .iter()
                    .map(|t| ((*t).to_owned(), json!({"schema": schema})))
                    .collect();
                json!({"description": "OK", "content": content})
            }
        }
    }

    fn query(&self, name: &str, kind: &str) -> Value {
        self.parameter(name, "query", kind)
    }

    fn parameter(&self, name: &str, place: &str, kind: &str) -> Value {
        let mut out = json!({"name": name, "in": place});
        if place == "path" {
            out["required"] = true.into();
        } else {
            out["uniqueItems"] = true.into();
        }
        match self.dialect {
            Dialect::V2 => out["type"] = kind.into(),
            Dialect::V3 => {
                drop(crate::meta::object_mut(&mut out).shift_remove("uniqueItems"));
                out["schema"] = json!({"type": kind});
            }
        }
        out
    }

    fn with_parameters(&self, mut methods: Map<String, Value>, place: Place) -> Option<Value> {
        if methods.is_empty() {
            return None;
        }
        let mut parameters = Vec::new();
        if place == Place::Item {
            parameters.push(self.parameter("name", "path", "string"));
        }
        if self.resource.namespaced && place != Place::Everywhere {
            parameters.push(self.parameter("namespace", "path", "string"));
        }
        parameters.push(self.query("pretty", "string"));
        methods.insert("parameters".to_owned(), parameters.into());
        Some(Value::Object(methods))
    }
}

/// The query parameters of a verb, each with its type.
fn query_parameters(verb: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    const WRITE: &[(&str, &str)] = &[
        ("dryRun", "string"),
        ("fieldManager", "string"),
        ("fieldValidation", "string"),
    ];
    const LIST: &[(&str, &str)] = &[
        ("allowWatchBookmarks", "boolean"),
        ("continue", "string"),
        ("fieldSelector", "string"),
        ("labelSelector", "string"),
        ("limit", "integer"),
        ("resourceVersion", "string"),
        ("resourceVersionMatch", "string"),
        ("sendInitialEvents", "boolean"),
        ("timeoutSeconds", "integer"),
        ("watch", "boolean"),
    ];
    const DELETE: &[(&str, &str)] = &[
        ("dryRun", "string"),
        ("gracePeriodSeconds", "integer"),
        ("orphanDependents", "boolean"),
        ("propagationPolicy", "string"),
    ];
    const FORCE: &[(&str, &str)] = &[("force", "boolean")];
    const NONE: &[(&str, &str)] = &[];
    let (first, second) = match verb {
        "create" | "update" => (WRITE, NONE),
        "patch" => (WRITE, FORCE),
        "list" => (LIST, NONE),
        "delete" => (DELETE, NONE),
        "deletecollection" => (LIST, DELETE),
        _ => (NONE, NONE),
    };
    first.iter().chain(second).copied()
}

/// `kubevirt.io` becomes `KubevirtIo`.
fn camel(text: &str) -> String {
    text.split(['.', '-', '/'])
        .flat_map(|part| {
            let mut chars = part.chars();
            let first = chars.next().into_iter().flat_map(char::to_uppercase);
            first.chain(chars).collect::<Vec<char>>()
        })
        .collect()
}

/// `api/v1` or `apis/group/version`.
pub(super) fn group_path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}
