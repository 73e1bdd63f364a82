//! The `OpenAPI` document of version 2 as protobuf, the format that kubectl asks for.
//!
//! The messages are those of `openapi.v2`: maps are lists of pairs of a name (1) and a value (2), and
//! values of any type are YAML.

use serde_json::{Map, Value};

use crate::protobuf::wire::Writer;

/// The media types of the format; the first one is in use since Kubernetes 1.23.
pub const V2_PROTOBUF: [&str; 2] = [
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
];

/// How a field is written.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Texts,
    Flag,
    Whole,
    Number,
    Any,
    Anys,
    /// A message of its own.
    Part(Table),
    /// A map by name.
    Named(Table),
    /// The schemas of a list of schemas.
    Parts(Table),
    /// A type, or a list of types.
    TypeItem,
    /// A schema or a boolean.
    SchemaOrFlag,
    /// The schema of list items.
    Items,
    Parameters,
    /// The schema of a response.
    SchemaItem,
    /// Responses by code.
    Responses,
}

type Entry = (u64, &'static str, Shape);
type Table = &'static [Entry];

/// Extensions: fields whose names begin with `x-`.
const EXTENSION: &str = "x-";

static DOCUMENT: Table = &[
    (1, "swagger", Shape::Text),
    (
        2,
        "info",
        Shape::Part(&[(1, "title", Shape::Text), (2, "version", Shape::Text)]),
    ),
    (
        9,
        "definitions",
        Shape::Part(&[(1, "", Shape::Named(&SCHEMA))]),
    ),
    (8, "paths", Shape::Part(&[(2, "", Shape::Named(PATH))])),
    (16, EXTENSION, Shape::Any),
];
static PATH: Table = &[
    (2, "get", Shape::Part(OPERATION)),
    (3, "put", Shape::Part(OPERATION)),
    (4, "post", Shape::Part(OPERATION)),
    (5, "delete", Shape::Part(OPERATION)),
    (6, "options", Shape::Part(OPERATION)),
    (7, "head", Shape::Part(OPERATION)),
    (8, "patch", Shape::Part(OPERATION)),
    (9, "parameters", Shape::Parameters),
    (10, EXTENSION, Shape::Any),
];
static OPERATION: Table = &[
    (1, "tags", Shape::Texts),
    (2, "summary", Shape::Text),
    (3, "description", Shape::Text),
    (5, "operationId", Shape::Text),
    (6, "produces", Shape::Texts),
    (7, "consumes", Shape::Texts),
    (8, "parameters", Shape::Parameters),
    (9, "responses", Shape::Responses),
    (10, "schemes", Shape::Texts),
    (11, "deprecated", Shape::Flag),
    (13, EXTENSION, Shape::Any),
];
static RESPONSE: Table = &[
    (1, "description", Shape::Text),
    (2, "schema", Shape::SchemaItem),
    (5, EXTENSION, Shape::Any),
];
static BODY: Table = &[
    (1, "description", Shape::Text),
    (2, "name", Shape::Text),
    (3, "in", Shape::Text),
    (4, "required", Shape::Flag),
    (5, "schema", Shape::Part(&SCHEMA)),
    (6, EXTENSION, Shape::Any),
];
static QUERY: Table = &[
    (1, "required", Shape::Flag),
    (2, "in", Shape::Text),
    (3, "description", Shape::Text),
    (4, "name", Shape::Text),
    (6, "type", Shape::Text),
    (7, "format", Shape::Text),
    (20, "uniqueItems", Shape::Flag),
    (23, EXTENSION, Shape::Any),
];
static IN_PATH: Table = &[
    (1, "required", Shape::Flag),
    (2, "in", Shape::Text),
    (3, "description", Shape::Text),
    (4, "name", Shape::Text),
    (5, "type", Shape::Text),
    (6, "format", Shape::Text),
    (19, "uniqueItems", Shape::Flag),
    (22, EXTENSION, Shape::Any),
];
/// Refers to itself, so it has an address.
static SCHEMA: [Entry; 28] = [
    (1, "$ref", Shape::Text),
    (2, "format", Shape::Text),
    (3, "title", Shape::Text),
    (4, "description", Shape::Text),
    (5, "default", Shape::Any),
    (6, "multipleOf", Shape::Number),
    (7, "maximum", Shape::Number),
    (8, "exclusiveMaximum", Shape::Flag),
    (9, "minimum", Shape::Number),
    (10, "exclusiveMinimum", Shape::Flag),
    (11, "maxLength", Shape::Whole),
    (12, "minLength", Shape::Whole),
    (13, "pattern", Shape::Text),
    (14, "maxItems", Shape::Whole),
    (15, "minItems", Shape::Whole),
    (16, "uniqueItems", Shape::Flag),
    (17, "maxProperties", Shape::Whole),
    (18, "minProperties", Shape::Whole),
    (19, "required", Shape::Texts),
    (20, "enum", Shape::Anys),
    (21, "additionalProperties", Shape::SchemaOrFlag),
    (22, "type", Shape::TypeItem),
    (23, "items", Shape::Items),
    (24, "allOf", Shape::Parts(&SCHEMA)),
    (
        25,
        "properties",
        Shape::Part(&[(1, "", Shape::Named(&SCHEMA))]),
    ),
    (27, "readOnly", Shape::Flag),
    (30, "example", Shape::Any),
    (31, EXTENSION, Shape::Any),
];

/// Writes a document that [`super::v2`] made.
pub fn to_protobuf(document: &Value) -> Vec<u8> {
    part(document, DOCUMENT).into_bytes()
}

fn part(value: &Value, table: Table) -> Writer {
    let mut out = Writer::default();
    let Value::Object(fields) = value else {
        return out;
    };
    for (number, name, shape) in table {
        match *name {
            // The message holds the map itself.
            "" => write(*number, value, *shape, &mut out),
            EXTENSION => extensions(*number, fields, &mut out),
            name => {
                if let Some(value) = fields.get(name) {
                    write(*number, value, *shape, &mut out);
                }
            }
        }
    }
    out
}

fn write(number: u64, value: &Value, shape: Shape, out: &mut Writer) {
    match shape {
        Shape::Text => text(number, value, out),
        Shape::Texts => items(value).for_each(|item| text(number, item, out)),
        Shape::Flag => flag(number, value, out),
        Shape::Whole => out.number(number, value.as_i64().unwrap_or_default().cast_unsigned()),
        Shape::Number => out.double(number, value.as_f64().unwrap_or_default()),
        Shape::Any => out.message(number, &any(value)),
        Shape::Anys => items(value).for_each(|item| out.message(number, &any(item))),
        Shape::Part(table) => out.message(number, &part(value, table)),
        Shape::Parts(table) => {
            items(value).for_each(|item| out.message(number, &part(item, table)));
        }
        Shape::Named(table) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                out.message(number, &named(name, &part(value, table)));
            }
        }
        Shape::TypeItem => {
            let mut inner = Writer::default();
            if value.is_array() {
                items(value).for_each(|item| text(1, item, &mut inner));
            } else {
                text(1, value, &mut inner);
            }
            out.message(number, &inner);
        }
        Shape::SchemaOrFlag => {
            let mut inner = Writer::default();
            match value {
                Value::Bool(yes) => inner.number(2, u64::from(*yes)),
                schema => inner.message(1, &part(schema, &SCHEMA)),
            }
            out.message(number, &inner);
        }
        Shape::Items | Shape::SchemaItem => {
            let mut inner = Writer::default();
            inner.message(1, &part(value, &SCHEMA));
            out.message(number, &inner);
        }
        Shape::Parameters => items(value).for_each(|item| out.message(number, &parameter(item))),
        Shape::Responses => out.message(number, &responses(value)),
    }
}

