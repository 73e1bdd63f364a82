//! Kinds defined by a `CustomResourceDefinition`.
//!
//! Invariant: [`check`] and [`versions`] agree on which definitions are valid.

use std::{cmp::Reverse, sync::Arc};

use apimachinery::{
    Subresource, Violation,
    jsonpath::JsonPath,
    resource::join_api_version,
    schema::{Interner, Schema},
    table::Layout,
};
use serde_json::{Value, json};

use super::{Custom, Origin, Scale, Served, StoredAs};
use crate::store::Collection;

/// Keeps a definition until the objects of its kind are deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// In the order of kube-apiserver.
const CUSTOM_VERBS: &[&str] = &[
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// Every error of a definition.
pub(crate) fn check(crd: &Value) -> Vec<Violation> {
    let spec = &crd["spec"];
    let mut wrong = Vec::new();
    for (path, value) in [
        ("spec.group", &spec["group"]),
        ("spec.scope", &spec["scope"]),
        ("spec.names.plural", &spec["names"]["plural"]),
        ("spec.names.kind", &spec["names"]["kind"]),
    ] {
        if value.as_str().unwrap_or_default().is_empty() {
            wrong.push(Violation::required(path, ""));
        }
    }
    let expected = format!(
        "{}.{}",
        text(&spec["names"]["plural"]),
        text(&spec["group"])
    );
    let name = apimachinery::meta::name(crd);
    if name != expected {
        let why = "must be spec.names.plural+\".\"+spec.group";
        wrong.push(Violation::invalid("metadata.name", name, why));
    }
    if list(&spec["versions"])
        .iter()
        .filter(|version| version["storage"] == json!(true))
        .count()
        != 1
    {
        let why = "must have exactly one version marked as storage version";
        wrong.push(Violation::invalid(
            "spec.versions",
            spec["versions"].clone(),
            why,
        ));
    }
    let versions = list(&spec["versions"]);
    // A schema error in all versions is reported once, for the whole definition.
    let is_shared = versions
        .windows(2)
        .all(|pair| pair[0]["schema"] == pair[1]["schema"]);
    for (at, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{at}]");
        let schema = &version["schema"]["openAPIV3Schema"];
        let own = format!("{path}.schema.openAPIV3Schema");
        if schema.is_null() {
            wrong.push(Violation::required(own, ""));
        } else if !is_shared || at == 0 {
            let place = if is_shared {
                "spec.validation.openAPIV3Schema".to_owned()
            } else {
                own
            };
            wrong.extend(Schema::parse(schema, &place).err().into_iter().flatten());
        }
        let at = format!("{path}.additionalPrinterColumns");
        if let Err(found) = Layout::custom(&version["additionalPrinterColumns"], &at) {
            wrong.extend(found);
        }
    }
    wrong
}

/// CEL rules of a definition that do not compile.
pub(crate) fn check_rules(crd: &Value) -> Vec<Violation> {
    let mut wrong = Vec::new();
    let (mut schemas, mut shared) = (Schemas::default(), Interner::default());
    for (at, version) in list(&crd["spec"]["versions"]).iter().enumerate() {
        let path = format!("spec.versions[{at}].schema.openAPIV3Schema");
        if let Ok(schema) = schemas.parse(version, &path, &mut shared) {
            wrong.extend(schema.check_rules(&path));
        }
    }
    wrong
}

/// The parsed schemas of one definition, whose versions mostly have the same one.
#[derive(Default)]
struct Schemas<'a>(Vec<(&'a Value, Arc<Schema>)>);

impl<'a> Schemas<'a> {
    fn parse(
        &mut self,
        version: &'a Value,
        at: &str,
        shared: &mut Interner,
    ) -> Result<Arc<Schema>, Vec<Violation>> {
        let raw = &version["schema"]["openAPIV3Schema"];
        if let Some((_, known)) = self.0.iter().find(|(known, _)| *known == raw) {
            return Ok(Arc::clone(known));
        }
        let schema = Schema::parse_shared(raw, at, shared)?;
        self.0.push((raw, Arc::clone(&schema)));
        Ok(schema)
    }
}

