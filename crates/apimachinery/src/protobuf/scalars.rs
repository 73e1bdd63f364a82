//! Types whose JSON differs from their message.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::Value;

use super::table::Type;
use super::wire::{Wire, Writer, fields};
use crate::meta;

/// The message of a schema of custom resources.
pub(super) const SCHEMA: &str = "apiextensions/v1.JSONSchemaProps";

/// The JSON of a value on the wire.
pub(super) fn read(ty: Type, body: &[u8]) -> Option<Value> {
    Some(match ty {
        Type::Text => text(body)?.into(),
        Type::Bytes => STANDARD.encode(body).into(),
        Type::Time | Type::MicroTime => time(ty, body)?,
        Type::Quantity => match bytes(body, 1)? {
            b"" => "0".into(),
            amount => text(amount)?.into(),
        },
        Type::IntOrString => match number(body, 1)? {
            0 => number(body, 2)?.into(),
            _ => text(bytes(body, 3)?)?.into(),
        },
        _ => return None,
    })
}

/// JSON inside of a message; nothing is null.
pub(super) fn json(raw: &[u8]) -> Option<Value> {
    if raw.is_empty() {
        return Some(Value::Null);
    }
    serde_json::from_slice(raw).ok()
}

/// Seconds and nanoseconds; no time at all is null.
fn time(ty: Type, body: &[u8]) -> Option<Value> {
    let (seconds, nanoseconds) = (number(body, 1)?, number(body, 2)?);
    if seconds == 0 && nanoseconds == 0 {
        return Some(Value::Null);
    }
    let time = Timestamp::new(seconds, i32::try_from(nanoseconds).ok()?).ok()?;
    Some(match ty {
        Type::MicroTime => time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string().into(),
        _ => meta::format_time(time).into(),
    })
}

/// Writes a value; None if it is not of the type.
pub(super) fn write(ty: Type, value: &Value, number: u64, out: &mut Writer) -> Option<()> {
    match ty {
        Type::Text => out.bytes(number, value.as_str()?.as_bytes()),
        Type::Bytes => out.bytes(number, &STANDARD.decode(value.as_str()?).ok()?),
        Type::Int => out.number(number, value.as_i64()?.cast_unsigned()),
        Type::Bool => out.number(number, u64::from(value.as_bool()?)),
        Type::Double => out.double(number, value.as_f64()?),
        Type::Time | Type::MicroTime => {
            let time: Timestamp = value.as_str()?.parse().ok()?;
            let mut inner = Writer::default();
            inner.number(1, time.as_second().cast_unsigned());
            inner.number(2, i64::from(time.subsec_nanosecond()).cast_unsigned());
            out.message(number, &inner);
        }
        Type::Quantity => {
            let mut inner = Writer::default();
            match value {
                Value::String(text) => inner.bytes(1, text.as_bytes()),
                Value::Number(amount) => inner.bytes(1, amount.to_string().as_bytes()),
                _ => return None,
            }
            out.message(number, &inner);
        }
        Type::IntOrString => {
            let mut inner = Writer::default();
            if let Some(text) = value.as_str() {
                inner.number(1, 1);
                inner.bytes(3, text.as_bytes());
            } else {
                inner.number(1, 0);
                inner.number(2, value.as_i64()?.cast_unsigned());
            }
            out.message(number, &inner);
        }
        Type::Json => {
            let mut inner = Writer::default();
            inner.bytes(1, value.to_string().as_bytes());
            out.message(number, &inner);
        }
        _ => return None,
    }
    Some(())
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn bytes(body: &[u8], wanted: u64) -> Option<&[u8]> {
    let mut last: &[u8] = &[];
    for field in fields(body) {
        match field? {
            (found, Wire::Bytes(bytes)) if found == wanted => last = bytes,
            _ => {}
        }
    }
    Some(last)
}

fn number(body: &[u8], wanted: u64) -> Option<i64> {
    let mut last = 0;
    for field in fields(body) {
        match field? {
            (found, Wire::Number(number)) if found == wanted => last = number,
            _ => {}
        }
    }
    Some(last.cast_signed())
}
