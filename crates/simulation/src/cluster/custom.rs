//! The kinds of `KubeVirt`'s API, from its definitions: a new kind needs nothing here.

use std::sync::{Arc, OnceLock};

use apimachinery::schema::Schema;
use serde_json::Value;

use super::kinds::Facts;

/// The definition of a kind.
#[derive(Debug)]
pub(super) struct Definition {
    pub(super) facts: Facts,
    /// Read when the first object of the kind is written.
    content: OnceLock<Content>,
}

#[derive(Debug)]
pub(super) struct Content {
    pub(super) has_status: bool,
    pub(super) schema: Arc<Schema>,
}

macro_rules! definitions {
    ($($kind:ty,)*) => {
        [$(Definition {
            facts: Facts {
                group: <$kind>::GROUP,
                version: <$kind>::VERSION,
                plural: <$kind>::PLURAL,
                kind: <$kind>::KIND,
            },
            content: OnceLock::new(),
        },)*]
    };
}

/// One for each of [`kubevirt_api::crds::ALL`].
pub(super) static ALL: [Definition; kubevirt_api::crds::ALL.len()] =
    kubevirt_api::for_every_kind!(definitions);

impl Definition {
    pub(super) fn content(&self) -> &Content {
        self.content.get_or_init(|| {
            let name = format!("{}.{}", self.facts.plural, self.facts.group);
            let mut definitions = kubevirt_api::crds::ALL.iter();
            let (_, text) = definitions
                .find(|(known, _)| *known == name)
                .expect("every kind has a definition");
            let definition: Value =
                serde_saphyr::from_str(text).expect("the definitions that are checked in are YAML");
            let version = &definition["spec"]["versions"][0];
            let schema = Schema::parse(&version["schema"]["openAPIV3Schema"], "")
                .expect("the definitions that are checked in are structural");
            Content {
                has_status: version["subresources"]["status"].is_object(),
                schema,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::cluster::Kind;

    #[test]
    fn every_definition_is_served() {
        for (name, _) in kubevirt_api::crds::ALL {
            let (plural, group) = name.split_once('.').expect("a group");
            let kind = Kind::find(group, plural).expect(name);
            assert!(kind.is_custom(), "{name}");
            assert_eq!((kind.facts().group, kind.facts().plural), (group, plural));
        }
    }

    #[test]
    fn subresource_is_as_defined() {
        for (group, plural, has_status) in [
            ("kubevirt.io", "virtualmachines", true),
            ("kubevirt.io", "virtualmachineinstances", false),
            ("pool.kubevirt.io", "virtualmachinepools", true),
            ("", "pods", true),
            ("coordination.k8s.io", "leases", false),
        ] {
            let kind = Kind::find(group, plural).expect(plural);
            assert_eq!(kind.has_status(), has_status, "{plural}");
        }
    }
}
