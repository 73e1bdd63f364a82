//! Parsing of CEL expressions; no other module calls the parser.
//!
//! Invariants: the parser recurses at every level and uses a hundred KiB of stack for each, so it
//! runs on a thread of its own with a stack for the largest accepted expression; expressions nested
//! or chained deeper are rejected before the parser runs.

use std::{collections::HashMap, sync::Arc, thread};

use kube_cel::{
    KubeCelExt as _,
    cel::{
        self, Context, Program,
        common::ast::{EntryExpr, Expr, LiteralValue},
        objects::Key,
    },
};
use serde_json::Value;

/// More than any sensible expression needs.
const MAX_LENGTH: usize = 64 << 10;
/// Nesting of brackets, conditionals and unary operators. A little below the parser's own limit,
/// which is not safe to reach.
const MAX_DEPTH: usize = 80;
/// Consecutive operators and member accesses: each makes the tree deeper by one, and every tree
/// walk recurses that deep.
const MAX_LINKS: usize = 400;
const STACK: usize = 64 << 20;

/// Parses an expression, or explains why it is invalid.
pub fn parse(source: &str) -> Result<Program, String> {
    if source.len() > MAX_LENGTH {
        return Err(format!("longer than {MAX_LENGTH} bytes"));
    }
    let size = Size::of(source);
    if size.depth > MAX_DEPTH {
        return Err(format!("nested deeper than {MAX_DEPTH} levels"));
    }
    if size.links > MAX_LINKS {
        return Err(format!("more than {MAX_LINKS} operators and members"));
    }
    let compile = || Program::compile(source).map_err(|errors| errors.to_string());
    let read = || {
        let compiled = panics::catch(compile);
        compiled.unwrap_or_else(|_| Err("the parser panicked".to_owned()))
    };
    thread::scope(|scope| {
        let parser = thread::Builder::new()
            .name("cel".to_owned())
            .stack_size(STACK);
        let running = parser
            .spawn_scoped(scope, read)
            .map_err(|error| format!("cannot start a thread to parse it: {error}"))?;
        let parsed = running.join();
        parsed.unwrap_or_else(|_| Err("the parser's thread ended early".to_owned()))
    })
}

/// Checks that a condition parses, uses these variables only and can be a boolean.
pub fn check(condition: &str, variables: &[&str]) -> Result<(), String> {
    let program = parse(condition)?;
    let mut scope: Vec<&str> = variables.iter().chain(TYPES).copied().collect();
    if let Some(unknown) = undeclared(&program.expression().expr, &mut scope) {
        return Err(format!("undeclared reference to '{unknown}'"));
    }
    match &program.expression().expr {
        Expr::Literal(literal) if !matches!(literal, LiteralValue::Boolean(_)) => {
            Err("must evaluate to bool".to_owned())
        }
        Expr::List(_) | Expr::Map(_) => Err("must evaluate to bool".to_owned()),
        _ => Ok(()),
    }
}

/// The names of types are values.
const TYPES: &[&str] = &[
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "list",
    "map",
    "null_type",
    "type",
];

/// The first name that is neither in scope nor declared by a loop around it.
fn undeclared<'a>(expr: &'a Expr, scope: &mut Vec<&'a str>) -> Option<&'a str> {
    match expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) => None,
        Expr::Ident(name) => (!scope.contains(&name.as_str())).then_some(name.as_str()),
        Expr::Select(select) => undeclared(&select.operand.expr, scope),
        Expr::List(list) => list
            .elements
            .iter()
            .find_map(|item| undeclared(&item.expr, scope)),
        Expr::Call(call) => {
            let mut parts = call.args.iter().chain(call.target.as_deref());
            parts.find_map(|part| undeclared(&part.expr, scope))
        }
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                undeclared(&entry.key.expr, scope).or_else(|| undeclared(&entry.value.expr, scope))
            }
            EntryExpr::StructField(_) => None,
        }),
        Expr::Comprehension(one) => {
            let outside = [&one.iter_range, &one.accu_init];
            if let Some(name) = outside
                .into_iter()
                .find_map(|part| undeclared(&part.expr, scope))
            {
                return Some(name);
            }
            let before = scope.len();
            scope.extend([one.iter_var.as_str(), one.accu_var.as_str()]);
            scope.extend(one.iter_var2.as_deref());
            let inside = [&one.loop_cond, &one.loop_step, &one.result];
            let found = inside
                .into_iter()
                .find_map(|part| undeclared(&part.expr, scope));
            scope.truncate(before);
            found
        }
    }
}

