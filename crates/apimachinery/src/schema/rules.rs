//! Rules in CEL, `x-kubernetes-validations`: compiled when first needed, run on values that know
//! their schema.
//!
//! - [`Rule`] is one of them; its program is made once, by the first object that meets it;
//! - [`root`] walks an object and runs what it meets; rules about changes need the old value.
//!
//! Invariants: a rule never sees a field that its schema does not name; loops within loops run over
//! so many items at most that a rule takes [`MAX_STEPS`] steps; a rule that cannot be run refuses
//! the object, so that nothing passes unjudged.

use std::sync::{Arc, LazyLock, OnceLock};

use base64::Engine as _;
use kube_cel::{
    KubeCelExt as _,
    cel::{
        self, Context, IdedExpr, Program,
        common::ast::{EntryExpr, Expr, IdedEntryExpr},
        extractors::This,
        objects::{Key, OptionalValue},
    },
};
use serde_json::Value;

use super::{Kind, Marks, Schema, format, join};
use crate::{Fault, Violation};

/// Steps of the innermost loop of a rule.
const MAX_STEPS: usize = 1_000_000;

/// One of `x-kubernetes-validations`.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    expression: String,
    message: String,
    message_expression: String,
    reason: String,
    field_path: String,
    /// Asked when an object is made, too; the old value is then an empty optional.
    optional_old: bool,
    program: Lazy,
    message_program: Lazy,
}

/// A program that is made when it is first used.
#[derive(Debug, Default)]
struct Lazy(OnceLock<Result<Box<Compiled>, String>>);

#[derive(Debug)]
struct Compiled {
    program: Program,
    /// Loops within loops.
    depth: u32,
    uses_old: bool,
}

/// What is the same for all rules: the functions and the names of types.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    for name in [
        "bool",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "list",
        "map",
        "null_type",
    ] {
        context.add_variable_from_value(name, type_name(name));
    }
    context.add_function(
        "type",
        |This(value): This<cel::Value>| -> cel::objects::ResolveResult {
            Ok(type_name(match value {
                cel::Value::Bool(_) => "bool",
                cel::Value::Int(_) => "int",
                cel::Value::UInt(_) => "uint",
                cel::Value::Float(_) => "double",
                cel::Value::String(_) => "string",
                cel::Value::Bytes(_) => "bytes",
                cel::Value::List(_) => "list",
                cel::Value::Map(_) => "map",
                cel::Value::Null => "null_type",
                _ => "other",
            }))
        },
    );
    context
});

/// No text that a rule is likely to write is a type by chance.
fn type_name(name: &str) -> cel::Value {
    cel::Value::String(Arc::new(format!("type {name}")))
}

impl Rule {
    /// All that makes the rule.
    pub(super) fn texts(&self) -> ([&str; 5], bool) {
        let texts = [
            self.expression.as_str(),
            &self.message,
            &self.message_expression,
            &self.reason,
            &self.field_path,
        ];
        (texts, self.optional_old)
    }
}

impl Clone for Lazy {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Lazy {
    fn compiled(&self, source: &str) -> Result<&Compiled, &str> {
        let made = self.0.get_or_init(|| compile(source).map(Box::new));
        made.as_deref().map_err(String::as_str)
    }
}

fn compile(source: &str) -> Result<Compiled, String> {
    let program = crate::cel::parse(source)?;
    let depth = depth(&program.expression().expr)?;
    let uses_old = program.references().has_variable("oldSelf");
    Ok(Compiled {
        program,
        depth,
        uses_old,
    })
}

/// How deep loops are in each other; or what the evaluator does not do.
fn depth(expr: &Expr) -> Result<u32, String> {
    fn deepest<'a>(mut parts: impl Iterator<Item = &'a IdedExpr>) -> Result<u32, String> {
        parts.try_fold(0, |deepest, part| Ok(deepest.max(depth(&part.expr)?)))
    }
    match expr {
        Expr::Unspecified | Expr::Struct(_) => Err("this kind of expression".to_owned()),
        Expr::Ident(_) | Expr::Literal(_) => Ok(0),
        Expr::Select(select) => depth(&select.operand.expr),
        Expr::List(list) => deepest(list.elements.iter()),
        Expr::Call(call) => deepest(call.args.iter().chain(call.target.as_deref())),
        Expr::Map(map) => map.entries.iter().try_fold(0, |deepest, entry| {
            let IdedEntryExpr { expr, .. } = entry;
            match expr {
                EntryExpr::MapEntry(entry) => Ok(deepest
                    .max(depth(&entry.key.expr)?)
                    .max(depth(&entry.value.expr)?)),
                EntryExpr::StructField(_) => Err("this kind of expression".to_owned()),
            }
        }),
        Expr::Comprehension(one) => {
            let outside = depth(&one.iter_range.expr)?.max(depth(&one.accu_init.expr)?);
            let inside = depth(&one.loop_step.expr)?
                .max(depth(&one.loop_cond.expr)?)
                .max(depth(&one.result.expr)?);
            Ok(outside.max(inside + 1))
        }
    }
}

