//! The list of `KubeVirt`'s subresources.

use std::collections::BTreeSet;

/// One subresource of `KubeVirt`.
#[derive(Debug)]
pub(crate) struct Fact {
    pub(crate) method: &'static str,
    /// The plural of the object, `namespace` or `cluster`.
    pub(crate) object: &'static str,
    pub(crate) name: &'static str,
    /// The verb of the right, `-` without one.
    pub(crate) right: &'static str,
    /// The roles that have the right.
    pub(crate) roles: Vec<&'static str>,
    /// The type of the body.
    pub(crate) body: Option<&'static str>,
    /// The parameters of the query.
    pub(crate) query: Vec<&'static str>,
    pub(crate) codes: BTreeSet<u16>,
}

impl Fact {
    /// The resource in discovery and in roles.
    pub(crate) fn resource(&self) -> String {
        match self.object {
            "namespace" | "cluster" => self.name.to_owned(),
            object => format!("{object}/{}", self.name),
        }
    }
}

pub(crate) fn all() -> Vec<Fact> {
    let text = include_str!("../../facts/subresources.tsv");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(read).collect()
}

fn read(line: &'static str) -> Fact {
    let mut columns = line.split('\t');
    let mut next = || columns.next().expect("eight columns");
    Fact {
        method: next(),
        object: next(),
        name: next(),
        right: next(),
        roles: next().split(',').collect(),
        body: Some(next()).filter(|body| *body != "-"),
        query: next().split(',').filter(|name| *name != "-").collect(),
        codes: next()
            .split(',')
            .map(|code| code.parse().expect("is a code"))
            .collect(),
    }
}
