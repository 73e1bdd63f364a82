//! Compares the rows of types with schemas: those that definitions show, and those of our types.
//!
//! A walk starts at a kind or at a listed type and goes down field by field, by the fields
//! of the tables. A row is compared at every place where its type occurs; one place that differs is a
//! gap of the row.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    facts::{Facts, Row, TypeName, named_in, resolve},
    foreign, marks,
    node::{Definitions, Node},
    shape::Shape,
};

/// Whose schema it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Definition,
    Type,
}

impl Side {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Definition => "definition",
            Self::Type => "type",
        }
    }
}

/// What all walks found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Rows by index.
    pub(super) gaps: BTreeMap<usize, BTreeSet<(Side, String)>>,
    pub(super) seen: BTreeSet<(Side, usize)>,
    /// Fields without a row.
    pub(super) extra: BTreeSet<(TypeName, String, Side)>,
}

/// How strictly a walk compares a schema with the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strictness {
    Whole,
    /// An older version shares the schema of the stored one: it may have more fields, and other
    /// marks where the stored version's row has them.
    OlderVersion,
}

#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) facts: &'a Facts,
    pub(super) side: Side,
    pub(super) strictness: Strictness,
    /// The types of the same group, to look up the stored version.
    pub(super) stored: &'a str,
    pub(super) definitions: &'a Definitions,
    /// Types that no definition shows are held to marks and required fields by their own schema.
    pub(super) shown: &'a BTreeSet<TypeName>,
    pub(super) findings: &'a mut Findings,
    /// Types on the way down, for those that hold themselves.
    pub(super) way: Vec<TypeName>,
    /// Status enums are open to future values.
    pub(super) in_status: bool,
}