impl Rule {
    pub(super) fn read(raw: &Value) -> Self {
        let text = |key: &str| raw[key].as_str().unwrap_or_default().to_owned();
        Self {
            expression: text("rule"),
            message: text("message"),
            message_expression: text("messageExpression"),
            reason: text("reason"),
            field_path: text("fieldPath"),
            optional_old: raw["optionalOldSelf"] == true,
            program: Lazy::default(),
            message_program: Lazy::default(),
        }
    }

    /// What the evaluator cannot read: which field, what is in it, and why.
    fn fault(&self) -> Option<(&'static str, &str, String)> {
        // Not kept: most rules of a definition are never met.
        if let Err(why) = compile(&self.expression) {
            return Some(("rule", &self.expression, why));
        }
        if self.message_expression.is_empty() {
            return None;
        }
        let why = compile(&self.message_expression).err()?;
        Some(("messageExpression", &self.message_expression, why))
    }

    fn broken(&self, at: &Node<'_>) -> Option<Violation> {
        match self.holds(at) {
            Ok(true) => None,
            Ok(false) => Some(self.violation(at, &self.message(at))),
            Err(why) => Some(self.violation(at, &format!("rule evaluation error: {why}"))),
        }
    }

    fn holds(&self, at: &Node<'_>) -> Result<bool, String> {
        let compiled = self.program.compiled(&self.expression)?;
        let Some(context) = self.context(compiled, at)? else {
            return Ok(true);
        };
        match compiled.program.execute(&context) {
            Ok(cel::Value::Bool(holds)) => Ok(holds),
            Ok(_) => Err("the rule is neither true nor false".to_owned()),
            Err(why) => Err(why.to_string()),
        }
    }

    /// The variables of a rule; none when the rule has nothing to say.
    fn context(
        &self,
        compiled: &Compiled,
        at: &Node<'_>,
    ) -> Result<Option<Context<'static>>, String> {
        let mut context = FUNCTIONS.new_inner_scope();
        let items = at.largest.max(1);
        if items.saturating_pow(compiled.depth) > MAX_STEPS {
            return Err("call cost exceeds limit for rule".to_owned());
        }
        if compiled.uses_old {
            let old = at.old.map(|old| value(at.schema, old, at.whole));
            let old = match (old, self.optional_old) {
                (None, false) => return Ok(None),
                (None, true) => cel::Value::Opaque(Arc::new(OptionalValue::none())),
                (Some(old), true) => cel::Value::Opaque(Arc::new(OptionalValue::of(old))),
                (Some(old), false) => old,
            };
            context.add_variable_from_value("oldSelf", old);
        }
        context.add_variable_from_value("self", value(at.schema, at.value, at.whole));
        Ok(Some(context))
    }

    fn message(&self, at: &Node<'_>) -> String {
        if let Some(text) = self.expressed(at) {
            return text;
        }
        if self.message.is_empty() {
            return format!("failed rule: {}", self.expression.trim());
        }
        self.message.trim().to_owned()
    }

    /// The text that the message expression makes, if it makes one worth showing.
    fn expressed(&self, at: &Node<'_>) -> Option<String> {
        if self.message_expression.is_empty() {
            return None;
        }
        let compiled = self
            .message_program
            .compiled(&self.message_expression)
            .ok()?;
        let context = self.context(compiled, at).ok()??;
        match compiled.program.execute(&context) {
            Ok(cel::Value::String(text)) => {
                let text = text.trim();
                (!text.is_empty() && !text.contains('\n')).then(|| text.to_owned())
            }
            _ => None,
        }
    }

    fn violation(&self, at: &Node<'_>, message: &str) -> Violation {
        let field = format!("{}{}", at.path, self.field_path);
        let field = field.trim_start_matches('.');
        let field = if field.is_empty() { "<nil>" } else { field };
        let is_whole = at.value.is_object() || at.value.is_array();
        let fault = match self.reason.as_str() {
            "FieldValueRequired" => Fault::Required,
            "FieldValueForbidden" => Fault::Forbidden,
            "FieldValueDuplicate" => Fault::Duplicate,
            _ if is_whole || !self.field_path.is_empty() => Fault::InvalidWhole,
            _ => Fault::Invalid,
        };
        Violation::new(fault, field, at.value.clone(), message)
    }
}

