//! `meta.k8s.io/v1` tables: the output of `kubectl get`.
//!
//! A column has a definition and a cell source: a path for custom kinds, a function for built-in
//! ones. Times are printed as ages relative to a passed-in time.

mod age;
mod built_in;
mod pod;
mod storage;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::jsonpath::JsonPath;
use crate::{Violation, meta};

pub use age::{age, human_duration};

/// The media type of a table.
pub const MEDIA_TYPE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// The columns of a kind.
#[derive(Debug, Clone)]
pub struct Layout {
    columns: Vec<Column>,
    /// Additional conditions of a row, e.g. that a pod has completed.
    conditions: Option<fn(&Value) -> Value>,
}

#[derive(Debug, Clone)]
struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    cell: Cell,
}

/// The inputs of a cell.
#[derive(Debug, Clone, Copy)]
struct Row<'a> {
    object: &'a Value,
    now: Timestamp,
}

#[derive(Debug, Clone)]
enum Cell {
    Function(fn(&Row<'_>) -> Value),
    Path(JsonPath),
}

/// How much of each object a row carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludeObject {
    None,
    Metadata,
    Object,
}

impl IncludeObject {
    /// Parses `includeObject` of a query; metadata by default.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

impl Layout {
    /// The columns of a built-in kind; Name and Created At for kinds without specific columns.
    pub fn built_in(group: &str, plural: &str) -> Self {
        built_in::layout(group, plural)
    }

    /// From a CRD version's `additionalPrinterColumns` (null for none: Name and Age). `at` is the
    /// field path for errors.
    pub fn custom(columns: &Value, at: &str) -> Result<Self, Vec<Violation>> {
        let mut out = vec![Column::of("Name", "string", 0, |row| {
            meta::name(row.object).into()
        })];
        let Some(raw) = columns.as_array().filter(|list| !list.is_empty()) else {
            let mut age = Column::of("Age", "date", 0, age_cell);
            "date".clone_into(&mut age.kind);
            out.push(age);
            return Ok(Self {
                columns: out,
                conditions: None,
            });
        };
        let mut wrong = Vec::new();
        for (index, raw) in raw.iter().enumerate() {
            match Column::custom(raw, &format!("{at}[{index}]")) {
                Ok(column) => out.push(column),
                Err(violation) => wrong.push(*violation),
            }
        }
        if wrong.is_empty() {
            Ok(Self {
                columns: out,
                conditions: None,
            })
        } else {
            Err(wrong)
        }
    }

    /// A `Table` of the objects. `list_meta` is the metadata of the list (resourceVersion,
    /// continue, remainingItemCount) or of the single object.
    pub fn render(
        &self,
        objects: &[Value],
        list_meta: &Value,
        include: IncludeObject,
        now: Timestamp,
    ) -> Value {
        let rows: Vec<Value> = objects
            .iter()
            .map(|object| self.row(Row { object, now }, include))
            .collect();
        let mut metadata = serde_json::Map::new();
        for key in ["resourceVersion", "continue", "remainingItemCount"] {
            if let Some(value) = list_meta.get(key).filter(|value| !value.is_null()) {
                metadata.insert(key.to_owned(), value.clone());
            }
        }
        let columns: Vec<Value> = self.columns.iter().map(Column::definition).collect();
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
            "columnDefinitions": columns, "rows": rows,
        })
    }

    fn row(&self, row: Row<'_>, include: IncludeObject) -> Value {
        let cells: Vec<Value> = self
            .columns
            .iter()
            .map(|column| column.cell(&row))
            .collect();
        let mut out = json!({ "cells": cells });
        if let Some(conditions) = self
            .conditions
            .map(|of| of(row.object))
            .filter(|c| !c.is_null())
        {
            out["conditions"] = conditions;
        }
        match include {
            IncludeObject::None => out["object"] = Value::Null,
            IncludeObject::Object => out["object"] = row.object.clone(),
            IncludeObject::Metadata => out["object"] = partial(row.object),
        }
        out
    }
}

