//! What a data source stands for: a claim or a volume snapshot, named by itself or by one other data source of
//! its namespace.

use std::fmt;

use kubevirt_api::data_source::{DataSourceSource, DataSourceSpec};
use kubevirt_api::data_volume::{DataVolumeSourcePvc, DataVolumeSourceSnapshot};
use reconcile::Key;

/// The data behind a data source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Claim(Key),
    Snapshot(Key),
}

/// Why a data source stands for nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unresolved {
    #[error("no source is set: give pvc, snapshot or dataSource")]
    NoSource,
    #[error("more than one source is set: keep one of pvc, snapshot and dataSource")]
    SeveralSources,
    #[error("it refers to itself")]
    SelfReference,
    #[error("it refers to data source {0}, which does not exist")]
    NotFound(Key),
    #[error("it refers to data source {0}, which refers to another one: refer to that one")]
    TooDeep(Key),
    #[error("it refers to data source {0} of another namespace: name the source itself")]
    OtherNamespace(Key),
}

impl Target {
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Claim(key) | Self::Snapshot(key) => key,
        }
    }

    /// As a source in the API.
    pub(crate) fn source(&self) -> DataSourceSource {
        let Key { namespace, name } = self.key().clone();
        match self {
            Self::Claim(_) => DataSourceSource {
                pvc: Some(DataVolumeSourcePvc { namespace, name }),
                ..DataSourceSource::default()
            },
            Self::Snapshot(_) => DataSourceSource {
                snapshot: Some(DataVolumeSourceSnapshot { namespace, name }),
                ..DataSourceSource::default()
            },
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(key) => write!(f, "persistentvolumeclaim {key}"),
            Self::Snapshot(key) => write!(f, "volumesnapshot {key}"),
        }
    }
}

/// What one data source names.
enum Link {
    Target(Target),
    Other(Key),
}

/// What the data source `own` stands for. `find` returns the spec of another one.
pub(crate) fn resolve(
    own: &Key,
    spec: &DataSourceSpec,
    find: impl Fn(&Key) -> Option<DataSourceSpec>,
) -> Result<Target, Unresolved> {
    let other = match link(own, &spec.source)? {
        Link::Target(target) => return Ok(target),
        Link::Other(other) => other,
    };
    if other == *own {
        return Err(Unresolved::SelfReference);
    }
    if other.namespace != own.namespace {
        return Err(Unresolved::OtherNamespace(other));
    }
    let Some(spec) = find(&other) else {
        return Err(Unresolved::NotFound(other));
    };
    match link(&other, &spec.source)? {
        Link::Target(target) => Ok(target),
        Link::Other(_) => Err(Unresolved::TooDeep(other)),
    }
}

fn link(own: &Key, source: &DataSourceSource) -> Result<Link, Unresolved> {
    let key = |namespace: &str, name: &str| {
        let given = Some(namespace).filter(|it| !it.is_empty());
        Key::new(given.unwrap_or(&own.namespace), name)
    };
    let claim = source.pvc.as_ref();
    let claim = claim.map(|it| Link::Target(Target::Claim(key(&it.namespace, &it.name))));
    let snapshot = source.snapshot.as_ref();
    let snapshot = snapshot.map(|it| Link::Target(Target::Snapshot(key(&it.namespace, &it.name))));
    let other = source.data_source.as_ref();
    let other = other.map(|it| Link::Other(key(&it.namespace, &it.name)));
    let mut given = [claim, snapshot, other].into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(link), None) => Ok(link),
        (None, _) => Err(Unresolved::NoSource),
        (Some(_), Some(_)) => Err(Unresolved::SeveralSources),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn resolved(source: &Value) -> Result<Target, Unresolved> {
        let own = Key::new("n", "own");
        let find = |key: &Key| {
            let source = match (key.namespace.as_str(), key.name.as_str()) {
                ("n", "claim") => json!({"pvc": {"namespace": "", "name": "a"}}),
                ("n", "snapshot") => json!({"snapshot": {"namespace": "n", "name": "b"}}),
                ("n", "pointer") => json!({"dataSource": {"namespace": "n", "name": "claim"}}),
                ("n", "empty") => json!({}),
                _ => return None,
            };
            Some(serde_json::from_value(json!({"source": source})).unwrap())
        };
        let spec = serde_json::from_value(json!({"source": source})).unwrap();
        resolve(&own, &spec, find)
    }

    #[test]
    fn source_is_found_through_one_other_data_source() {
        let other = |name: &str| json!({"dataSource": {"namespace": "n", "name": name}});
        let at = |name: &str| Key::new("n", name);
        let claim = Ok(Target::Claim(at("a")));
        let snapshot = Ok(Target::Snapshot(at("b")));
        for (source, expected) in [
            (
                json!({"pvc": {"namespace": "n", "name": "a"}}),
                claim.clone(),
            ),
            (json!({"pvc": {"name": "a"}}), claim.clone()),
            (
                json!({"pvc": {"namespace": "m", "name": "a"}}),
                Ok(Target::Claim(Key::new("m", "a"))),
            ),
            (json!({"snapshot": {"name": "b"}}), snapshot.clone()),
            (other("claim"), claim.clone()),
            (json!({"dataSource": {"name": "claim"}}), claim),
            (other("snapshot"), snapshot),
            (json!({}), Err(Unresolved::NoSource)),
            (other("empty"), Err(Unresolved::NoSource)),
            (
                json!({"pvc": {"name": "a"}, "snapshot": {"name": "b"}}),
                Err(Unresolved::SeveralSources),
            ),
            (other("own"), Err(Unresolved::SelfReference)),
            (other("gone"), Err(Unresolved::NotFound(at("gone")))),
            (other("pointer"), Err(Unresolved::TooDeep(at("pointer")))),
            (
                json!({"dataSource": {"namespace": "m", "name": "claim"}}),
                Err(Unresolved::OtherNamespace(Key::new("m", "claim"))),
            ),
        ] {
            assert_eq!(resolved(&source), expected, "{source}");
        }
    }

    #[test]
    fn target_is_written_as_the_source_that_names_it() {
        for target in [
            Target::Claim(Key::new("n", "a")),
            Target::Snapshot(Key::new("n", "b")),
        ] {
            let source = json!(target.source());
            assert_eq!(resolved(&source), Ok(target));
        }
    }
}