impl Walk<'_> {
    /// Compares a whole type with a level of the schema.
    pub(super) fn whole_type(&mut self, name: &TypeName, node: &Node) {
        if self.way.contains(name) {
            return;
        }
        self.way.push(name.clone());
        let mut known = BTreeSet::new();
        self.level(name, node, &mut known);
        if self.strictness == Strictness::Whole {
            let extra = node.properties().filter(|field| !known.contains(*field));
            for field in extra.map(str::to_owned).collect::<Vec<_>>() {
                self.findings.extra.insert((name.clone(), field, self.side));
            }
        }
        self.way.pop();
    }

    /// The rows of a type at this level; collects the names of fields that belong there.
    fn level(&mut self, name: &TypeName, node: &Node, known: &mut BTreeSet<String>) {
        let facts = self.facts;
        for index in facts.rows_of(name) {
            let Some(row) = facts.row(*index) else {
                continue;
            };
            self.findings.seen.insert((self.side, *index));
            match row.field.as_str() {
                "(alias)" => {}
                "(empty)" | "(type)" => self.object(*index, row, node),
                "(inline)" => self.inline(*index, row, node, known),
                field => {
                    known.insert(field.to_owned());
                    self.field(*index, row, field, node);
                }
            }
        }
    }

    fn object(&mut self, index: usize, row: &Row, node: &Node) {
        if node.kind() != "object" {
            self.gap(index, format!("type is {:?}, not object", node.kind()));
        }
        if self.is_held_to_marks(row) {
            for gap in marks::lacking(&row.marks, node) {
                self.gap(index, gap);
            }
        }
    }

    fn inline(&mut self, index: usize, row: &Row, node: &Node, known: &mut BTreeSet<String>) {
        let Shape::Reference(reference) = &row.shape else {
            return;
        };
        let inlined = resolve(reference, &row.group_version);
        if inlined.1 == "TypeMeta" {
            known.extend(["apiVersion".to_owned(), "kind".to_owned()]);
            // Types of kinds write these two by hand, around what the schema shows.
            let by_hand = self.side == Side::Type && self.facts.is_kind(&row.type_key());
            for field in ["apiVersion", "kind"] {
                let found = node.property(field, self.definitions);
                if !by_hand && found.is_none_or(|found| found.kind() != "string") {
                    self.gap(index, format!("no text {field}"));
                }
            }
        } else if let Some(names) = foreign::properties(&inlined) {
            for gap in foreign::differences(&inlined, node, self.definitions) {
                self.gap(index, gap);
            }
            known.extend(names);
        } else {
            self.level(&inlined, node, known);
        }
    }

    fn field(&mut self, index: usize, row: &Row, field: &str, parent: &Node) {
        let Some(node) = parent.property(field, self.definitions) else {
            self.gap(index, "missing".to_owned());
            return;
        };
        let was_in_status = self.in_status;
        self.in_status |= field == "status";
        self.shape(index, &row.shape, &row.group_version, &node);
        if self.is_held_to_marks(row) {
            let by_hand = self.side == Side::Type && self.facts.is_kind(&row.type_key());
            if let Some(wanted) = row.required
                && !by_hand
                && wanted != parent.requires(field)
            {
                let values = if wanted {
                    "is not required"
                } else {
                    "is required"
                };
                self.gap(index, values.to_owned());
            }
            self.marks(index, row, &node);
        }
        self.in_status = was_in_status;
    }

    /// Marks that the schema of a type can have: `schemars` calls a default what is read when a
    /// field is missing, and rules are the business of definitions.
    fn can_have(&self, gap: &str) -> bool {
        self.side == Side::Definition
            || !["has default", "lacks has a CEL rule", "has 0 rules"]
                .iter()
                .any(|start| gap.starts_with(start))
    }

    fn is_held_to_marks(&self, row: &Row) -> bool {
        if self.side == Side::Type && self.shown.contains(&row.type_key()) {
            return false;
        }
        if self.strictness == Strictness::Whole {
            return true;
        }
        let stored = (self.stored.to_owned(), row.type_name.clone());
        let rows = self.facts.rows_of(&stored).iter();
        rows.filter_map(|index| self.facts.row(*index))
            .find(|other| other.field == row.field)
            .is_none_or(|other| other.says_the_same(row))
    }

    fn marks(&mut self, index: usize, row: &Row, node: &Node) {
        let facts = self.facts;
        let of_type = named_in(&row.shape, &row.group_version);
        let of_type = of_type.iter().flat_map(|name| facts.rows_of(name));
        let of_type = of_type
            .filter_map(|index| facts.row(*index))
            .filter(|row| matches!(row.field.as_str(), "(type)" | "(empty)"));
        let all: Vec<&String> = row
            .marks
            .iter()
            .chain(of_type.flat_map(|row| &row.marks))
            .collect();
        let gaps = marks::lacking(&row.marks, node).into_iter();
        for gap in gaps.chain(marks::surplus(&all, node)) {
            if self.can_have(&gap) {
                self.gap(index, gap);
            }
        }
    }

    fn shape(&mut self, index: usize, shape: &Shape, here: &str, node: &Node) {
        let wanted = match shape {
            Shape::Reference(reference) => {
                return self.reference(index, &resolve(reference, here), node);
            }
            Shape::Named(name, base) => {
                self.values(index, &resolve(name, here), node);
                return self.shape(index, base, here, node);
            }
            Shape::List(inner) => {
                if self.is_kind(index, node, "array") {
                    self.inner(index, "items", inner, here, node);
                }
                return;
            }
            Shape::Map(inner) => {
                if self.is_kind(index, node, "object") {
                    self.inner(index, "additionalProperties", inner, here, node);
                }
                return;
            }
            Shape::Any => return,
            Shape::Raw => {
                if !node.is_marked("x-kubernetes-preserve-unknown-fields")
                    && self.side == Side::Definition
                {
                    self.gap(index, "does not keep unknown fields".to_owned());
                }
                return;
            }
            Shape::Quantity | Shape::IntOrString => {
                let good = match shape {
                    Shape::Quantity => node.is_quantity(),
                    _ => node.is_int_or_string() && !node.is_quantity(),
                };
                if !good {
                    let expected = if *shape == Shape::Quantity {
                        "a quantity"
                    } else {
                        "integer or string"
                    };
                    self.gap(index, format!("is not {expected}"));
                }
                return;
            }
            Shape::Integer(width) => {
                if self.is_kind(index, node, "integer") {
                    let formats = match self.side {
                        Side::Definition => width.formats_of_definitions(),
                        Side::Type => width.formats_of_types(),
                    };
                    self.is_format(index, node, formats);
                }
                return;
            }
            Shape::Float(format) => {
                if self.is_kind(index, node, "number") && self.side == Side::Type {
                    self.is_format(index, node, &[format]);
                }
                return;
            }
            Shape::Time => {
                if self.is_kind(index, node, "string") {
                    self.is_format(index, node, &["date-time"]);
                }
                return;
            }
            Shape::Bool => "boolean",
            Shape::Text | Shape::Bytes => "string",
            Shape::Object => "object",
        };
        self.is_kind(index, node, wanted);
    }

    fn inner(&mut self, index: usize, key: &str, inner: &Shape, here: &str, node: &Node) {
        match node.inner(key, self.definitions) {
            Some(node) => self.shape(index, inner, here, &node),
            None => self.gap(index, format!("does not define its {key}")),
        }
    }

    fn reference(&mut self, index: usize, name: &TypeName, node: &Node) {
        if foreign::is_foreign(name) {
            for gap in foreign::differences(name, node, self.definitions) {
                self.gap(index, gap);
            }
        } else if let Some((_, alias)) = self.facts.alias(name) {
            self.values(index, name, node);
            self.shape(index, &alias.shape, &name.0, node);
        } else if self.is_kind(index, node, "object") {
            self.whole_type(name, node);
        }
    }

    /// The values of a named scalar. In a status they may be open.
    fn values(&mut self, index: usize, name: &TypeName, node: &Node) {
        // Scalars that the tables only name have no values to compare.
        let Some((alias_index, alias)) = self.facts.alias(name) else {
            return;
        };
        self.findings.seen.insert((self.side, alias_index));
        if alias.values.is_empty() {
            return;
        }
        let Some(found) = node.values() else {
            if !(self.in_status && self.side == Side::Definition) {
                self.gap(index, "has no enumeration".to_owned());
            }
            return;
        };
        let found: Vec<&str> = match self.strictness {
            Strictness::Whole => found,
            Strictness::OlderVersion => found
                .into_iter()
                .filter(|value| alias.values.iter().any(|wanted| wanted == value))
                .collect(),
        };
        for gap in value_differences(&alias.values, &found) {
            self.gap(index, gap);
        }
    }

    fn is_kind(&mut self, index: usize, node: &Node, wanted: &str) -> bool {
        let good = node.kind() == wanted && !node.is_int_or_string();
        if !good {
            let found = match node.kind() {
                "" => "something else",
                kind => kind,
            };
            self.gap(index, format!("type is {found}, not {wanted}"));
        }
        good
    }

    fn is_format(&mut self, index: usize, node: &Node, wanted: &[&str]) {
        if !wanted.contains(&node.format()) {
            let wanted: Vec<&str> = wanted
                .iter()
                .copied()
                .filter(|one| !one.is_empty())
                .collect();
            self.gap(
                index,
                format!("format is {:?}, not {}", node.format(), wanted.join(" or ")),
            );
        }
    }

    fn gap(&mut self, index: usize, what: String) {
        let gaps = self.findings.gaps.entry(index).or_default();
        gaps.insert((self.side, what));
    }
}

/// The differences of two enums; the empty value is ignored.
pub(super) fn value_differences(wanted: &[String], found: &[&str]) -> Vec<String> {
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let wanted: Vec<&str> = wanted
        .into_iter()
        .filter(|value| *value != "\"\"")
        .collect();
    let lacking = wanted.iter().filter(|value| !found.contains(value));
    let extra = found.iter().filter(|value| !wanted.contains(value));
    lacking
        .map(|value| format!("lacks the value {value}"))
        .chain(extra.map(|value| format!("has an extra value: {value}")))
        .collect()
}

/// A schema of a type as `schemars` makes it, apart from the definitions it refers to.
pub(super) fn split(mut schema: Value) -> (Value, Definitions) {
    let definitions = match schema.as_object_mut().and_then(|root| root.remove("$defs")) {
        Some(Value::Object(definitions)) => definitions,
        _ => Definitions::new(),
    };
    (schema, definitions)
}
