//! The tables of facts, read.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};

use super::shape::{self, Reference, Shape};

/// Group with version, and name of a type.
pub(super) type TypeName = (String, String);

/// One field of one type.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) group_version: String,
    pub(super) type_name: String,
    pub(super) field: String,
    pub(super) shape: Shape,
    /// `None` where the question makes no sense.
    pub(super) required: Option<bool>,
    pub(super) values: Vec<String>,
    pub(super) marks: Vec<String>,
}

impl Row {
    pub(super) fn group(&self) -> &str {
        self.group_version.split('/').next().unwrap_or_default()
    }

    pub(super) fn type_key(&self) -> TypeName {
        (self.group_version.clone(), self.type_name.clone())
    }

    pub(super) fn is_alias(&self) -> bool {
        self.field == "(alias)"
    }

    /// Whether both rows describe their field identically.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        self.shape == other.shape
            && self.required == other.required
            && self.values == other.values
            && self.marks == other.marks
    }
}

/// One definition.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) versions: Vec<Version>,
    pub(super) kind: String,
    pub(super) list_kind: String,
    pub(super) plural: String,
    pub(super) singular: String,
    pub(super) short_names: Vec<String>,
    pub(super) categories: Vec<String>,
    pub(super) scope: String,
    /// `None`, or what converts.
    pub(super) conversion: String,
    pub(super) has_status: bool,
    /// Paths of spec, status and selector.
    pub(super) scale: Option<[String; 3]>,
    /// Name, path, type, priority.
    pub(super) columns: Vec<String>,
    pub(super) label: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) name: String,
    pub(super) is_stored: bool,
    pub(super) is_deprecated: bool,
}

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) rows: Vec<Row>,
    pub(super) kinds: Vec<Definition>,
    types: BTreeMap<TypeName, Vec<usize>>,
}

impl Facts {
    pub(super) fn parse(fields: &str, kinds: &str) -> Result<Self> {
        let rows: Vec<Row> = facts(fields)
            .map(|line| row(line).with_context(|| format!("fields, line {line:?}")))
            .collect::<Result<_>>()?;
        let kinds = facts(kinds)
            .map(|line| kind(line).with_context(|| format!("kinds, line {line:?}")))
            .collect::<Result<_>>()?;
        let mut types: BTreeMap<TypeName, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            types.entry(row.type_key()).or_default().push(index);
        }
        Ok(Self { rows, kinds, types })
    }

    /// The rows of a type.
    pub(super) fn rows_of(&self, name: &TypeName) -> &[usize] {
        self.types.get(name).map_or(&[], Vec::as_slice)
    }

    pub(super) fn types(&self) -> impl Iterator<Item = (&TypeName, &[usize])> {
        self.types
            .iter()
            .map(|(name, rows)| (name, rows.as_slice()))
    }

    pub(super) fn row(&self, index: usize) -> Option<&Row> {
        self.rows.get(index)
    }

    /// The row of a named scalar.
    pub(super) fn alias(&self, name: &TypeName) -> Option<(usize, &Row)> {
        let index = *self.rows_of(name).first()?;
        let row = self.row(index)?;
        row.is_alias().then_some((index, row))
    }

    /// Kinds with `metadata` of their own, whether a definition exists or not.
    pub(super) fn is_kind(&self, name: &TypeName) -> bool {
        let is_metadata = |row: &Row| {
            row.field == "metadata"
                && matches!(&row.shape, Shape::Reference(Reference { name, .. }) if name == "ObjectMeta")
        };
        let rows = self
            .rows_of(name)
            .iter()
            .filter_map(|index| self.row(*index));
        let rows: Vec<&Row> = rows.collect();
        rows.iter().any(|row| is_metadata(row))
            && rows.iter().any(|row| row.field == "(inline)" && row.required == Some(false)
                && matches!(&row.shape, Shape::Reference(Reference { name, .. }) if name == "TypeMeta"))
    }

    /// The kind of whose objects this type is the list.
    pub(super) fn listed_kind(&self, name: &TypeName) -> Option<TypeName> {
        let listed = (name.0.clone(), name.1.strip_suffix("List")?.to_owned());
        self.is_kind(&listed).then_some(listed)
    }

    /// Types that a definition shows: what its kinds consist of.
    pub(super) fn shown_by_definitions(&self) -> BTreeSet<TypeName> {
        let mut seen = BTreeSet::new();
        for kind in &self.kinds {
            for version in &kind.versions {
                let group_version = format!("{}/{}", kind.group, version.name);
                self.reach(&(group_version, kind.kind.clone()), &mut seen);
            }
        }
        seen
    }

    fn reach(&self, name: &TypeName, seen: &mut BTreeSet<TypeName>) {
        if self.rows_of(name).is_empty() || !seen.insert(name.clone()) {
            return;
        }
        for row in self
            .rows_of(name)
            .iter()
            .filter_map(|index| self.row(*index))
        {
            if let Some(next) = named_in(&row.shape, &name.0) {
                self.reach(&next, seen);
            }
        }
    }
}

