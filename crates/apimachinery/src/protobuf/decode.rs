//! From protobuf to the JSON that the same Go client would have sent.

use serde_json::{Map, Value};

use super::PREFIX;
use super::scalars::{self, SCHEMA};
use super::table::{Count, Field, Message, Name, Presence, TABLE, Type};
use super::wire::{Wire, fields};

/// As deep as the JSON reader goes.
const MAX_DEPTH: usize = 128;
/// A few bytes can be a message with many empty fields.
const MAX_VALUES: usize = 500_000;

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NoPrefix,
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind { api_version: String, kind: String },
    #[error("the protobuf message is malformed")]
    Malformed,
    #[error("the protobuf message is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    #[error("the protobuf message has more than {MAX_VALUES} values")]
    TooLarge,
}

/// Decodes a whole body.
pub fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    Decoder { left: MAX_VALUES }.body(body, 0)
}

/// Decodes an event of a watch, without the length in front of it.
pub fn decode_event(event: &[u8]) -> Result<Value, DecodeError> {
    let raw = bytes_of(bytes_of(event, 2)?, 1)?;
    Ok(serde_json::json!({"type": text_of(event, 1)?, "object": decode(raw)?}))
}

struct Decoder {
    /// Values that may still be made.
    left: usize,
}

impl Decoder {
    fn body(&mut self, body: &[u8], depth: usize) -> Result<Value, DecodeError> {
        let body = body.strip_prefix(PREFIX).ok_or(DecodeError::NoPrefix)?;
        let (type_meta, raw) = (bytes_of(body, 1)?, bytes_of(body, 2)?);
        let (api_version, kind) = (text_of(type_meta, 1)?, text_of(type_meta, 2)?);
        let message =
            TABLE
                .of_kind(&api_version, &kind)
                .ok_or_else(|| DecodeError::UnknownKind {
                    api_version: api_version.clone(),
                    kind: kind.clone(),
                })?;
        let mut out = Map::new();
        out.insert("apiVersion".to_owned(), api_version.into());
        out.insert("kind".to_owned(), kind.into());
        self.read_into(message, raw, depth, &mut out)?;
        Ok(Value::Object(out))
    }

    fn message(
        &mut self,
        message: &Message,
        body: &[u8],
        depth: usize,
    ) -> Result<Value, DecodeError> {
        let mut out = Map::new();
        self.read_into(message, body, depth, &mut out)?;
        Ok(match message.fields.first() {
            Some(only) if only.name == Name::Message => out.shift_remove("").unwrap_or(Value::Null),
            _ => Value::Object(out),
        })
    }

