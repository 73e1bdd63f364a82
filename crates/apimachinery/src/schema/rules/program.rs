//! Compiled CEL programs and the functions they may call.

use std::sync::{Arc, LazyLock, OnceLock};

use kube_cel::{
    KubeCelExt as _,
    cel::{
        self, Context, IdedExpr, Program,
        common::ast::{EntryExpr, Expr, IdedEntryExpr},
        extractors::This,
    },
};

/// A program that is compiled on first use.
#[derive(Debug, Default)]
pub(super) struct Lazy(OnceLock<Result<Box<Compiled>, String>>);

#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) program: Program,
    /// Nesting depth of loops.
    pub(super) depth: u32,
    pub(super) uses_old: bool,
}

/// The context shared by all rules: the functions and the names of types.
pub(super) static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| {
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

/// The prefix prevents collisions with strings of the object.
fn type_name(name: &str) -> cel::Value {
    cel::Value::String(Arc::new(format!("type {name}")))
}
impl Clone for Lazy {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Lazy {
    pub(super) fn compiled(&self, source: &str) -> Result<&Compiled, &str> {
        let made = self.0.get_or_init(|| compile(source).map(Box::new));
        made.as_deref().map_err(String::as_str)
    }
}

pub(super) fn compile(source: &str) -> Result<Compiled, String> {
    let program = crate::cel::parse(source)?;
    let depth = depth(&program.expression().expr)?;
    let uses_old = program.references().has_variable("oldSelf");
    Ok(Compiled {
        program,
        depth,
        uses_old,
    })
}

/// The nesting depth of loops; an error for expressions that the evaluator does not support.
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
