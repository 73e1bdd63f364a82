//! The type of a field, as written in the tables.

use anyhow::{Context as _, Result, bail};

/// A type of another row, in the same group and version unless qualified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reference {
    pub(super) group_version: Option<String>,
    pub(super) name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    Object,
    Reference(Reference),
    /// A named scalar, whose values may be listed.
    Named(Reference, Box<Shape>),
    Text,
    Time,
    Bytes,
    Bool,
    Integer(Width),
    Float(&'static str),
    Quantity,
    IntOrString,
    List(Box<Shape>),
    Map(Box<Shape>),
    /// An object with unknown members.
    Raw,
    Any,
}

/// How many bits an integer has on the wire, and whether one is for the sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    Int,
    Int32,
    Int64,
    Uint,
    Uint8,
    Uint32,
    Uint64,
}

impl Width {
    /// What `schemars` may call it for a Rust type of this width.
    pub(super) fn formats_of_types(self) -> &'static [&'static str] {
        match self {
            Self::Int => &["int64", "int"],
            Self::Int32 => &["int32"],
            Self::Int64 => &["int64"],
            Self::Uint => &["uint64", "uint"],
            Self::Uint8 => &["uint8"],
            Self::Uint32 => &["uint32"],
            Self::Uint64 => &["uint64"],
        }
    }

    /// What a definition may call it. Formats for unsigned numbers are not part of the standard, so
    /// any that covers them will do; the empty string is not a format.
    pub(super) fn formats_of_definitions(self) -> &'static [&'static str] {
        match self {
            Self::Int32 => &["int32"],
            Self::Int64 => &["int64"],
            Self::Uint8 | Self::Uint32 => &["int32", "int64", ""],
            Self::Int | Self::Uint | Self::Uint64 => &["int64", ""],
        }
    }
}

/// Reads the column of the JSON type.
pub(super) fn parse(text: &str) -> Result<Shape> {
    for (start, make) in [
        ("array<", Shape::List as fn(Box<Shape>) -> Shape),
        ("map<", Shape::Map),
    ] {
        let Some(rest) = text.strip_prefix(start) else {
            continue;
        };
        let (inner, after) = rest.rsplit_once('>').context("a closing bracket")?;
        let inner = match (start, inner.split_once(',')) {
            ("map<", Some((_, value))) => value,
            ("map<", None) => bail!("{text:?}: a map has a key and a value"),
            _ => inner,
        };
        return Ok(make(Box::new(parse(&format!("{inner}{after}"))?)));
    }
    if let Some(rest) = text.strip_prefix("alias:") {
        let (name, base) = rest.split_once('=').context("an alias is of something")?;
        return Ok(Shape::Named(reference(name), Box::new(parse(base)?)));
    }
    if let Some(rest) = text.strip_prefix("ref:") {
        return Ok(Shape::Reference(reference(rest)));
    }
    Ok(match text {
        "object" => Shape::Object,
        "string" | "string(UID)" | "Duration(string)" => Shape::Text,
        "Time(RFC3339)" => Shape::Time,
        "base64-bytes" => Shape::Bytes,
        "bool" => Shape::Bool,
        "int" => Shape::Integer(Width::Int),
        "int32" => Shape::Integer(Width::Int32),
        "int64" => Shape::Integer(Width::Int64),
        "uint" => Shape::Integer(Width::Uint),
        "uint8" => Shape::Integer(Width::Uint8),
        "uint32" => Shape::Integer(Width::Uint32),
        "uint64" => Shape::Integer(Width::Uint64),
        "float32" => Shape::Float("float"),
        "float64" => Shape::Float("double"),
        "Quantity" => Shape::Quantity,
        "IntOrString" => Shape::IntOrString,
        "RawExtension(object)" => Shape::Raw,
        "any" => Shape::Any,
        other => bail!("{other:?} is not a JSON type that this reads"),
    })
}

fn reference(text: &str) -> Reference {
    let (group_version, name) = match text.rsplit_once('.') {
        Some((group_version, name)) if group_version.contains('/') => {
            (Some(group_version.to_owned()), name)
        }
        _ => (None, text),
    };
    Reference {
        group_version,
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read() {
        let full = |group_version: Option<&str>, name: &str| Reference {
            group_version: group_version.map(str::to_owned),
            name: name.to_owned(),
        };
        let reference = |group_version, name| Shape::Reference(full(group_version, name));
        let named = || Box::new(Shape::Named(full(None, "Mode"), Box::new(Shape::Text)));
        for (text, expected) in [
            ("string", Shape::Text),
            (
                "array<int>",
                Shape::List(Box::new(Shape::Integer(Width::Int))),
            ),
            ("map<string(UID),string>", Shape::Map(Box::new(Shape::Text))),
            ("alias:Mode=string", *named()),
            ("array<alias:Mode>=string", Shape::List(named())),
            ("map<string,alias:Mode>=string", Shape::Map(named())),
            ("ref:CPU", reference(None, "CPU")),
            (
                "ref:core/v1.Affinity",
                reference(Some("core/v1"), "Affinity"),
            ),
            (
                "ref:a.example.com/v1.X",
                reference(Some("a.example.com/v1"), "X"),
            ),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
        for text in ["array<string", "map<string>", "alias:Mode", "text"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
