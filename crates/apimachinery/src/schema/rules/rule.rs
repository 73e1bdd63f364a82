//! One rule of `x-kubernetes-validations` and its evaluation.

use std::sync::Arc;

use kube_cel::cel::{self, Context, objects::OptionalValue};
use serde_json::Value;

use super::{
    MAX_STEPS, Node,
    program::{Compiled, FUNCTIONS, Lazy, compile},
    value::value,
};
use crate::{Fault, Violation};

/// One of `x-kubernetes-validations`.
#[derive(Debug, Clone)]
pub(in crate::schema) struct Rule {
    expression: String,
    message: String,
    message_expression: String,
    reason: String,
    field_path: String,
    /// Also evaluated on creation; the old value is then an empty optional.
    optional_old: bool,
    program: Lazy,
    message_program: Lazy,
}

/// A rule that does not compile: the faulty field, its contents and the error.
pub(super) struct CompileError<'a> {
    pub(super) field: &'static str,
    pub(super) source: &'a str,
    pub(super) error: String,
}

impl Rule {
    pub(in crate::schema) fn read(raw: &Value) -> Self {
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

    /// All texts of the rule and its flag, to compare and hash rules.
    pub(in crate::schema) fn texts(&self) -> ([&str; 5], bool) {
        let texts = [
            self.expression.as_str(),
            &self.message,
            &self.message_expression,
            &self.reason,
            &self.field_path,
        ];
        (texts, self.optional_old)
    }

    /// The first expression of the rule that does not compile.
    pub(super) fn compile_error(&self) -> Option<CompileError<'_>> {
        // The programs are not kept: no object uses most rules of a definition.
        if let Err(error) = compile(&self.expression) {
            return Some(CompileError {
                field: "rule",
                source: &self.expression,
                error,
            });
        }
        if self.message_expression.is_empty() {
            return None;
        }
        Some(CompileError {
            field: "messageExpression",
            source: &self.message_expression,
            error: compile(&self.message_expression).err()?,
        })
    }

    /// The violation of this rule by a value, if any.
    pub(super) fn violated(&self, at: &Node<'_>) -> Option<Violation> {
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
            Ok(_) => Err("the result is not a boolean".to_owned()),
            Err(why) => Err(why.to_string()),
        }
    }

    /// The variables of a rule; none when the rule does not apply.
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
        if let Some(text) = self.evaluated_message(at) {
            return text;
        }
        if self.message.is_empty() {
            return format!("failed rule: {}", self.expression.trim());
        }
        self.message.trim().to_owned()
    }

    /// The result of the message expression, if it is a single line of text.
    fn evaluated_message(&self, at: &Node<'_>) -> Option<String> {
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
