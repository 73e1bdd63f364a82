//! What a data volume copies: a claim or a volume snapshot, named by itself or by a data source.

use std::collections::BTreeSet;

use apimachinery::names::{is_label, is_subdomain};
use kube::{Api, Client};
use kubevirt_api::{
    data_source::{DataSource, DataSourceSource},
    data_volume::DataVolumeSpec,
};

const CLAIM: &str = "pvc";
const SNAPSHOT: &str = "snapshot";
/// A data source may refer to one other.
const MOST_SOURCES: usize = 2;

/// Data that exists already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::webhooks) struct Copied {
    kind: &'static str,
    namespace: String,
    name: String,
    /// Where it is, and where it was named.
    pub(in crate::webhooks) namespaces: BTreeSet<String>,
}

impl Copied {
    /// The annotation that virt-controller compares with what it would copy.
    pub(super) fn record(&self) -> String {
        format!("{}/{}/{}", self.kind, self.namespace, self.name)
    }
}

/// What a data volume in the namespace `own` copies. A data source that does not exist yet stands for nothing.
pub(in crate::webhooks) async fn find(
    client: &Client,
    own: &str,
    spec: &DataVolumeSpec,
) -> Result<Option<Copied>, kube::Error> {
    if let Some(source) = &spec.source {
        let claim = source.pvc.as_ref();
        let claim = claim.map(|it| (CLAIM, it.namespace.as_str(), it.name.as_str()));
        let snapshot = source.snapshot.as_ref();
        let snapshot = snapshot.map(|it| (SNAPSHOT, it.namespace.as_str(), it.name.as_str()));
        return Ok(claim
            .or(snapshot)
            .map(|target| copied(own, target, BTreeSet::new())));
    }
    let Some(reference) = spec.source_ref.as_ref() else {
        return Ok(None);
    };
    if !reference.kind.eq_ignore_ascii_case(DataSource::KIND) {
        return Ok(None);
    }
    let mut namespace = given(reference.namespace.as_deref(), own).to_owned();
    let mut name = reference.name.clone();
    let mut namespaces = BTreeSet::new();
    for _ in 0..MOST_SOURCES {
        namespaces.insert(namespace.clone());
        let Some(source) = data_source(client, &namespace, &name).await? else {
            return Ok(None);
        };
        if let Some(it) = &source.pvc {
            return Ok(Some(copied(
                &namespace,
                (CLAIM, &it.namespace, &it.name),
                namespaces,
            )));
        }
        if let Some(it) = &source.snapshot {
            return Ok(Some(copied(
                &namespace,
                (SNAPSHOT, &it.namespace, &it.name),
                namespaces,
            )));
        }
        let Some(next) = source.data_source else {
            return Ok(None);
        };
        namespace = given(Some(&next.namespace), &namespace).to_owned();
        name = next.name;
    }
    Ok(None)
}

/// The other namespaces that a data volume names, and that of the annotation, which names what a data source stands for.
pub(super) fn namespaces(
    own: &str,
    spec: &DataVolumeSpec,
    permitted: Option<&str>,
) -> BTreeSet<String> {
    let source = spec.source.as_ref();
    let claim = source.and_then(|source| source.pvc.as_ref());
    let snapshot = source.and_then(|source| source.snapshot.as_ref());
    let reference = spec.source_ref.as_ref();
    let named = [
        claim.map(|it| it.namespace.as_str()),
        snapshot.map(|it| it.namespace.as_str()),
        reference.and_then(|it| it.namespace.as_deref()),
        permitted.and_then(|text| text.split('/').nth(1)),
    ];
    let named = named.into_iter().flatten();
    let others = named.filter(|one| !one.is_empty() && *one != own);
    others.map(str::to_owned).collect()
}

fn copied(
    own: &str,
    (kind, namespace, name): (&'static str, &str, &str),
    mut namespaces: BTreeSet<String>,
) -> Copied {
    let namespace = given(Some(namespace), own).to_owned();
    namespaces.insert(namespace.clone());
    Copied {
        kind,
        namespace,
        name: name.to_owned(),
        namespaces,
    }
}

fn given<'a>(namespace: Option<&'a str>, default: &'a str) -> &'a str {
    namespace.filter(|it| !it.is_empty()).unwrap_or(default)
}

async fn data_source(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<DataSourceSource>, kube::Error> {
    // Both become parts of a path before anybody has asked for a right.
    if !is_label(namespace) || !is_subdomain(name) {
        return Ok(None);
    }
    let api: Api<DataSource> = Api::namespaced(client.clone(), namespace);
    // Also if the kind is not defined.
    let found = api.get_opt(name).await?;
    Ok(found.map(|found| found.spec.source))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn all_other_namespaces_count() {
        let case = |spec: Value, permitted: Option<&str>, expected: &[&str]| {
            let spec = serde_json::from_value(spec).unwrap();
            let found = namespaces("own", &spec, permitted);
            assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        };
        case(json!({"source": {"blank": {}}}), None, &[]);
        case(json!({"source": {"pvc": {"name": "x"}}}), None, &[]);
        let own = json!({"source": {"pvc": {"namespace": "own", "name": "x"}}});
        case(own, None, &[]);
        let claim = json!({"source": {"pvc": {"namespace": "a", "name": "x"}}});
        case(claim.clone(), None, &["a"]);
        case(claim, Some("pvc/b/x"), &["a", "b"]);
        let snapshot = json!({"source": {"snapshot": {"namespace": "a", "name": "x"}}});
        case(snapshot, None, &["a"]);
        let named = json!({"sourceRef": {"kind": "DataSource", "namespace": "a", "name": "x"}});
        case(named.clone(), None, &["a"]);
        case(named, Some("snapshot/b/x"), &["a", "b"]);
        case(json!({}), Some("pvc/b/x"), &["b"]);
        case(json!({}), Some("anything"), &[]);
    }
}
