//! From JSON to protobuf.
//!
//! Fields that are absent or null are not written: to a reader they are empty.

use serde_json::{Map, Value};

use super::PREFIX;
use super::scalars::{self, SCHEMA};
use super::table::{Count, Field, Message, Name, TABLE, Type};
use super::wire::Writer;
use crate::meta;

/// Why an object cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error("the kind {kind:?} of {api_version:?} has no protobuf message")]
    UnknownKind { api_version: String, kind: String },
    #[error("the field {field:?} has a value of another type than its protobuf message")]
    Mistyped { field: String },
}

/// The body of an object or list.
pub fn encode(object: &Value) -> Result<Vec<u8>, EncodeError> {
    let (api_version, kind) = (meta::api_version(object), meta::kind(object));
    let message = TABLE.of_kind(api_version, kind);
    let (Some(message), Some(fields)) = (message, object.as_object()) else {
        return Err(EncodeError::UnknownKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        });
    };
    let mut type_meta = Writer::default();
    type_meta.bytes(1, api_version.as_bytes());
    type_meta.bytes(2, kind.as_bytes());
    let mut envelope = Writer::default();
    envelope.message(1, &type_meta);
    envelope.message(2, &of_fields(message, fields)?);
    envelope.bytes(3, b"");
    envelope.bytes(4, b"");
    Ok([PREFIX, &envelope.into_bytes()].concat())
}

/// An event of a watch, with the length in front that ends it in a stream.
pub fn encode_event(kind: &str, object: &Value) -> Result<Vec<u8>, EncodeError> {
    let mut raw = Writer::default();
    raw.bytes(1, &encode(object)?);
    let mut event = Writer::default();
    event.bytes(1, kind.as_bytes());
    event.message(2, &raw);
    let event = event.into_bytes();
    // Objects are smaller than the limit of bodies.
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    Ok([length.to_be_bytes().as_slice(), &event].concat())
}

fn of_fields(message: &Message, fields: &Map<String, Value>) -> Result<Writer, EncodeError> {
    let mut out = Writer::default();
    for field in &message.fields {
        let Name::Own(name) = field.name else {
            if let Type::Message(inner) = field.ty {
                out.message(field.number, &of_fields(TABLE.message(inner), fields)?);
            }
            continue;
        };
        if let Some(value) = fields.get(name).filter(|value| !value.is_null()) {
            write(field, value, &mut out).map_err(|error| error.below(name))?;
        }
    }
    Ok(out)
}

fn write(field: &Field, value: &Value, out: &mut Writer) -> Result<(), EncodeError> {
    let wrong = || EncodeError::Mistyped {
        field: String::new(),
    };
    match field.count {
        Count::One => one(field.ty, field.number, value, out),
        Count::List => {
            let items = value.as_array().ok_or_else(wrong)?;
            for item in items {
                one(field.ty, field.number, item, out)?;
            }
            Ok(())
        }
        Count::Map => {
            let entries = value.as_object().ok_or_else(wrong)?;
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            for (key, value) in entries {
                let mut entry = Writer::default();
                entry.bytes(1, key.as_bytes());
                one(field.ty, 2, value, &mut entry).map_err(|error| error.below(key))?;
                out.message(field.number, &entry);
            }
            Ok(())
        }
    }
}

fn one(ty: Type, number: u64, value: &Value, out: &mut Writer) -> Result<(), EncodeError> {
    match ty {
        Type::Message(name) => out.message(number, &of_message(TABLE.message(name), value)?),
        Type::SchemaOrBool => out.message(number, &schema_or(value, 2)?),
        Type::SchemaOrList | Type::SchemaOrTexts => out.message(number, &schema_or(value, 1)?),
        ty => {
            return scalars::write(ty, value, number, out).ok_or(EncodeError::Mistyped {
                field: String::new(),
            });
        }
    }
    Ok(())
}

fn of_message(message: &Message, value: &Value) -> Result<Writer, EncodeError> {
    match (message.fields.first(), value) {
        (Some(only), _) if only.name == Name::Message => {
            let mut out = Writer::default();
            write(only, value, &mut out)?;
            Ok(out)
        }
        (_, Value::Object(fields)) => of_fields(message, fields),
        // A list item that is null is an empty message.
        (_, Value::Null) => Ok(Writer::default()),
        _ => Err(EncodeError::Mistyped {
            field: String::new(),
        }),
    }
}

/// A schema, which has this field number, or in its place a boolean, texts or a list of schemas.
fn schema_or(value: &Value, number: u64) -> Result<Writer, EncodeError> {
    let schema = |value| of_message(TABLE.message(SCHEMA), value);
    let mut out = Writer::default();
    match value {
        Value::Bool(yes) => out.number(1, u64::from(*yes)),
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::String(text) => out.bytes(2, text.as_bytes()),
                    item => out.message(2, &schema(item)?),
                }
            }
        }
        alone => {
            if number == 2 {
                out.number(1, 1);
            }
            out.message(number, &schema(alone)?);
        }
    }
    Ok(out)
}

impl EncodeError {
    /// The error, of a field below `name`.
    fn below(self, name: &str) -> Self {
        match self {
            Self::Mistyped { field } if field.is_empty() => Self::Mistyped {
                field: name.to_owned(),
            },
            Self::Mistyped { field } => Self::Mistyped {
                field: format!("{name}.{field}"),
            },
            other @ Self::UnknownKind { .. } => other,
        }
    }
}
