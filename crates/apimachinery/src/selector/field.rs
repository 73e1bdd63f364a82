//! Field selectors: `metadata.name=a,status.phase!=Running`.

use serde_json::Value;

use super::SelectorError;

/// All terms must hold. The default selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    path: String,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Parses the `fieldSelector` of a query.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let mut terms = Vec::new();
        for part in split(text).into_iter().filter(|part| !part.is_empty()) {
            let Some((path, equal, value)) = operator(&part) else {
                let why = format!("invalid selector: '{text}'; can't understand '{part}'");
                return Err(SelectorError(why));
            };
            terms.push(Term {
                path: path.to_owned(),
                equal,
                value: unescape(value)?,
            });
        }
        Ok(Self { terms })
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    /// Rejects paths the kind does not offer. `metadata.name` and `metadata.namespace` are always
    /// offered.
    pub fn check(&self, offered: &[&str]) -> Result<(), SelectorError> {
        let known = |path: &str| {
            matches!(path, "metadata.name" | "metadata.namespace") || offered.contains(&path)
        };
        match self.terms.iter().find(|term| !known(&term.path)) {
            Some(term) => Err(SelectorError(unknown(&term.path, offered))),
            None => Ok(()),
        }
    }

    /// Whether the object matches. A missing field reads as an empty string.
    pub fn matches(&self, object: &Value) -> bool {
        self.matches_with(|path| lookup(object, path))
    }

    /// Like `matches`, with a custom lookup of paths.
    pub fn matches_with(&self, resolve: impl Fn(&str) -> String) -> bool {
        self.terms
            .iter()
            .all(|term| (resolve(&term.path) == term.value) == term.equal)
    }

    /// The value that the selector requires at `path`, if any: lets a store use an index.
    pub fn required(&self, path: &str) -> Option<&str> {
        self.terms
            .iter()
            .find(|t| t.equal && t.path == path)
            .map(|t| t.value.as_str())
    }
}

/// kube-apiserver's message differs between kinds with and without additional fields.
fn unknown(path: &str, offered: &[&str]) -> String {
    if offered.is_empty() {
        let path = crate::violation::quoted(path);
        return format!(
            "{path} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        );
    }
    format!("field label not supported: {path}")
}

/// The paths beside name and namespace that the built-in kinds offer.
pub(super) fn offered(group: &str, plural: &str) -> &'static [&'static str] {
    match (group, plural) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("" | "events.k8s.io", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
        ],
        _ => &[],
    }
}

impl FieldSelector {
    /// The paths that [`Self::check`] should allow for a kind, besides a CRD's own.
    pub fn offered(group: &str, plural: &str) -> &'static [&'static str] {
        offered(group, plural)
    }
}

fn lookup(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |at, part| at.get(part));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        _ if matches!(path, "spec.hostNetwork" | "spec.unschedulable") => "false".to_owned(),
        _ if path == "source" => reporter(object).to_owned(),
        _ => String::new(),
    }
}

/// The component that reported an event, in either version of events.
fn reporter(event: &Value) -> &str {
    let places = [
        "/source/component",
        "/deprecatedSource/component",
        "/reportingComponent",
        "/reportingController",
    ];
    let found = places
        .iter()
        .filter_map(|place| event.pointer(place)?.as_str());
    found
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_default()
}

/// Splits at unescaped commas.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        match parts.last_mut() {
            Some(last) if escaped || c != ',' => last.push(c),
            _ => parts.push(String::new()),
        }
        escaped = !escaped && c == '\\';
    }
    parts
}

fn operator(part: &str) -> Option<(&str, bool, &str)> {
    let at = part.find(['=', '!'])?;
    let (path, rest) = part.split_at_checked(at)?;
    let (equal, value) = if let Some(value) = rest.strip_prefix("!=") {
        (false, value)
    } else {
        (
            true,
            rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?,
        )
    };
    Some((path, equal, value))
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => {
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: \\{c}"
                    )));
                }
                None => {
                    return Err(SelectorError(
                        "invalid field selector: invalid escape sequence: \\".to_owned(),
                    ));
                }
            },
            ',' | '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn terms_are_compared_with_fields() {
        let pod = json!({"metadata": {"name": "a", "namespace": "n"},
            "spec": {"nodeName": "one,two"}, "status": {"phase": "Running"}});
        let cases = [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==a,metadata.namespace=n", true),
            ("metadata.name!=a", false),
            ("status.phase!=Failed,status.phase!=Succeeded", true),
            (r"spec.nodeName=one\,two", true),
            ("spec.hostNetwork=false", true),
            ("spec.none=", true),
        ];
        for (text, expected) in cases {
            let selector = FieldSelector::parse(text).expect(text);
            assert_eq!(selector.matches(&pod), expected, "{text}");
        }
    }

    #[test]
    fn malformed_selectors_are_rejected() {
        let cases = [
            ("xyz", "invalid selector: 'xyz'; can't understand 'xyz'"),
            (
                r"a=\x",
                "invalid field selector: invalid escape sequence: \\x",
            ),
            (
                "a=b=c",
                "invalid field selector: unescaped character in value: =",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(
                FieldSelector::parse(text).expect_err(text).to_string(),
                expected
            );
        }
        let unknown = FieldSelector::parse("spec.foo=1").expect("parses");
        let refused = unknown.check(&["status.phase"]).expect_err("is unknown");
        assert_eq!(refused.to_string(), "field label not supported: spec.foo");
    }
}
