//! Parses a schema into the tree and rejects what a CRD may not contain.

use std::sync::Arc;

use serde_json::{Map, Number, Value};

use super::{Bound, Checks, Interner, Kind, ListType, Marks, Pattern, Range, Rule, Schema};
use crate::{Fault, Violation};

pub(super) fn structural(
    raw: &Value,
    at: &str,
    shared: &mut Interner,
) -> Result<Arc<Schema>, Vec<Violation>> {
    let mut reader = Reader {
        strict: true,
        wrong: Vec::new(),
        shared,
    };
    let schema = reader.read(raw, at);
    if schema.kind != Some(Kind::Object) {
        let found = raw["type"].as_str().unwrap_or_default();
        let at = format!("{at}.type");
        reader.wrong.push(match found {
            "" => Violation::required(at, "must not be empty at the root"),
            _ => Violation::invalid(at, found, "must be object at the root"),
        });
    }
    if reader.wrong.is_empty() {
        Ok(schema)
    } else {
        Err(reader.wrong)
    }
}

pub(super) fn lenient(raw: &Value, shared: &mut Interner) -> Arc<Schema> {
    Reader {
        strict: false,
        wrong: Vec::new(),
        shared,
    }
    .read(raw, "")
}

struct Reader<'a> {
    strict: bool,
    wrong: Vec<Violation>,
    shared: &'a mut Interner,
}