fn extensions(number: u64, fields: &Map<String, Value>, out: &mut Writer) {
    for (name, value) in fields
        .iter()
        .filter(|(name, _)| name.starts_with(EXTENSION))
    {
        out.message(number, &named(name, &any(value)));
    }
}

fn parameter(value: &Value) -> Writer {
    let mut inner = Writer::default();
    match value["in"].as_str() {
        Some("body") => inner.message(1, &part(value, BODY)),
        place => {
            let mut other = Writer::default();
            if place == Some("path") {
                other.message(4, &part(value, IN_PATH));
            } else {
                other.message(3, &part(value, QUERY));
            }
            inner.message(2, &other);
        }
    }
    let mut out = Writer::default();
    out.message(1, &inner);
    out
}

fn responses(value: &Value) -> Writer {
    let mut out = Writer::default();
    for (code, response) in value.as_object().into_iter().flatten() {
        let mut inner = Writer::default();
        inner.message(1, &part(response, RESPONSE));
        out.message(1, &named(code, &inner));
    }
    out
}

fn named(name: &str, value: &Writer) -> Writer {
    let mut out = Writer::default();
    out.bytes(1, name.as_bytes());
    out.message(2, value);
    out
}

/// JSON is YAML.
fn any(value: &Value) -> Writer {
    let mut out = Writer::default();
    out.bytes(2, value.to_string().as_bytes());
    out
}

fn text(number: u64, value: &Value, out: &mut Writer) {
    out.bytes(number, value.as_str().unwrap_or_default().as_bytes());
}

fn flag(number: u64, value: &Value, out: &mut Writer) {
    out.number(number, u64::from(value.as_bool().unwrap_or_default()));
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
