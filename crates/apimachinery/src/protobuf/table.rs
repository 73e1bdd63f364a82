//! The messages in `fields.txt`.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
}

/// A field of a message.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u64,
    pub(super) name: Name,
    pub(super) ty: Type,
    pub(super) count: Count,
    pub(super) presence: Presence,
}

/// The place of a field in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Own(&'static str),
    /// The fields of this message are among those of the parent.
    Parent,
    /// The value is the message itself, which is a list.
    Message,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    One,
    List,
    Map,
}

/// When the JSON of a Go client has the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It is set, even if to an empty value.
    Pointer,
    /// It is not empty; parts that are objects are always there.
    Omit,
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Bytes,
    Int,
    Bool,
    Double,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    Json,
    SchemaOrList,
    SchemaOrBool,
    SchemaOrTexts,
    Message(&'static str),
}

/// All messages.
#[derive(Debug)]
pub(super) struct Table {
    messages: HashMap<&'static str, Message>,
    /// Packages by the apiVersion of their kinds.
    packages: HashMap<&'static str, &'static str>,
}

/// Kinds of this package may be sent in every group and version: options, `Status`.
const META: &str = "meta/v1";

pub(super) static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::read(include_str!("fields.txt")));

/// Whether objects of the kind can be protobuf.
pub fn has_message(api_version: &str, kind: &str) -> bool {
    TABLE.of_kind(api_version, kind).is_some()
}

impl Table {
    pub(super) fn message(&self, name: &str) -> &Message {
        static NOTHING: Message = Message { fields: Vec::new() };
        self.messages.get(name).unwrap_or(&NOTHING)
    }

    /// The message of a kind, or of a kind of all groups.
    pub(super) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        let own = self.packages.get(api_version);
        own.into_iter()
            .chain([&META])
            .find_map(|package| self.messages.get(format!("{package}.{kind}").as_str()))
    }

    fn read(text: &'static str) -> Self {
        let mut out = Self {
            messages: HashMap::new(),
            packages: HashMap::new(),
        };
        let mut current = "";
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&'static str> = line.split_ascii_whitespace().collect();
            match *columns.as_slice() {
                ["package", package, api_version] => {
                    out.packages.insert(api_version, package);
                }
                ["message", name] => {
                    current = name;
                    out.messages.insert(name, Message { fields: Vec::new() });
                }
                [number, name, ty, presence] => {
                    if let (Some(message), Some(field)) = (
                        out.messages.get_mut(current),
                        Field::read(number, name, ty, presence),
                    ) {
                        message.fields.push(field);
                    }
                }
                _ => {}
            }
        }
        out
    }

    /// The names of all messages, and of those that fields refer to.
    #[cfg(test)]
    pub(super) fn names(&self) -> (Vec<&str>, Vec<&str>) {
        let fields = self.messages.values().flat_map(|message| &message.fields);
        let referred = fields.filter_map(|field| match field.ty {
            Type::Message(name) => Some(name),
            _ => None,
        });
        (self.messages.keys().copied().collect(), referred.collect())
    }
}

impl Field {
    fn read(number: &str, name: &'static str, ty: &'static str, presence: &str) -> Option<Self> {
        let (count, ty) = match (ty.strip_prefix("[]"), ty.strip_prefix("{}")) {
            (Some(item), _) => (Count::List, item),
            (_, Some(item)) => (Count::Map, item),
            _ => (Count::One, ty),
        };
        Some(Self {
            number: number.parse().ok()?,
            name: match name {
                "+" => Name::Parent,
                "=" => Name::Message,
                name => Name::Own(name),
            },
            ty: Type::read(ty),
            count,
            presence: match presence {
                "pointer" => Presence::Pointer,
                "omit" => Presence::Omit,
                _ => Presence::Always,
            },
        })
    }
}

impl Type {
    fn read(name: &'static str) -> Self {
        match name {
            "string" => Self::Text,
            "bytes" => Self::Bytes,
            "int" => Self::Int,
            "bool" => Self::Bool,
            "double" => Self::Double,
            "time" => Self::Time,
            "microtime" => Self::MicroTime,
            "quantity" => Self::Quantity,
            "intorstring" => Self::IntOrString,
            "json" => Self::Json,
            "schemaorarray" => Self::SchemaOrList,
            "schemaorbool" => Self::SchemaOrBool,
            "schemaorstrings" => Self::SchemaOrTexts,
            name => Self::Message(name),
        }
    }
}