impl Reader<'_> {
    fn read(&mut self, raw: &Value, at: &str) -> Arc<Schema> {
        let schema = self.read_node(raw, at);
        self.shared.node(schema)
    }

    fn read_node(&mut self, raw: &Value, at: &str) -> Schema {
        let mut out = self.read_value_checks(raw, at);
        let Value::Object(fields) = raw else {
            return out;
        };
        let mut properties = Vec::new();
        for (name, child) in object(fields, "properties") {
            let at = format!("{at}.properties[{name}]");
            let child_schema = self.read(child, &at);
            self.require_type(
                &child_schema,
                &at,
                "must not be empty for specified object fields",
            );
            properties.push((name.as_str().into(), child_schema));
        }
        out.properties = by_name(properties);
        match fields.get("additionalProperties") {
            Some(Value::Bool(true)) => {
                let mut any = Schema::default();
                any.marks.0 |= Marks::PRESERVE_UNKNOWN | Marks::NULLABLE;
                out.additional = Some(self.shared.node(any));
            }
            Some(child @ Value::Object(_)) => {
                let at = format!("{at}.additionalProperties");
                let values = self.read(child, &at);
                self.require_type(
                    &values,
                    &at,
                    "must not be empty for specified object fields",
                );
                out.additional = Some(values);
            }
            _ => {}
        }
        if let Some(items @ Value::Object(_)) = fields.get("items") {
            let at = format!("{at}.items");
            let item = self.read(items, &at);
            self.require_type(&item, &at, "must not be empty for specified array items");
            out.items = Some(item);
        } else if out.kind == Some(Kind::Array) && self.strict {
            self.wrong.push(Violation::required(
                format!("{at}.items"),
                "must be specified",
            ));
        }
        self.read_list_type(&mut out, fields, at);
        let names_nothing = out.properties.is_empty() && out.additional.is_none();
        if !self.strict && names_nothing && !matches!(out.kind, Some(Kind::Array)) {
            // The spelling of "anything" in built-in kinds.
            out.marks.0 |= Marks::PRESERVE_UNKNOWN;
        }
        out.default = fields.get("default").cloned().map(Box::new);
        out.rules = fields
            .get("x-kubernetes-validations")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(Rule::read)
            .collect();
        let below = |schema: &Schema| schema.marks.has(Marks::RULES);
        if !out.rules.is_empty()
            || out.properties.iter().any(|(_, child)| below(child))
            || out.additional.as_deref().is_some_and(below)
            || out.items.as_deref().is_some_and(below)
        {
            out.marks.0 |= Marks::RULES;
        }
        out
    }

    /// The keywords that may also occur below `allOf`, `anyOf`, `oneOf` and `not`.
    fn read_value_checks(&mut self, raw: &Value, at: &str) -> Schema {
        let Value::Object(fields) = raw else {
            if self.strict {
                self.wrong
                    .push(Violation::invalid(at, raw.clone(), "must be an object"));
            }
            return Schema::default();
        };
        let mut out = Schema {
            kind: self.read_kind(fields, at),
            marks: read_marks(fields),
            ..Schema::default()
        };
        if self.strict && fields.contains_key("$ref") {
            let at = format!("{at}.$ref");
            self.wrong
                .push(Violation::forbidden(at, "$ref is not supported"));
        }
        out.checks = self.read_checks(fields, at).map(Box::new);
        out
    }

    fn read_kind(&mut self, fields: &Map<String, Value>, at: &str) -> Option<Kind> {
        let name = match fields.get("type")? {
            Value::String(name) => name.as_str(),
            // `["string", "null"]`, as some generators emit it.
            Value::Array(names) => names
                .iter()
                .filter_map(Value::as_str)
                .find(|w| *w != "null")?,
            _ => "",
        };
        match name {
            "object" => Some(Kind::Object),
            "array" => Some(Kind::Array),
            "string" => Some(Kind::String),
            "integer" => Some(Kind::Integer),
            "number" => Some(Kind::Number),
            "boolean" => Some(Kind::Boolean),
            other => {
                let all = ["array", "boolean", "integer", "number", "object", "string"];
                self.wrong
                    .push(Violation::not_supported(format!("{at}.type"), other, all));
                None
            }
        }
    }

    fn require_type(&mut self, schema: &Schema, at: &str, why: &str) {
        let free = Marks::PRESERVE_UNKNOWN | Marks::INT_OR_STRING | Marks::EMBEDDED;
        if self.strict && schema.kind.is_none() && !schema.marks.has(free) {
            self.wrong
                .push(Violation::required(format!("{at}.type"), why));
        }
    }

    fn read_list_type(&mut self, out: &mut Schema, fields: &Map<String, Value>, at: &str) {
        let field = format!("{at}.x-kubernetes-list-type");
        out.list = match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
            None | Some("atomic") => ListType::Atomic,
            Some("set") => ListType::Set,
            Some("map") => ListType::Map(texts(fields, "x-kubernetes-list-map-keys")),
            Some(other) => {
                let all = ["atomic", "map", "set"];
                self.wrong.push(Violation::not_supported(field, other, all));
                return;
            }
        };
        if self.strict && out.list == ListType::Map(Vec::new()) {
            let at = format!("{at}.x-kubernetes-list-map-keys");
            let why = "must not be empty if x-kubernetes-list-type is map";
            self.wrong.push(Violation::required(at, why));
        }
    }

    fn read_checks(&mut self, fields: &Map<String, Value>, at: &str) -> Option<Checks> {
        const KEYWORDS: [&str; 19] = [
            "required",
            "enum",
            "pattern",
            "format",
            "minimum",
            "maximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "uniqueItems",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "const",
        ];
        if !KEYWORDS.iter().any(|keyword| fields.contains_key(*keyword)) {
            return None;
        }
        let mut list = |key: &str| -> Vec<Arc<Schema>> {
            let branches = fields
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            branches
                .enumerate()
                .map(|(i, branch)| self.read_branch(branch, &format!("{at}.{key}[{i}]")))
                .collect()
        };
        let (all_of, any_of, one_of) = (list("allOf"), list("anyOf"), list("oneOf"));
        let not = fields
            .get("not")
            .map(|branch| self.read_branch(branch, &format!("{at}.not")));
        Some(Checks {
            required: texts(fields, "required"),
            one_of_values: fields
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            pattern: self.read_pattern(fields, at),
            format: fields
                .get("format")
                .and_then(Value::as_str)
                .map(str::to_owned),
            minimum: bound(fields, "minimum", "exclusiveMinimum"),
            maximum: bound(fields, "maximum", "exclusiveMaximum"),
            multiple_of: number(fields, "multipleOf"),
            length: range(fields, "minLength", "maxLength"),
            items: range(fields, "minItems", "maxItems"),
            properties: range(fields, "minProperties", "maxProperties"),
            unique: flag(fields, "uniqueItems"),
            all_of,
            any_of,
            one_of,
            not,
        })
    }

    fn read_branch(&mut self, raw: &Value, at: &str) -> Arc<Schema> {
        let schema = self.read_branch_node(raw, at);
        self.shared.node(schema)
    }

    /// A branch of a junction may name properties and items to constrain their values.
    fn read_branch_node(&mut self, raw: &Value, at: &str) -> Schema {
        let mut out = self.read_value_checks(raw, at);
        let Value::Object(fields) = raw else {
            return out;
        };
        let mut properties = Vec::new();
        for (name, child) in object(fields, "properties") {
            let at = format!("{at}.properties[{name}]");
            properties.push((name.as_str().into(), self.read_branch(child, &at)));
        }
        out.properties = by_name(properties);
        if let Some(items @ Value::Object(_)) = fields.get("items") {
            out.items = Some(self.read_branch(items, &format!("{at}.items")));
        }
        if let Some(values @ Value::Object(_)) = fields.get("additionalProperties") {
            let at = format!("{at}.additionalProperties");
            out.additional = Some(self.read_branch(values, &at));
        }
        // A branch allows fields that it does not name.
        out.marks.0 |= Marks::PRESERVE_UNKNOWN;
        out
    }

    fn read_pattern(&mut self, fields: &Map<String, Value>, at: &str) -> Option<Arc<Pattern>> {
        let text = fields.get("pattern")?.as_str()?;
        match self.shared.pattern(text) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                let why = format!("must be a valid regular expression, but isn't: {error}");
                let at = format!("{at}.pattern");
                self.wrong
                    .push(Violation::new(Fault::Invalid, at, text, why));
                None
            }
        }
    }
}

