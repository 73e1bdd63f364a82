//! Rules of roles: which requests they allow, and whether one set of rules covers another.
//!
//! Invariant: pure; a user's rules are resolved elsewhere. A missing field allows nothing.

pub mod table;

use serde_json::{Map, Value};

use crate::violation::quoted;

const ALL: &str = "*";

/// One rule of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub verbs: Vec<String>,
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub non_resource_urls: Vec<String>,
}

/// The request to be authorized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    Resource {
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        name: &'a str,
    },
    /// A path that names no resource.
    Path { verb: &'a str, path: &'a str },
}

impl Rule {
    /// Parses one rule; a malformed list reads as an empty one.
    pub fn of(rule: &Value) -> Self {
        let list = |field: &str| -> Vec<String> {
            let items = rule[field].as_array().into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            api_groups: list("apiGroups"),
            resources: list("resources"),
            resource_names: list("resourceNames"),
            non_resource_urls: list("nonResourceURLs"),
        }
    }

    /// The rules of a role.
    pub fn all_of(role: &Value) -> Vec<Self> {
        let rules = role["rules"].as_array().into_iter().flatten();
        rules.map(Self::of).collect()
    }

    /// The rule as it appears in a role object.
    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        out.insert("verbs".to_owned(), self.verbs.clone().into());
        for (field, list) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !list.is_empty() {
                out.insert(field.to_owned(), list.clone().into());
            }
        }
        Value::Object(out)
    }

    pub fn allows(&self, action: &Action<'_>) -> bool {
        match *action {
            Action::Resource {
                verb,
                group,
                resource,
                subresource,
                name,
            } => {
                has(&self.verbs, verb)
                    && has(&self.api_groups, group)
                    && self.has_resource(resource, subresource)
                    && (self.resource_names.is_empty() || holds(&self.resource_names, name))
            }
            Action::Path { verb, path } => {
                has(&self.verbs, verb)
                    && self
                        .non_resource_urls
                        .iter()
                        .any(|own| url_covers(own, path))
            }
        }
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|own| {
            if own == ALL {
                return true;
            }
            if subresource.is_empty() {
                return own == resource;
            }
            own.split_once('/')
                .is_some_and(|(of, sub)| (of == ALL || of == resource) && sub == subresource)
        })
    }

    /// Whether this rule allows everything that a rule with one of each allows.
    fn covers(&self, one: &Self) -> bool {
        let all = |own: &[String], wanted: &[String]| {
            holds(own, ALL) || wanted.iter().all(|item| holds(own, item))
        };
        all(&self.verbs, &one.verbs)
            && all(&self.api_groups, &one.api_groups)
            && one.resources.iter().all(|wanted| {
                let (resource, sub) = wanted.split_once('/').unwrap_or((wanted, ""));
                holds(&self.resources, wanted) || self.has_resource(resource, sub)
            })
            && one.non_resource_urls.iter().all(|wanted| {
                self.non_resource_urls
                    .iter()
                    .any(|own| url_covers(own, wanted))
            })
            && (self.resource_names.is_empty()
                || (!one.resource_names.is_empty()
                    && one
                        .resource_names
                        .iter()
                        .all(|name| holds(&self.resource_names, name))))
    }

    /// The rule split into rules with one verb, group and resource each.
    fn parts(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut out = Vec::new();
        for verb in &self.verbs {
            for group in &self.api_groups {
                for resource in &self.resources {
                    let part = Self {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        out.push(part);
                        continue;
                    }
                    out.extend(self.resource_names.iter().map(|name| Self {
                        resource_names: one(name),
                        ..part.clone()
                    }));
                }
            }
            out.extend(self.non_resource_urls.iter().map(|url| Self {
                verbs: one(verb),
                non_resource_urls: one(url),
                ..Self::default()
            }));
        }
        out
    }

    /// `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
    pub fn describe(&self) -> String {
        let parts: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| format!("{name}:{}", quoted_list(list)))
        .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// `["a" "b"]`: a list in messages.
pub fn quoted_list(list: &[String]) -> String {
    let texts: Vec<String> = list.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(" "))
}