/// A value, where it stands, and what it was.
struct Node<'a> {
    schema: &'a Schema,
    value: &'a Value,
    old: Option<&'a Value>,
    path: &'a str,
    /// The size of the largest list or map of the object: what loops may run over.
    largest: usize,
    whole: Whole,
}

/// Of whole objects, rules see the type and the name, whatever the schema says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    Object,
    Part,
}

pub(super) fn root(
    schema: &Schema,
    object: &Value,
    old: Option<&Value>,
    found: &[Violation],
) -> Vec<Violation> {
    if !schema.marks.has(Marks::RULES) {
        return Vec::new();
    }
    if found.iter().any(blocks) {
        let why = "some validation rules were not checked because the object was invalid; \
                   correct the existing errors to complete validation";
        return vec![Violation::invalid("<nil>", Value::Null, why)];
    }
    let mut out = Vec::new();
    let node = Node {
        schema,
        value: object,
        old,
        path: "",
        largest: largest(object).max(old.map_or(0, largest)),
        whole: Whole::Object,
    };
    walk(&node, &mut out);
    out
}

/// Rules count on types, sizes and words being right.
fn blocks(violation: &Violation) -> bool {
    matches!(
        violation.fault,
        Fault::NotSupported
            | Fault::Required
            | Fault::TooLong
            | Fault::TooMany
            | Fault::TypeInvalid
    )
}

/// Rules that the evaluator cannot read.
pub(super) fn check(schema: &Schema, at: &str) -> Vec<Violation> {
    let mut out = Vec::new();
    if !schema.marks.has(Marks::RULES) {
        return out;
    }
    for (index, rule) in schema.rules.iter().enumerate() {
        if let Some((field, source, why)) = rule.fault() {
            let field = format!("{at}.x-kubernetes-validations[{index}].{field}");
            let why = format!("compilation failed: {why}");
            out.push(Violation::invalid(field, source, why));
        }
    }
    for (name, child) in &schema.properties {
        out.extend(check(child, &format!("{at}.properties[{name}]")));
    }
    if let Some(child) = schema.additional.as_deref() {
        out.extend(check(child, &format!("{at}.additionalProperties")));
    }
    if let Some(child) = schema.items() {
        out.extend(check(child, &format!("{at}.items")));
    }
    out
}

fn largest(value: &Value) -> usize {
    match value {
        Value::Array(items) => items
            .iter()
            .map(largest)
            .max()
            .unwrap_or(0)
            .max(items.len()),
        Value::Object(fields) => {
            let inner = fields.values().map(largest).max();
            inner.unwrap_or(0).max(fields.len())
        }
        // Some functions make a list of what is in a text.
        Value::String(text) => text.len(),
        _ => 0,
    }
}