/// Fills in names derived from others.
pub(crate) fn default(crd: &mut Value) {
    let Some(spec) = crd.get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else {
        return;
    };
    let kind = names
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    names
        .entry("listKind")
        .or_insert_with(|| format!("{kind}List").into());
    names
        .entry("singular")
        .or_insert_with(|| kind.to_lowercase().into());
}

/// Sets the status of an accepted definition.
pub(crate) fn accept(crd: &mut Value, now: &str) {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "lastTransitionTime": now,
               "reason": reason, "message": message})
    };
    let mut stored: Vec<Value> = list(&crd["status"]["storedVersions"]).to_vec();
    for version in list(&crd["spec"]["versions"]) {
        if version["storage"] == json!(true) && !stored.contains(&version["name"]) {
            stored.push(version["name"].clone());
        }
    }
    let conditions = if list(&crd["status"]["conditions"]).is_empty() {
        json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition(
                "Established",
                "InitialNamesAccepted",
                "the initial names have been accepted"
            ),
        ])
    } else {
        crd["status"]["conditions"].clone()
    };
    crd["status"] = json!({
        "conditions": conditions,
        "acceptedNames": crd["spec"]["names"],
        "storedVersions": stored,
    });
}

/// The served versions of a definition of this revision, the preferred one first.
pub(crate) fn versions(
    crd: &Value,
    revision: u64,
    shared: &mut Interner,
) -> Result<Vec<Served>, Vec<Violation>> {
    let spec = &crd["spec"];
    let (group, names) = (text(&spec["group"]), &spec["names"]);
    let stored = list(&spec["versions"])
        .iter()
        .find(|version| version["storage"] == json!(true));
    let storage = stored
        .map(|version| join_api_version(&group, &text(&version["name"])))
        .unwrap_or_default();
    let at = "spec.versions.schema.openAPIV3Schema";
    let mut schemas = Schemas::default();
    let stored_schema = schemas.parse(stored.unwrap_or(&Value::Null), at, shared)?;
    let mut versions: Vec<&Value> = list(&spec["versions"])
        .iter()
        .filter(|version| version["served"] == json!(true))
        .collect();
    versions.sort_by_key(|version| priority(version["name"].as_str().unwrap_or_default()));
    versions
        .into_iter()
        .map(|version| {
            let schema = schemas.parse(version, at, shared)?;
            let columns = Layout::custom(
                &version["additionalPrinterColumns"],
                "spec.versions.additionalPrinterColumns",
            )?;
            let kind = text(&names["kind"]);
            Ok(Served {
                version: text(&version["name"]),
                list_kind: text(&names["listKind"]),
                plural: text(&names["plural"]),
                singular: text(&names["singular"]),
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                namespaced: spec["scope"] == json!("Namespaced"),
                verbs: CUSTOM_VERBS,
                deprecation: deprecation(spec, version, &group, &kind),
                subresources: subresources(version, &kind),
                collection: Collection::new(&group, &text(&names["plural"])),
                storage_api_version: storage.clone(),
                origin: Origin::Custom(Box::new(Custom {
                    schema,
                    columns,
                    selectable: list(&version["selectableFields"])
                        .iter()
                        .map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned())
                        .collect(),
                    scale: scale(&version["subresources"]["scale"]),
                    definition: apimachinery::meta::name(crd).to_owned(),
                    conversion: (spec["conversion"]["strategy"] == json!("Webhook"))
                        .then(|| spec["conversion"]["webhook"].clone()),
                    stored: StoredAs {
                        schema: Arc::clone(&stored_schema),
                        since: revision,
                    },
                })),
                kind,
                group: group.clone(),
            })
        })
        .collect()
}