/// Evaluates a condition over these named objects, or explains why it cannot be evaluated.
pub fn holds(condition: &str, objects: &[(&str, &Value)]) -> Result<bool, String> {
    let program = parse(condition)?;
    let mut context = Context::default().with_all();
    for (name, object) in objects {
        context.add_variable_from_value(*name, value(object));
    }
    match program.execute(&context) {
        Ok(cel::Value::Bool(holds)) => Ok(holds),
        Ok(_) => Err("the result is not a boolean".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

/// Integers are signed, as in all values that an API server passes to expressions.
fn value(json: &Value) -> cel::Value {
    match json {
        Value::Null => cel::Value::Null,
        Value::Bool(yes) => cel::Value::Bool(*yes),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => cel::Value::Int(whole),
            None => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(value).collect())),
        Value::Object(fields) => {
            let fields = fields.iter();
            let all: HashMap<Key, cel::Value> = fields
                .map(|(name, one)| (Key::String(Arc::new(name.clone())), value(one)))
                .collect();
            cel::Value::Map(cel::objects::Map { map: Arc::new(all) })
        }
    }
}

/// Upper bounds of the parser's input; the contents of string literals count, too.
struct Size {
    depth: usize,
    links: usize,
}

impl Size {
    fn of(source: &str) -> Self {
        let (mut open, mut deepest, mut signs, mut choices, mut links) = (0_usize, 0, 0, 0, 0);
        for byte in source.bytes() {
            match byte {
                b'(' | b'[' | b'{' => {
                    open += 1;
                    links += 1;
                }
                b')' | b']' | b'}' => open = open.saturating_sub(1),
                b'?' => choices += 1,
                b'.' | b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'&' | b'|' => {
                    links += 1;
                }
                _ => {}
            }
            signs = match byte {
                b'!' | b'-' => signs + 1,
                byte if byte.is_ascii_whitespace() => signs,
                _ => 0,
            };
            deepest = deepest.max(open + signs);
        }
        links += source
            .split_ascii_whitespace()
            .filter(|operator| *operator == "in")
            .count();
        Self {
            depth: deepest + choices,
            links,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_distinguished_from_other_texts() {
        for valid in [
            "true",
            "vmi.spec.domain.cpu.cores > 1u",
            "has(a.b) ? [1] : []",
            "Domain{a: 1}",
            "a.all(x, x in b)",
        ] {
            assert!(parse(valid).is_ok(), "{valid}");
        }
        for invalid in ["", "a +", "if a then b", "\"open", "a ? b"] {
            assert!(parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn conditions_are_evaluated_or_fail_with_a_message() {
        let request = serde_json::json!({
            "name": "a", "operation": "DELETE", "dryRun": false, "nothing": null,
            "counts": [1, 2], "half": 0.5,
        });
        let evaluate = |condition: &str| holds(condition, &[("request", &request)]);
        for (condition, expected) in [
            ("request.name in ['a', 'b']", true),
            ("'x/' + request.name == 'x/a'", true),
            ("has(request.namespace)", false),
            ("!has(request.namespace) || request.namespace == 'n'", true),
            ("(has(request.name) ? request.name : '') in []", false),
            ("request.name.startsWith('b')", false),
            (
                "request.counts.exists(x, x == 2) && request.half < 1.0",
                true,
            ),
            ("request.nothing == null && !request.dryRun", true),
        ] {
            assert_eq!(evaluate(condition), Ok(expected), "{condition}");
        }
        for broken in [
            "request.name",
            "request.lost.name == 'a'",
            "other == 1",
            "(",
        ] {
            assert!(evaluate(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn conditions_are_checked_before_use() {
        let check = |condition: &str| check(condition, &["request", "object"]).is_ok();
        for good in [
            "true",
            "request.name == 'a'",
            "object.items.all(x, x.size() > 0 && request.items.exists(y, y == x))",
            "type(object) == map || has(request.a)",
        ] {
            assert!(check(good), "{good}");
        }
        for bad in [
            "other.name == 'a'",
            "object.all(x, z)",
            "'text'",
            "1",
            "[&]",
            "... [",
            "{}",
        ] {
            assert!(!check(bad), "{bad}");
        }
    }

    #[test]
    fn deep_or_long_expressions_are_rejected_before_parsing() {
        for source in [
            "(".repeat(60_000),
            "-".repeat(60_000),
            "! ".repeat(30_000),
            format!("{}1{}", "[".repeat(81), "]".repeat(81)),
            vec!["a"; 500].join("."),
            vec!["a"; 500].join(" in "),
            "a ? b : ".repeat(81) + "c",
            "a".repeat(MAX_LENGTH + 1),
        ] {
            let why = parse(&source).expect_err("refused");
            assert!(
                why.starts_with("nested") || why.contains("more than") || why.starts_with("longer"),
                "{why}"
            );
        }
    }

    /// At the bounds, on the small stack of a test's thread.
    #[test]
    fn expressions_within_bounds_are_parsed() {
        for source in [
            "(".repeat(80) + "a" + &")".repeat(80),
            "[".repeat(80) + "a" + &"]".repeat(80),
            "{1: ".repeat(80) + "a" + &"}".repeat(80),
            "a.all(x, ".repeat(80) + "x" + &")".repeat(80),
            "-".repeat(80) + "a",
            "a ? b : ".repeat(80) + "c",
            vec!["a"; 400].join(" + "),
            vec!["a"; 400].join("."),
            vec!["a"; 200].join(" < "),
            vec!["a"; 200].join(" && "),
            "a".to_owned() + &"[0]".repeat(300),
        ] {
            assert!(parse(&source).is_ok(), "{source}");
        }
    }
}