/// A `PartialObjectMetadata` of the object.
pub fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

impl Column {
    fn of(name: &str, kind: &str, priority: i64, cell: fn(&Row<'_>) -> Value) -> Self {
        let is_name = name == "Name" && priority == 0;
        Self {
            name: name.to_owned(),
            // An age is sent as a string, like every formatted value.
            kind: if name == "Age" { "string" } else { kind }.to_owned(),
            format: if is_name { "name" } else { "" }.to_owned(),
            description: match name {
                "Name" if is_name => "The name of the object, unique among its kind".to_owned(),
                "Age" => "The time since the object was created".to_owned(),
                other => format!("{other} of the object"),
            },
            priority,
            cell: Cell::Function(cell),
        }
    }

    fn custom(raw: &Value, at: &str) -> Result<Self, Box<Violation>> {
        const KINDS: [&str; 5] = ["integer", "number", "string", "boolean", "date"];
        let text = |key: &str| raw[key].as_str().unwrap_or_default().to_owned();
        let (name, kind, path) = (text("name"), text("type"), text("jsonPath"));
        if name.is_empty() {
            return Err(Box::new(Violation::required(format!("{at}.name"), "")));
        }
        if !KINDS.contains(&kind.as_str()) {
            let why = format!("must be one of {}", KINDS.join(","));
            return Err(Box::new(Violation::invalid(
                format!("{at}.type"),
                kind,
                why,
            )));
        }
        let at = format!("{at}.jsonPath");
        if path.is_empty() {
            return Err(Box::new(Violation::required(at, "")));
        }
        let parsed = JsonPath::parse(&path).map_err(|error| {
            let why = format!("is an invalid jsonpath: {error}");
            Box::new(Violation::invalid(at, path.as_str(), why))
        })?;
        let description = match text("description") {
            empty if empty.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {path}")
            }
            given => given,
        };
        Ok(Self {
            name,
            kind,
            format: text("format"),
            description,
            priority: raw["priority"].as_i64().unwrap_or_default(),
            cell: Cell::Path(parsed),
        })
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format,
            "description": self.description, "priority": self.priority,
        })
    }

    fn cell(&self, row: &Row<'_>) -> Value {
        match &self.cell {
            Cell::Function(function) => function(row),
            Cell::Path(path) => self.found(&path.find(row.object), row.now),
        }
    }

    /// The result of a path in the column's type; null for no result.
    fn found(&self, found: &[&Value], now: Timestamp) -> Value {
        let Some(first) = found.iter().find(|value| !value.is_null()) else {
            return Value::Null;
        };
        match self.kind.as_str() {
            "integer" => match first {
                Value::Number(n) => n.as_i64().map_or(Value::Null, Value::from),
                Value::String(text) => text.parse::<i64>().map_or(Value::Null, Value::from),
                _ => Value::Null,
            },
            "number" => {
                if first.is_number() {
                    (*first).clone()
                } else {
                    Value::Null
                }
            }
            "boolean" => {
                if first.is_boolean() {
                    (*first).clone()
                } else {
                    Value::Null
                }
            }
            "date" => match first.as_str().map(str::parse::<Timestamp>) {
                Some(Ok(time)) => age(Some(time), now).into(),
                _ => "<invalid>".into(),
            },
            _ => {
                let texts: Vec<String> = found
                    .iter()
                    .map(|value| {
                        value
                            .as_str()
                            .map_or_else(|| value.to_string(), str::to_owned)
                    })
                    .collect();
                texts.join(" ").into()
            }
        }
    }
}

fn age_cell(row: &Row<'_>) -> Value {
    age(meta::creation_timestamp(row.object), row.now).into()
}

impl Row<'_> {
    /// The age of a time given as a string.
    fn since(&self, time: &Value) -> String {
        age(time.as_str().and_then(|text| text.parse().ok()), self.now)
    }
}