    fn read_into(
        &mut self,
        message: &Message,
        body: &[u8],
        depth: usize,
        out: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        if depth > MAX_DEPTH {
            return Err(DecodeError::TooDeep);
        }
        let mut found: Vec<Option<Value>> = vec![None; message.fields.len()];
        for field in fields(body) {
            let (number, wire) = field.ok_or(DecodeError::Malformed)?;
            let at = message.fields.iter().position(|one| one.number == number);
            let Some((field, slot)) =
                at.and_then(|at| message.fields.get(at).zip(found.get_mut(at)))
            else {
                continue;
            };
            self.add(field, wire, depth, slot)?;
        }
        for (field, value) in message.fields.iter().zip(found) {
            let value = match value {
                Some(value) => value,
                None => self.absent(field, depth)?,
            };
            if field.name == Name::Parent {
                if let Value::Object(inner) = value {
                    out.extend(inner);
                }
                continue;
            }
            let kept = match field.presence {
                Presence::Always => true,
                Presence::Pointer => !value.is_null(),
                Presence::Omit => !is_empty(&value, field),
            };
            if kept {
                let name = match field.name {
                    Name::Own(name) => name,
                    Name::Parent | Name::Message => "",
                };
                out.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    /// Adds one occurrence of a field to its value.
    fn add(
        &mut self,
        field: &Field,
        wire: Wire<'_>,
        depth: usize,
        slot: &mut Option<Value>,
    ) -> Result<(), DecodeError> {
        match field.count {
            Count::One => *slot = Some(self.value(field.ty, wire, depth)?),
            Count::List => {
                let item = self.value(field.ty, wire, depth)?;
                match slot {
                    Some(Value::Array(items)) => items.push(item),
                    _ => *slot = Some(Value::Array(vec![item])),
                }
            }
            Count::Map => {
                let Wire::Bytes(entry) = wire else {
                    return Err(DecodeError::Malformed);
                };
                let key = text_of(entry, 1)?;
                let value = match fields(entry).flatten().filter(|(n, _)| *n == 2).last() {
                    Some((_, wire)) => self.value(field.ty, wire, depth)?,
                    None => self.value(field.ty, nothing(field.ty), depth)?,
                };
                match slot {
                    Some(Value::Object(map)) => drop(map.insert(key, value)),
                    _ => *slot = Some(Value::Object(Map::from_iter([(key, value)]))),
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, ty: Type, wire: Wire<'_>, depth: usize) -> Result<Value, DecodeError> {
        self.left = self.left.checked_sub(1).ok_or(DecodeError::TooLarge)?;
        let schema =
            |this: &mut Self, body: &[u8]| this.message(TABLE.message(SCHEMA), body, depth + 1);
        Ok(match (ty, wire) {
            (Type::Int, Wire::Number(number)) => number.cast_signed().into(),
            (Type::Bool, Wire::Number(number)) => (number != 0).into(),
            (Type::Double, Wire::Double(number)) => number.into(),
            (Type::Message(name), Wire::Bytes(body)) => {
                self.message(TABLE.message(name), body, depth + 1)?
            }
            (Type::Json, Wire::Bytes(body)) => {
                let raw = bytes_of(body, 1)?;
                if raw.starts_with(PREFIX) {
                    self.body(raw, depth + 1)?
                } else {
                    scalars::json(raw).ok_or(DecodeError::Malformed)?
                }
            }
            (Type::SchemaOrBool, Wire::Bytes(body)) => match part(body, 2)? {
                Some(Wire::Bytes(inner)) => schema(self, inner)?,
                _ => matches!(part(body, 1)?, Some(Wire::Number(1..))).into(),
            },
            (Type::SchemaOrList, Wire::Bytes(body)) => match part(body, 1)? {
                Some(Wire::Bytes(inner)) => schema(self, inner)?,
                _ => parts(body, 2)
                    .map(|inner| schema(self, inner?))
                    .collect::<Result<Vec<_>, _>>()?
                    .into(),
            },
            (Type::SchemaOrTexts, Wire::Bytes(body)) => match part(body, 1)? {
                Some(Wire::Bytes(inner)) => schema(self, inner)?,
                _ => parts(body, 2)
                    .map(|inner| text(inner?))
                    .collect::<Result<Vec<_>, _>>()?
                    .into(),
            },
            (ty, Wire::Bytes(body)) => scalars::read(ty, body).ok_or(DecodeError::Malformed)?,
            _ => return Err(DecodeError::Malformed),
        })
    }

    /// The value of a field that the body does not have.
    fn absent(&mut self, field: &Field, depth: usize) -> Result<Value, DecodeError> {
        let is_struct = matches!(field.ty, Type::Message(_)) && field.count == Count::One;
        match field.presence {
            Presence::Pointer => Ok(Value::Null),
            _ if is_struct => self.value(field.ty, Wire::Bytes(&[]), depth),
            Presence::Always if field.count == Count::One => {
                self.value(field.ty, nothing(field.ty), depth)
            }
            _ => Ok(Value::Null),
        }
    }
}

/// The empty value of a type on the wire.
fn nothing(ty: Type) -> Wire<'static> {
    match ty {
        Type::Int | Type::Bool => Wire::Number(0),
        Type::Double => Wire::Double(0.0),
        _ => Wire::Bytes(&[]),
    }
}

/// Whether a Go client omits the value; it never omits an object that is not a map.
fn is_empty(value: &Value, field: &Field) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && field.count == Count::Map,
    }
}

/// The last occurrence of a field.
fn part(body: &[u8], number: u64) -> Result<Option<Wire<'_>>, DecodeError> {
    let mut last = None;
    for field in fields(body) {
        let (found, wire) = field.ok_or(DecodeError::Malformed)?;
        if found == number {
            last = Some(wire);
        }
    }
    Ok(last)
}

fn parts(body: &[u8], number: u64) -> impl Iterator<Item = Result<&[u8], DecodeError>> {
    fields(body).filter_map(move |field| match field {
        None => Some(Err(DecodeError::Malformed)),
        Some((found, Wire::Bytes(bytes))) if found == number => Some(Ok(bytes)),
        Some(_) => None,
    })
}

fn bytes_of(body: &[u8], number: u64) -> Result<&[u8], DecodeError> {
    match part(body, number)? {
        Some(Wire::Bytes(bytes)) => Ok(bytes),
        None => Ok(&[]),
        Some(_) => Err(DecodeError::Malformed),
    }
}

fn text_of(body: &[u8], number: u64) -> Result<String, DecodeError> {
    text(bytes_of(body, number)?)
}

fn text(bytes: &[u8]) -> Result<String, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Malformed)?;
    Ok(text.to_owned())
}
