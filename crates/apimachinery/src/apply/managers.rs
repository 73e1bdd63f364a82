//! The list of field managers of one object.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::compare::Comparison;
use super::field_set::FieldSet;
use super::path::PathElement;
use super::writer::{Writer, reset_set};
use crate::meta;
use crate::violation::quoted;

/// More updating managers than this are folded into one.
const MAX_UPDATERS: usize = 10;

/// The manager that they are folded into.
const ANCIENT: &str = "ancient-changes";

/// How a manager obtained its fields. The derived order is the serialized order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// The identity of a manager's entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    operation: Operation,
    manager: String,
    /// An applier has one entry for all versions: its version is kept beside the fields.
    api_version: Option<String>,
    subresource: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Owned {
    fields: FieldSet,
    api_version: String,
    /// The serialized form, so that an untouched entry is not rewritten.
    time: String,
}

/// Whether a write changed values of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fields {
    Changed,
    Unchanged,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Managers {
    entries: BTreeMap<Entry, Owned>,
}

impl Entry {
    pub(super) fn new(writer: &Writer<'_>, operation: Operation) -> Self {
        Self::from_parts(
            operation,
            writer.manager,
            writer.api_version,
            writer.subresource,
        )
    }

    fn from_parts(
        operation: Operation,
        manager: &str,
        api_version: &str,
        subresource: &str,
    ) -> Self {
        Self {
            operation,
            manager: manager.to_owned(),
            api_version: (operation == Operation::Update).then(|| api_version.to_owned()),
            subresource: subresource.to_owned(),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quoted(&self.manager))?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {}", quoted(&self.subresource))?;
        }
        match &self.api_version {
            Some(version) => write!(f, " using {version}"),
            None => Ok(()),
        }
    }
}