/// The warning for users of a deprecated version.
fn deprecation(spec: &Value, version: &Value, group: &str, kind: &str) -> Option<String> {
    if version["deprecated"] != json!(true) {
        return None;
    }
    if let Some(own) = version["deprecationWarning"].as_str() {
        return Some(own.to_owned());
    }
    let name = text(&version["name"]);
    let mut better: Vec<&str> = list(&spec["versions"])
        .iter()
        .filter(|other| other["served"] == json!(true) && other["deprecated"] != json!(true))
        .filter_map(|other| other["name"].as_str())
        .filter(|other| priority(other) < priority(&name))
        .collect();
    better.sort_by_key(|other| priority(other));
    let hint = better
        .first()
        .map(|other| format!("; use {group}/{other} {kind}"))
        .unwrap_or_default();
    Some(format!("{group}/{name} {kind} is deprecated{hint}"))
}

fn subresources(version: &Value, kind: &str) -> Vec<Subresource> {
    let declared = &version["subresources"];
    let verbs = || ["get", "patch", "update"].map(ToOwned::to_owned).to_vec();
    let mut out = Vec::new();
    if !declared["status"].is_null() {
        let name = "status".to_owned();
        out.push(Subresource {
            name,
            kind: kind.to_owned(),
            api_version: None,
            verbs: verbs(),
        });
    }
    if !declared["scale"].is_null() {
        out.push(Subresource {
            name: "scale".to_owned(),
            kind: "Scale".to_owned(),
            api_version: Some("autoscaling/v1".to_owned()),
            verbs: verbs(),
        });
    }
    out
}

fn scale(declared: &Value) -> Option<Scale> {
    let path = |key: &str| JsonPath::parse(declared[key].as_str()?).ok();
    let tokens = |key: &str| -> Option<Vec<String>> {
        let path = declared[key].as_str()?.trim_start_matches('.');
        Some(path.split('.').map(ToOwned::to_owned).collect())
    };
    Some(Scale {
        spec_replicas: tokens("specReplicasPath")?,
        status_replicas: path("statusReplicasPath")?,
        selector: path("labelSelectorPath"),
    })
}

impl Scale {
    /// Validates the numbers of replicas.
    pub(crate) fn check(&self, object: &Value) -> Vec<Violation> {
        let path = format!(".{}", self.spec_replicas.join("."));
        let mut at = object;
        for field in &self.spec_replicas {
            if at.is_null() {
                return Vec::new();
            }
            if !at.is_object() {
                let (shown, kind) = match at {
                    Value::String(text) => (text.clone(), "string"),
                    Value::Array(_) => (at.to_string(), "[]interface {}"),
                    other => (other.to_string(), "int64"),
                };
                let why = format!(
                    "{path} accessor error: {shown} is of the type {kind}, expected map[string]interface{{}}"
                );
                return vec![Violation::invalid(path, 0, why)];
            }
            at = &at[field.as_str()];
        }
        match at.as_i64() {
            Some(found) if found < 0 => {
                vec![Violation::invalid(
                    path,
                    found,
                    "should be a non-negative integer",
                )]
            }
            Some(found) if i32::try_from(found).is_err() => {
                let why = format!("should be less than or equal to {}", i32::MAX);
                vec![Violation::invalid(path, found, why)]
            }
            _ => Vec::new(),
        }
    }
}

/// Order of versions: stable before beta before alpha, high before low, others last by name.
fn priority(version: &str) -> (u8, Reverse<u32>, Reverse<u32>, String) {
    let unknown = (3, Reverse(0), Reverse(0), version.to_owned());
    let Some(rest) = version.strip_prefix('v') else {
        return unknown;
    };
    let split = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (major, tail) = rest.split_at(split);
    let Ok(major) = major.parse() else {
        return unknown;
    };
    let (class, minor) = if tail.is_empty() {
        (0, "0")
    } else if let Some(minor) = tail.strip_prefix("beta") {
        (1, minor)
    } else if let Some(minor) = tail.strip_prefix("alpha") {
        (2, minor)
    } else {
        return unknown;
    };
    match minor.parse() {
        Ok(minor) => (class, Reverse(major), Reverse(minor), String::new()),
        Err(_) => unknown,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    list(value).iter().map(text).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_before_beta_and_alpha() {
        let mut versions = ["v1alpha3", "v1beta1", "v2", "foo", "v1", "v1beta2", "v10"];
        versions.sort_by_key(|version| priority(version));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha3", "foo"]
        );
    }
}
