//! Expressions in CEL: the one place where they are read.
//!
//! Invariants: the parser, which calls itself at every level and takes a hundred KiB for it, runs
//! on a thread of its own with room for all that it may be given, so no text overflows the stack of
//! a caller; what is nested or chained further than that is refused before the parser sees it.

use std::{collections::HashMap, sync::Arc, thread};

use kube_cel::{
    KubeCelExt as _,
    cel::{self, Context, Program, objects::Key},
};
use serde_json::Value;

/// More than any sensible expression has.
const MAX_LENGTH: usize = 64 << 10;
/// Brackets, choices and signs within each other. A little below the parser's own bound, which is
/// not safe to meet.
const MAX_DEPTH: usize = 80;
/// Operators and members in a row: each makes the tree deeper by one, which costs whoever walks it.
const MAX_LINKS: usize = 400;
const STACK: usize = 64 << 20;

/// Reads an expression; or says why it is none.
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
    let read = || Program::compile(source).map_err(|errors| errors.to_string());
    thread::scope(|scope| {
        let parser = thread::Builder::new()
            .name("cel".to_owned())
            .stack_size(STACK);
        let running = parser
            .spawn_scoped(scope, read)
            .map_err(|error| format!("no thread to read it: {error}"))?;
        running
            .join()
            .unwrap_or_else(|_| Err("the parser gave up".to_owned()))
    })
}

/// Whether a condition holds for these objects, each under its name; or why it cannot be said.
pub fn holds(condition: &str, objects: &[(&str, &Value)]) -> Result<bool, String> {
    let program = parse(condition)?;
    let mut context = Context::default().with_all();
    for (name, object) in objects {
        context.add_variable_from_value(*name, value(object));
    }
    match program.execute(&context) {
        Ok(cel::Value::Bool(holds)) => Ok(holds),
        Ok(_) => Err("it is neither true nor false".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

/// Whole numbers are signed, as in everything that an API server shows to expressions.
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

/// Upper bounds of what the parser will meet; what is in texts counts, too.
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
            .filter(|word| *word == "in")
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
    fn expressions_are_told_from_other_texts() {
        for good in [
            "true",
            "vmi.spec.domain.cpu.cores > 1u",
            "has(a.b) ? [1] : []",
            "Domain{a: 1}",
            "a.all(x, x in b)",
        ] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["", "a +", "if a then b", "\"open", "a ? b"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn conditions_hold_or_say_why_they_cannot_be_judged() {
        let request = serde_json::json!({
            "name": "a", "operation": "DELETE", "dryRun": false, "nothing": null,
            "counts": [1, 2], "half": 0.5,
        });
        let ask = |condition: &str| holds(condition, &[("request", &request)]);
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
            assert_eq!(ask(condition), Ok(expected), "{condition}");
        }
        for broken in [
            "request.name",
            "request.lost.name == 'a'",
            "other == 1",
            "(",
        ] {
            assert!(ask(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn what_is_deep_or_long_is_refused_before_it_is_read() {
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
    fn what_is_within_bounds_is_read() {
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
