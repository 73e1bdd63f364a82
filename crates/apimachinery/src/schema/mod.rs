//! Structural schemas as CRDs carry them: parsed once into a compact tree, then used to prune,
//! default and validate objects.
//!
//! Invariants: work is at most (size of schema) times (size of object); recursion is at most as
//! deep as the object, which the JSON reader bounds. CEL rules are compiled on first use (`rules`),
//! and cost a bounded number of steps.

mod defaults;
mod format;
mod inline;
mod intern;
mod parse;
mod prune;
mod rules;
mod validate;

use std::sync::Arc;

use serde_json::{Number, Value};

use self::{intern::Pattern, rules::Rule};
use crate::Violation;

pub use inline::inline;
pub use intern::Interner;

/// A structural schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    kind: Option<Kind>,
    marks: Marks,
    /// Sorted by name.
    properties: Box<[(Box<str>, Arc<Schema>)]>,
    /// `additionalProperties`; `true` is represented by a schema without constraints.
    additional: Option<Arc<Schema>>,
    items: Option<Arc<Schema>>,
    default: Option<Box<Value>>,
    list: ListType,
    checks: Option<Box<Checks>>,
    rules: Box<[Rule]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// Flags of a schema, packed: a big CRD has tens of thousands of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Marks(u8);

impl Marks {
    const NULLABLE: u8 = 1;
    const PRESERVE_UNKNOWN: u8 = 2;
    const EMBEDDED: u8 = 4;
    const INT_OR_STRING: u8 = 8;
    const ATOMIC_MAP: u8 = 16;
    /// This node or one below it has CEL rules.
    const RULES: u8 = 32;

    fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }
}

/// `x-kubernetes-list-type`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Constraints on values beyond the type.
#[derive(Debug, Clone, Default)]
struct Checks {
    required: Vec<String>,
    one_of_values: Vec<Value>,
    pattern: Option<Arc<Pattern>>,
    format: Option<String>,
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<Number>,
    length: Range,
    items: Range,
    properties: Range,
    unique: bool,
    all_of: Vec<Arc<Schema>>,
    any_of: Vec<Arc<Schema>>,
    one_of: Vec<Arc<Schema>>,
    not: Option<Arc<Schema>>,
}

#[derive(Debug, Clone)]
struct Bound {
    value: Number,
    exclusive: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Range {
    min: Option<u64>,
    max: Option<u64>,
}

impl Schema {
    /// Parses `openAPIV3Schema`. `at` is the field path for errors, e.g.
    /// `spec.versions[0].schema.openAPIV3Schema`.
    pub fn parse(raw: &Value, at: &str) -> Result<Arc<Self>, Vec<Violation>> {
        Self::parse_shared(raw, at, &mut Interner::default())
    }

    /// Like [`Self::parse`], sharing nodes with schemas parsed before.
    pub fn parse_shared(
        raw: &Value,
        at: &str,
        shared: &mut Interner,
    ) -> Result<Arc<Self>, Vec<Violation>> {
        parse::structural(raw, at, shared)
    }

    /// Parses the schema of a built-in kind, without the constraints imposed on CRDs; `$ref`s are
    /// followed (see [`inline`]). Suitable for [`Schema::prune`]; the server validates such objects
    /// in code.
    pub fn lenient(raw: &Value) -> Arc<Self> {
        parse::lenient(&inline(raw), &mut Interner::default())
    }

    /// Removes fields unknown to the schema from a whole object (its `apiVersion`, `kind` and
    /// `metadata` are always known) and returns their paths.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::root(self, object)
    }

    /// The paths that [`Self::prune`] would remove.
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        self.prune(&mut object.clone())
    }

    /// Drops nulls that count as absent: those in fields that are not nullable.
    pub fn drop_nulls(&self, object: &mut Value) {
        defaults::drop_nulls(self, object);
    }

    /// Fills in defaults, also in place of a null in a field that is not nullable.
    pub fn fill_defaults(&self, object: &mut Value) {
        defaults::fill(self, object);
    }

    /// Every violation of the schema in a whole object.
    pub fn validate(&self, object: &Value) -> Vec<Violation> {
        validate::root(self, object, None)
    }

    /// Like [`Self::validate`], for an update of `old`. Unchanged parts are not validated: existing
    /// violations are tolerated.
    pub fn validate_change(&self, object: &Value, old: Option<&Value>) -> Vec<Violation> {
        validate::root(self, object, old)
    }

    /// Every CEL rule that a whole object violates; `found` are the violations known so far. Some
    /// of those prevent the rules from running, which is then reported instead.
    pub fn validate_rules(
        &self,
        object: &Value,
        old: Option<&Value>,
        found: &[Violation],
    ) -> Vec<Violation> {
        rules::root(self, object, old, found)
    }

    /// The rules that cannot be compiled, each with its path below `at`.
    pub fn check_rules(&self, at: &str) -> Vec<Violation> {
        rules::check(self, at)
    }

    /// Removes empty lists and maps where a typed object would omit them.
    pub fn drop_empty(&self, object: &mut Value) {
        prune::empty(self, object);
    }

    /// The schema of a property or of the values of a map.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.property(name).or(self.additional.as_deref())
    }

    /// The schema of a declared property.
    fn property(&self, name: &str) -> Option<&Self> {
        let at = self
            .properties
            .binary_search_by(|(own, _)| (**own).cmp(name))
            .ok()?;
        self.properties.get(at).map(|(_, schema)| &**schema)
    }

    /// The schema of the items of a list.
    pub fn items(&self) -> Option<&Self> {
        self.items.as_deref()
    }

    pub(crate) fn has_property(&self, name: &str) -> bool {
        self.property(name).is_some()
    }

    pub(crate) fn default_value(&self) -> Option<&Value> {
        self.default.as_deref()
    }

    pub(crate) fn list_type(&self) -> &ListType {
        &self.list
    }

    pub(crate) fn is_embedded(&self) -> bool {
        self.marks.has(Marks::EMBEDDED)
    }

    pub(crate) fn is_atomic_map(&self) -> bool {
        self.marks.has(Marks::ATOMIC_MAP)
    }
}

/// `strict decoding error: unknown field "spec.foo", unknown field "spec.bar"` from the paths that
/// [`Schema::prune`] returned: the end of the 400 of `fieldValidation=Strict` (see
/// [`crate::Status::undecodable`]).
pub fn strict_error(unknown: &[String]) -> String {
    format!(
        "strict decoding error: {}",
        unknown_field_warnings(unknown).join(", ")
    )
}

/// The texts of the `Warning` headers of `fieldValidation=Warn`.
pub fn unknown_field_warnings(unknown: &[String]) -> Vec<String> {
    unknown
        .iter()
        .map(|path| format!("unknown field {}", crate::violation::quoted(path)))
        .collect()
}

/// `spec` and `x` make `spec.x`; the root is the empty path.
fn join(path: &str, field: &str) -> String {
    if path.is_empty() {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

#[cfg(test)]
mod tests;