fn walk(at: &Node<'_>, out: &mut Vec<Violation>) {
    // What is as it was is not judged again.
    if at.old == Some(at.value) || at.value.is_null() || !at.schema.marks.has(Marks::RULES) {
        return;
    }
    out.extend(at.schema.rules.iter().filter_map(|rule| rule.broken(at)));
    let below = |schema, value, old, path: &str, out: &mut Vec<Violation>| {
        let node = Node {
            schema,
            value,
            old,
            path,
            whole: Whole::Part,
            ..*at
        };
        walk(&node, out);
    };
    match at.value {
        Value::Object(fields) => {
            for (name, member) in fields {
                if let Some(child) = at.schema.child(name) {
                    let old = at.old.and_then(|old| old.get(name));
                    below(child, member, old, &join(at.path, name), out);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = at.schema.items() else {
                return;
            };
            for (index, item) in items.iter().enumerate() {
                let old = at.schema.counterpart(item, at.old);
                below(schema, item, old, &format!("{}[{index}]", at.path), out);
            }
        }
        _ => {}
    }
}

/// A value as rules see it.
fn value(schema: &Schema, raw: &Value, whole: Whole) -> cel::Value {
    match raw {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) if schema.kind == Some(Kind::Number) => {
            cel::Value::Float(number.as_f64().unwrap_or(f64::NAN))
        }
        Value::Number(number) => number.as_i64().map_or_else(
            || cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            cel::Value::Int,
        ),
        Value::String(text) => text_value(schema, text),
        Value::Array(items) => {
            let any = Schema::default();
            let schema = schema.items().unwrap_or(&any);
            let items = items.iter().map(|item| value(schema, item, Whole::Part));
            cel::Value::List(Arc::new(items.collect()))
        }
        Value::Object(fields) => {
            let is_whole = whole == Whole::Object || schema.marks.has(Marks::EMBEDDED);
            let members = fields.iter().filter_map(|(name, member)| {
                let child = match name.as_str() {
                    "apiVersion" | "kind" if is_whole => text(member)?,
                    "metadata" if is_whole => metadata(member),
                    _ => match schema.property(name) {
                        Some(child) => value(child, member, Whole::Part),
                        None => value(schema.additional.as_deref()?, member, Whole::Part),
                    },
                };
                let key = if schema.additional.is_some() {
                    name.clone()
                } else {
                    escaped(name)
                };
                Some((Key::String(Arc::new(key)), child))
            });
            let map: std::collections::HashMap<Key, cel::Value> = members.collect();
            cel::Value::Map(map.into())
        }
    }
}

fn text(value: &Value) -> Option<cel::Value> {
    let text = value.as_str()?;
    Some(cel::Value::String(Arc::new(text.to_owned())))
}

/// Rules may know how an object is called and nothing else that is not its own.
fn metadata(raw: &Value) -> cel::Value {
    let members = ["name", "generateName"].into_iter().filter_map(|field| {
        let key = Key::String(Arc::new(field.to_owned()));
        Some((key, text(raw.get(field)?)?))
    });
    let map: std::collections::HashMap<Key, cel::Value> = members.collect();
    cel::Value::Map(map.into())
}

fn text_value(schema: &Schema, text: &str) -> cel::Value {
    let plain = || cel::Value::String(Arc::new(text.to_owned()));
    if schema.marks.has(Marks::INT_OR_STRING) {
        return plain();
    }
    let format = schema
        .checks
        .as_ref()
        .and_then(|checks| checks.format.as_deref());
    // Formats were checked before; what does not parse is left to them.
    match format {
        Some("date-time" | "datetime") => chrono::DateTime::parse_from_rfc3339(text)
            .map_or_else(|_| plain(), cel::Value::Timestamp),
        Some("date") => chrono::DateTime::parse_from_rfc3339(&format!("{text}T00:00:00Z"))
            .map_or_else(|_| plain(), cel::Value::Timestamp),
        Some("duration") => format::nanoseconds(text).map_or_else(plain, |nanoseconds| {
            cel::Value::Duration(chrono::Duration::nanoseconds(nanoseconds))
        }),
        Some("byte") => base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_or_else(|_| plain(), |bytes| cel::Value::Bytes(Arc::new(bytes))),
        _ => plain(),
    }
}

/// How rules write the name of a field that the language could not read.
fn escaped(name: &str) -> String {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(raw: &Value) -> Arc<Schema> {
        Schema::parse(raw, "").unwrap_or_else(|wrong| panic!("{wrong:?}"))
    }

    fn broken(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<String> {
        schema
            .validate_rules(object, old, &[])
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn with_rule(spec: &Value, rule: &Value) -> Arc<Schema> {
        let mut spec = spec.clone();
        spec["x-kubernetes-validations"] = json!([rule]);
        schema(&json!({"type": "object", "properties": {"x": spec}}))
    }

    #[test]
    fn rules_see_values_as_their_schema_says() {
        let check = |spec: Value, rule: &str, good: Value, bad: Value| {
            let schema = with_rule(&spec, &json!({"rule": rule, "message": "no"}));
            assert!(
                broken(&schema, &json!({"x": good}), None).is_empty(),
                "{rule}: {:?}",
                broken(&schema, &json!({"x": good}), None)
            );
            let found = broken(&schema, &json!({"x": bad}), None);
            assert_eq!(found.len(), 1, "{rule}: {bad}: {found:?}");
            assert!(found[0].ends_with(": no"), "{rule}: {found:?}");
        };
        let text = || json!({"type": "string"});
        check(text(), "self.startsWith('/')", json!("/a"), json!("a"));
        check(text(), "self.matches('^[a-z]+$')", json!("a"), json!("A"));
        check(text(), "self.size() < 3", json!("ä"), json!("abc"));
        check(json!({"type": "number"}), "self < 1.5", json!(1), json!(2));
        check(
            json!({"type": "string", "format": "duration"}),
            "self <= duration('1h')",
            json!("60m"),
            json!("2h"),
        );
        check(
            json!({"type": "string", "format": "date-time"}),
            "self.getFullYear() == 2026",
            json!("2026-01-02T03:04:05Z"),
            json!("2025-01-02T03:04:05Z"),
        );
        check(
            json!({"x-kubernetes-int-or-string": true}),
            "type(self) == int ? self > 0 : self.endsWith('%')",
            json!("5%"),
            json!(0),
        );
        check(
            json!({"type": "array", "items": {"type": "string"}}),
            "self.all(a, self.exists_one(b, a == b))",
            json!(["a", "b"]),
            json!(["a", "a"]),
        );
        check(
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "self.all(key, key == 'a-b' && self[key] == 'c')",
            json!({"a-b": "c"}),
            json!({"a-b": "d"}),
        );
        check(
            json!({"type": "object", "properties": {"a-b": {"type": "string"},
                "namespace": {"type": "string"}, "c": {"type": "string"}}}),
            "has(self.a__dash__b) && has(self.__namespace__) && !has(self.c)",
            json!({"a-b": "", "namespace": ""}),
            json!({"a-b": "", "namespace": "", "c": ""}),
        );
        check(
            text(),
            "quantity(self).isGreaterThan(quantity('1Gi'))",
            json!("2Gi"),
            json!("1Mi"),
        );
    }

    #[test]
    fn rules_about_changes_are_asked_when_there_was_something() {
        let spec = json!({"type": "string"});
        let schema = with_rule(&spec, &json!({"rule": "self == oldSelf"}));
        let (new, old) = (json!({"x": "b"}), json!({"x": "a"}));
        assert!(broken(&schema, &new, None).is_empty());
        assert!(broken(&schema, &new, Some(&json!({}))).is_empty());
        assert_eq!(
            broken(&schema, &new, Some(&old)),
            ["x: Invalid value: \"b\": failed rule: self == oldSelf"]
        );
        let schema = with_rule(
            &spec,
            &json!({"rule": "oldSelf.hasValue() && oldSelf.value() == 'a'",
                    "optionalOldSelf": true}),
        );
        assert_eq!(broken(&schema, &new, None).len(), 1);
        assert!(broken(&schema, &new, Some(&old)).is_empty());
    }

    #[test]
    fn broken_rules_name_reason_and_place() {
        let schema = schema(
            &json!({"type": "object", "properties": {"a": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.a > 1", "fieldPath": ".a",
                "reason": "FieldValueForbidden",
                "messageExpression": "'not ' + string(self.a)"}]}),
        );
        assert_eq!(
            broken(&schema, &json!({"a": 1}), None),
            ["a: Forbidden: not 1"]
        );
    }

    #[test]
    fn faults_of_other_kinds_hide_rules() {
        let schema = with_rule(&json!({"type": "string"}), &json!({"rule": "false"}));
        let object = json!({"x": "a"});
        let hidden =
            |found: Violation| schema.validate_rules(&object, None, &[found])[0].to_string();
        let text = "<nil>: Invalid value: null: some validation rules were not checked";
        assert!(hidden(Violation::required("y", "")).starts_with(text));
        assert!(!hidden(Violation::invalid("y", 1, "")).starts_with(text));
    }

    #[test]
    fn loops_in_loops_over_large_lists_are_refused_not_run() {
        let spec = json!({"type": "array", "items": {"type": "integer"}});
        let schema = with_rule(
            &spec,
            &json!({"rule": "self.all(a, self.all(b, self.all(c, a + b + c > 0)))"}),
        );
        let items: Vec<u32> = (1..2_000).collect();
        let found = broken(&schema, &json!({"x": items}), None);
        assert_eq!(
            found,
            ["x: Invalid value: rule evaluation error: call cost exceeds limit for rule"]
        );
    }

    #[test]
    fn rules_that_cannot_be_read_are_told() {
        for bad in ["1 +", "Thing{a: 1}"] {
            assert!(Rule::read(&json!({"rule": bad})).fault().is_some(), "{bad}");
        }
        assert!(Rule::read(&json!({"rule": "self == 1"})).fault().is_none());
    }
}