/// The other type that a shape names.
pub(super) fn named_in(shape: &Shape, here: &str) -> Option<TypeName> {
    match shape {
        Shape::Reference(reference) | Shape::Named(reference, _) => Some(resolve(reference, here)),
        Shape::List(inner) | Shape::Map(inner) => named_in(inner, here),
        _ => None,
    }
}

/// The full name of what a reference means in a type of that group and version.
pub(super) fn resolve(reference: &Reference, here: &str) -> TypeName {
    let group_version = reference.group_version.as_deref().unwrap_or(here);
    (group_version.to_owned(), reference.name.clone())
}

fn facts(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn row(line: &str) -> Result<Row> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [
        group_version,
        type_name,
        field,
        json,
        required,
        values,
        marks,
    ] = columns[..]
    else {
        bail!("{} columns instead of 7", columns.len());
    };
    Ok(Row {
        group_version: group_version.to_owned(),
        type_name: type_name.to_owned(),
        field: field.to_owned(),
        shape: shape::parse(json)?,
        required: match required {
            "yes" => Some(true),
            "no" => Some(false),
            "-" => None,
            other => bail!("required is yes, no or -, not {other:?}"),
        },
        values: list(values, "|"),
        marks: list(marks, "; "),
    })
}

fn kind(line: &str) -> Result<Definition> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [
        name,
        group,
        versions,
        kind,
        list_kind,
        plural,
        singular,
        short_names,
        categories,
        scope,
        conversion,
        subresources,
        printed,
        label,
    ] = columns[..]
    else {
        bail!("{} columns instead of 14", columns.len());
    };
    Ok(Definition {
        name: name.to_owned(),
        group: group.to_owned(),
        versions: list(versions, ", ")
            .iter()
            .map(|text| version(text))
            .collect(),
        kind: kind.to_owned(),
        list_kind: list_kind.trim_end_matches("(default)").to_owned(),
        plural: plural.to_owned(),
        singular: singular.to_owned(),
        short_names: list(short_names, ","),
        categories: list(categories, ","),
        scope: scope.to_owned(),
        conversion: if conversion.starts_with("(unset") {
            "None".to_owned()
        } else {
            conversion.to_owned()
        },
        has_status: list(subresources, "; ").iter().any(|one| one == "status"),
        scale: scale(subresources),
        columns: if printed.starts_with("- (") {
            Vec::new()
        } else {
            list(printed, "; ")
        },
        label: label.to_owned(),
    })
}

/// Values of a column; a dash means none.
fn list(text: &str, between: &str) -> Vec<String> {
    if text.is_empty() || text == "-" {
        return Vec::new();
    }
    text.split(between).map(str::to_owned).collect()
}

/// `v1(storage,deprecated)`.
fn version(text: &str) -> Version {
    let (name, marks) = text.split_once('(').unwrap_or((text, ""));
    let marks: Vec<&str> = marks.trim_end_matches(')').split(',').collect();
    Version {
        name: name.to_owned(),
        is_stored: marks.contains(&"storage"),
        is_deprecated: marks.contains(&"deprecated"),
    }
}

/// `scale[spec=PATH status=PATH selector=PATH]`.
fn scale(subresources: &str) -> Option<[String; 3]> {
    let (_, inner) = subresources.split_once("scale[")?;
    let inner = inner.split(']').next()?;
    let path = |key: &str| {
        let found = inner.split(' ').find_map(|part| part.strip_prefix(key));
        found.unwrap_or_default().to_owned()
    };
    Some([path("spec="), path("status="), path("selector=")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_fact_is_refused_with_the_line() {
        for (fields, kinds) in [("a\tb", ""), ("", "a"), ("a/v1\tB\tc\ttext\tno\t\t", "")] {
            let error = Facts::parse(fields, kinds).unwrap_err();
            assert!(format!("{error:#}").contains("line"), "{error:#}");
        }
    }

    #[test]
    fn versions_and_scale_are_read() {
        assert_eq!(
            version("v1(storage,deprecated)"),
            Version {
                name: "v1".into(),
                is_stored: true,
                is_deprecated: true
            }
        );
        assert_eq!(version("v1").name, "v1");
        let paths = scale("status; scale[spec=.a status=.b selector=.c]").unwrap();
        assert_eq!(paths, [".a", ".b", ".c"]);
        assert_eq!(scale("status"), None);
    }
}