/// The rules that `wanted` allows and `owned` does not, as few rules, each for one resource, in the
/// order of error messages.
pub fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let mut left: Vec<Rule> = Vec::new();
    let parts = wanted.iter().flat_map(Rule::parts);
    for part in parts.filter(|part| !owned.iter().any(|own| own.covers(part))) {
        let same = left.iter_mut().find(|rule| {
            !rule.resources.is_empty()
                && rule.api_groups == part.api_groups
                && rule.resources == part.resources
                && rule.resource_names == part.resource_names
        });
        match same {
            Some(rule) => {
                for verb in part.verbs {
                    if !holds(&rule.verbs, &verb) {
                        rule.verbs.push(verb);
                    }
                }
            }
            None => left.push(part),
        }
    }
    let mut out: Vec<String> = left.iter().map(Rule::describe).collect();
    out.sort();
    out.dedup();
    out
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == ALL || item == wanted)
}

fn holds(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == wanted)
}

fn url_covers(own: &str, wanted: &str) -> bool {
    own == ALL
        || own == wanted
        || own
            .strip_suffix('*')
            .is_some_and(|prefix| wanted.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn action<'a>(
        verb: &'a str,
        resource: &'a str,
        subresource: &'a str,
        name: &'a str,
    ) -> Action<'a> {
        Action::Resource {
            verb,
            group: "g",
            resource,
            subresource,
            name,
        }
    }

    #[test]
    fn rules_allow_named_requests() {
        let rule = |resources: Value, names: Value| {
            Rule::of(
                &json!({"verbs": ["get"], "apiGroups": ["g"], "resources": resources,
                             "resourceNames": names}),
            )
        };
        let cases = [
            (
                rule(json!(["a"]), json!([])),
                action("get", "a", "", "x"),
                true,
            ),
            (
                rule(json!(["a"]), json!([])),
                action("put", "a", "", "x"),
                false,
            ),
            (
                rule(json!(["a"]), json!([])),
                action("get", "a", "s", "x"),
                false,
            ),
            (
                rule(json!(["a/s"]), json!([])),
                action("get", "a", "s", "x"),
                true,
            ),
            (
                rule(json!(["*/s"]), json!([])),
                action("get", "a", "s", "x"),
                true,
            ),
            (
                rule(json!(["*/s"]), json!([])),
                action("get", "a", "t", "x"),
                false,
            ),
            (
                rule(json!(["*"]), json!([])),
                action("get", "a", "t", "x"),
                true,
            ),
            (
                rule(json!(["a"]), json!(["x"])),
                action("get", "a", "", "x"),
                true,
            ),
            (
                rule(json!(["a"]), json!(["x"])),
                action("get", "a", "", ""),
                false,
            ),
            (
                Rule::of(&json!({"verbs": "get"})),
                action("get", "a", "", ""),
                false,
            ),
        ];
        for (rule, action, expected) in cases {
            assert_eq!(rule.allows(&action), expected, "{rule:?} {action:?}");
        }
    }

    #[test]
    fn paths_match_exactly_or_by_prefix() {
        let rule = Rule::of(&json!({"verbs": ["get"], "nonResourceURLs": ["/a", "/b/*"]}));
        for (path, expected) in [("/a", true), ("/a/b", false), ("/b/c", true), ("/b", false)] {
            assert_eq!(
                rule.allows(&Action::Path { verb: "get", path }),
                expected,
                "{path}"
            );
        }
    }

    #[test]
    fn missing_rules_are_grouped_by_resource() {
        let rules = |list: Value| Rule::all_of(&json!({"rules": list}));
        let wanted = rules(json!([
            {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "secrets"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"]},
            {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
        ]));
        let cases = [
            (
                json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                       {"verbs": ["*"], "nonResourceURLs": ["*"]}]),
                vec![],
            ),
            (
                json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "secrets"]},
                       {"verbs": ["get"], "nonResourceURLs": ["/m*"]}]),
                vec![
                    r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}"#,
                    r#"{APIGroups:[""], Resources:["secrets"], Verbs:["list"]}"#,
                ],
            ),
            (
                json!([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["secrets"]},
                       {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"],
                        "resourceNames": ["x"]}]),
                vec![
                    r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#,
                    r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
                ],
            ),
        ];
        for (owned, expected) in cases {
            assert_eq!(missing(&rules(owned), &wanted), expected);
        }
    }
}
