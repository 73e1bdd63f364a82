//! One step of the path of a field.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// One step of a path. The derived order is the serialized order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathElement {
    /// `f:name`
    Field(String),
    /// `k:{"name":"a"}`: an item of a keyed list; the JSON has sorted keys.
    Key(String),
    /// `v:"a"`: an item of a set, as JSON.
    Value(String),
    /// `i:0`
    Index(usize),
}

impl PathElement {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "v" => Some(Self::Value(
                serde_json::from_str::<Value>(rest).ok()?.to_string(),
            )),
            "i" => Some(Self::Index(rest.parse().ok()?)),
            "k" => {
                let fields: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
                Some(Self::key(fields))
            }
            _ => None,
        }
    }

    pub(super) fn key(fields: BTreeMap<String, Value>) -> Self {
        Self::Key(Value::Object(fields.into_iter().collect()).to_string())
    }

    pub(super) fn wire(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(json) => format!("k:{json}"),
            Self::Value(json) => format!("v:{json}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(json) => write!(f, "[={json}]"),
            Self::Index(index) => write!(f, "[{index}]"),
            Self::Key(json) => {
                let fields: BTreeMap<String, Value> =
                    serde_json::from_str(json).unwrap_or_default();
                let parts: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                write!(f, "[{}]", parts.join(","))
            }
        }
    }
}