fn by_name(mut properties: Vec<(Box<str>, Arc<Schema>)>) -> Box<[(Box<str>, Arc<Schema>)]> {
    properties.sort_by(|one, other| one.0.cmp(&other.0));
    properties.into_boxed_slice()
}

fn read_marks(fields: &Map<String, Value>) -> Marks {
    let mut bits = 0;
    let marks = [
        ("nullable", Marks::NULLABLE),
        (
            "x-kubernetes-preserve-unknown-fields",
            Marks::PRESERVE_UNKNOWN,
        ),
        ("x-kubernetes-embedded-resource", Marks::EMBEDDED),
        ("x-kubernetes-int-or-string", Marks::INT_OR_STRING),
    ];
    for (key, mark) in marks {
        if flag(fields, key) {
            bits |= mark;
        }
    }
    if fields
        .get("x-kubernetes-map-type")
        .is_some_and(|name| name == "atomic")
    {
        bits |= Marks::ATOMIC_MAP;
    }
    if let Some(Value::Array(names)) = fields.get("type")
        && names.iter().any(|name| name == "null")
    {
        bits |= Marks::NULLABLE;
    }
    Marks(bits)
}

fn object<'a>(
    fields: &'a Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    fields
        .get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn texts(fields: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = fields
        .get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn flag(fields: &Map<String, Value>, key: &str) -> bool {
    fields.get(key).and_then(Value::as_bool).unwrap_or_default()
}

fn number(fields: &Map<String, Value>, key: &str) -> Option<Number> {
    fields.get(key)?.as_number().cloned()
}

fn bound(fields: &Map<String, Value>, key: &str, exclusive: &str) -> Option<Bound> {
    Some(Bound {
        value: number(fields, key)?,
        exclusive: flag(fields, exclusive),
    })
}

fn range(fields: &Map<String, Value>, min: &str, max: &str) -> Range {
    let read = |key: &str| fields.get(key).and_then(Value::as_u64);
    Range {
        min: read(min),
        max: read(max),
    }
}