impl Managers {
    /// Parses `metadata.managedFields`; malformed entries are skipped.
    pub(super) fn read(object: &Value) -> Self {
        let list = object["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten();
        Self {
            entries: list.filter_map(read_entry).collect(),
        }
    }

    /// Writes the list into the object; an empty list removes the field.
    pub(super) fn write(&self, object: &mut Value) {
        let mut entries: Vec<(&Entry, &Owned)> = self.entries.iter().collect();
        entries.sort_by_key(|(entry, owned)| (entry.operation, owned.time.clone()));
        let list: Vec<Value> = entries
            .into_iter()
            .map(|(e, o)| write_entry(e, o))
            .collect();
        let value = if list.is_empty() {
            Value::Null
        } else {
            Value::Array(list)
        };
        meta::set(object, "managedFields", value);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets a manager's fields and returns its previous ones.
    pub(super) fn replace(&mut self, entry: &Entry, fields: FieldSet) -> Option<FieldSet> {
        let time = self
            .entries
            .get(entry)
            .map(|owned| owned.time.clone())
            .unwrap_or_default();
        let api_version = entry.api_version.clone().unwrap_or_default();
        let owned = Owned {
            fields,
            api_version,
            time,
        };
        self.entries
            .insert(entry.clone(), owned)
            .map(|old| old.fields)
    }

    /// All owned fields.
    pub(super) fn owned(&self) -> FieldSet {
        self.entries
            .values()
            .fold(FieldSet::default(), |all, owned| all.union(&owned.fields))
    }

    /// Takes changed and removed fields from all managers but the writer, and returns which manager
    /// lost which changed fields.
    pub(super) fn update(
        &mut self,
        old: &Value,
        new: &Value,
        by: &Entry,
        writer: &Writer<'_>,
    ) -> Vec<(Entry, FieldSet)> {
        let changes = Comparison::of(old, new, writer.ty).without(&reset_set(writer.reset));
        self.take(&changes, by)
    }

    fn take(&mut self, changes: &Comparison, by: &Entry) -> Vec<(Entry, FieldSet)> {
        let changed = changes.modified.union(&changes.added);
        let mut lost = Vec::new();
        for (entry, owned) in self.entries.iter_mut().filter(|(entry, _)| *entry != by) {
            let mine = owned.fields.intersection(&changed);
            owned.fields = owned.fields.difference(&mine).difference(&changes.removed);
            if !mine.is_empty() {
                lost.push((entry.clone(), mine));
            }
        }
        self.entries
            .retain(|entry, owned| entry == by || !owned.fields.is_empty());
        lost
    }

    /// Assigns the fields changed by an update to its writer.
    pub(super) fn give(
        &mut self,
        old: &Value,
        new: &Value,
        by: &Entry,
        writer: &Writer<'_>,
    ) -> Fields {
        let changes = Comparison::of(old, new, writer.ty).without(&reset_set(writer.reset));
        self.take(&changes, by);
        let had = self
            .entries
            .get(by)
            .map(|owned| owned.fields.clone())
            .unwrap_or_default();
        let has = had
            .difference(&changes.removed)
            .union(&changes.modified)
            .union(&changes.added);
        if has.is_empty() {
            self.entries.remove(by);
        } else {
            self.replace(by, has);
        }
        self.strip();
        self.fold_oldest(by);
        if changes.is_empty() {
            Fields::Unchanged
        } else {
            Fields::Changed
        }
    }

    /// Drops fields without ownership: names, versions and system fields.
    pub(super) fn strip(&mut self) {
        const IN_METADATA: [&str; 10] = [
            "name",
            "namespace",
            "creationTimestamp",
            "selfLink",
            "uid",
            "clusterName",
            "generation",
            "managedFields",
            "resourceVersion",
            "deletionTimestamp",
        ];
        let field = |name: &str| PathElement::Field(name.to_owned());
        let mut free = FieldSet::default();
        for name in ["apiVersion", "kind", "metadata"] {
            free.insert(&[field(name)]);
        }
        for name in IN_METADATA {
            free.insert(&[field("metadata"), field(name)]);
        }
        for owned in self.entries.values_mut() {
            owned.fields = owned.fields.difference(&free);
        }
        self.entries.retain(|_, owned| !owned.fields.is_empty());
    }

    /// Sets the time of an entry whose manager changed the object.
    pub(super) fn touch(&mut self, entry: &Entry, fields: Fields, now: Timestamp) {
        if let Some(owned) = self.entries.get_mut(entry)
            && fields == Fields::Changed
            // Scale entries carry no time.
            && entry.subresource != "scale"
        {
            owned.time = meta::format_time(now);
        }
    }

    /// Sets the version that an applier used.
    pub(super) fn set_version(&mut self, entry: &Entry, api_version: &str) {
        if let Some(owned) = self.entries.get_mut(entry) {
            api_version.clone_into(&mut owned.api_version);
        }
    }

    /// Keeps the list short: the oldest updaters become one.
    fn fold_oldest(&mut self, newest: &Entry) {
        let mut updaters: Vec<Entry> = self
            .entries
            .keys()
            .filter(|e| e.operation == Operation::Update && *e != newest && e.manager != ANCIENT)
            .cloned()
            .collect();
        updaters.sort_by_key(|entry| self.entries.get(entry).map(|owned| owned.time.clone()));
        let surplus = (updaters.len() + 1).saturating_sub(MAX_UPDATERS);
        for old in updaters.into_iter().take(surplus) {
            let Some(owned) = self.entries.remove(&old) else {
                continue;
            };
            let into = Entry {
                manager: ANCIENT.to_owned(),
                subresource: String::new(),
                ..old
            };
            let ancient = self.entries.entry(into).or_insert_with(|| Owned {
                fields: FieldSet::default(),
                ..owned.clone()
            });
            ancient.fields = ancient.fields.union(&owned.fields);
            ancient.time = owned.time;
        }
    }
}

fn read_entry(raw: &Value) -> Option<(Entry, Owned)> {
    let text = |key: &str| raw[key].as_str().unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let api_version = text("apiVersion");
    let entry = Entry::from_parts(operation, text("manager"), api_version, text("subresource"));
    let owned = Owned {
        fields: FieldSet::from_value(&raw["fieldsV1"])?,
        api_version: api_version.to_owned(),
        time: text("time").to_owned(),
    };
    Some((entry, owned))
}

fn write_entry(entry: &Entry, owned: &Owned) -> Value {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| drop(out.insert(key.to_owned(), value));
    let operation = match entry.operation {
        Operation::Apply => "Apply",
        Operation::Update => "Update",
    };
    put("manager", entry.manager.as_str().into());
    put("operation", operation.into());
    put("apiVersion", owned.api_version.as_str().into());
    if !owned.time.is_empty() {
        put("time", owned.time.as_str().into());
    }
    put("fieldsType", "FieldsV1".into());
    put("fieldsV1", owned.fields.to_value());
    if !entry.subresource.is_empty() {
        put("subresource", entry.subresource.as_str().into());
    }
    Value::Object(out)
}
