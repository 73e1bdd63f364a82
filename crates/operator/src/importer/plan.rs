//! Pure planning: whose the kinds of `cdi.kubevirt.io` are, and the writes of their definitions.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::{crds, labels};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The kind that configures CDI. Only CDI's own installation defines it, before all others.
pub(super) const OF_CDI: &str = "cdis.cdi.kubevirt.io";
/// The label of this definition says whether Ferrovirt or CDI populates data volumes.
pub(super) const DECISIVE: &str = "datavolumes.cdi.kubevirt.io";
/// On our definitions: which text they have.
const DIGEST: &str = "ferrovirt.io/definition";

/// Who populates data volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Ferrovirt,
    Cdi,
}

/// A write of one definition, by its name.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Create {
        name: &'static str,
        object: Value,
    },
    Merge {
        name: &'static str,
        patch: Value,
    },
    /// CDI is there: takes our marks away, and nothing else.
    Release {
        name: &'static str,
        patch: Value,
    },
}

/// The definitions that exist, by name.
pub(super) type Found = BTreeMap<&'static str, ObjectMeta>;

/// The names whose definitions decide, and are written.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let ours = crds::IMPORTER.iter().map(|(name, _)| *name);
    ours.chain([OF_CDI])
}

/// The definition of data volumes decides by its label. Without it, one of another kind that has no label is CDI's,
/// which is being installed or removed.
pub(super) fn owner(found: &Found) -> Owner {
    let is_cdi = match found.get(DECISIVE) {
        _ if found.contains_key(OF_CDI) => true,
        Some(decisive) => !is_ours(decisive),
        None => found.values().any(|one| !is_ours(one)),
    };
    if is_cdi { Owner::Cdi } else { Owner::Ferrovirt }
}

/// The writes that are due. Each is about the state that was read: it fails if another client was faster.
pub(super) fn plan(owner: Owner, found: &Found) -> Result<Vec<Step>, serde_saphyr::Error> {
    let mut steps = Vec::new();
    for (name, text) in crds::IMPORTER {
        let present = found.get(name);
        // It is created again once it is gone.
        if present.is_some_and(|one| one.deletion_timestamp.is_some()) {
            continue;
        }
        match (owner, present) {
            (Owner::Ferrovirt, None) => steps.push(Step::Create {
                name,
                object: definition(text)?,
            }),
            (Owner::Ferrovirt, Some(present)) if !is_current(present, text) => {
                let mut patch = definition(text)?;
                patch["metadata"]["resourceVersion"] = json!(present.resource_version);
                steps.push(Step::Merge { name, patch });
            }
            (Owner::Cdi, Some(present)) if is_ours(present) => {
                let patch = json!({"metadata": {
                    "resourceVersion": present.resource_version,
                    "labels": {labels::OWN_IMPORTER: null},
                    // CDI writes its own text. If an administrator gives the definition back to us, it gets ours again.
                    "annotations": {DIGEST: null},
                }});
                steps.push(Step::Release { name, patch });
            }
            _ => {}
        }
    }
    Ok(steps)
}

fn is_ours(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    labels.is_some_and(|all| all.contains_key(labels::OWN_IMPORTER))
}

fn is_current(metadata: &ObjectMeta, text: &str) -> bool {
    let annotations = metadata.annotations.as_ref();
    let written = annotations.and_then(|all| all.get(DIGEST));
    is_ours(metadata) && written.is_some_and(|written| *written == digest(text))
}

fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// The definition with the marks by which it is recognised.
fn definition(text: &str) -> Result<Value, serde_saphyr::Error> {
    let mut object: Value = serde_saphyr::from_str(text)?;
    object["metadata"]["labels"][labels::OWN_IMPORTER] = "".into();
    object["metadata"]["annotations"][DIGEST] = digest(text).into();
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a cluster has it after the step.
    fn written(step: &Step) -> (&'static str, ObjectMeta) {
        let (Step::Create { name, object }
        | Step::Merge {
            name,
            patch: object,
        }) = step
        else {
            panic!("{step:?}")
        };
        let metadata = serde_json::from_value(object["metadata"].clone());
        (name, metadata.expect("metadata"))
    }

    fn installed() -> Found {
        let steps = plan(Owner::Ferrovirt, &Found::new()).expect("good texts");
        steps.iter().map(written).collect()
    }

    fn foreign() -> ObjectMeta {
        let labels = [("cdi.kubevirt.io".to_owned(), String::new())];
        ObjectMeta {
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn label_of_the_definition_of_data_volumes_decides() {
        const OTHER: &str = "storageprofiles.cdi.kubevirt.io";
        let ours = || installed().remove(DECISIVE).expect("it is defined");
        for (found, expected) in [
            (vec![], Owner::Ferrovirt),
            (vec![(DECISIVE, ours())], Owner::Ferrovirt),
            (vec![(DECISIVE, foreign())], Owner::Cdi),
            // By hand, with an earlier version.
            (
                vec![(DECISIVE, ours()), (OTHER, foreign())],
                Owner::Ferrovirt,
            ),
            (vec![(OTHER, foreign())], Owner::Cdi),
            (vec![(OTHER, ours())], Owner::Ferrovirt),
            (vec![(OF_CDI, foreign())], Owner::Cdi),
            (vec![(OF_CDI, foreign()), (DECISIVE, ours())], Owner::Cdi),
        ] {
            let found: Found = found.into_iter().collect();
            assert_eq!(owner(&found), expected, "{found:?}");
        }
    }

    #[test]
    fn missing_and_outdated_definitions_are_written_once() {
        let found = installed();
        assert_eq!(found.len(), crds::IMPORTER.len());
        assert_eq!(plan(Owner::Ferrovirt, &found).expect("good texts"), []);
        let mut changed = found.clone();
        changed.remove("datasources.cdi.kubevirt.io");
        let outdated = changed.get_mut(DECISIVE).expect("it is defined");
        outdated.resource_version = Some("7".to_owned());
        outdated.annotations = None;
        let steps = plan(Owner::Ferrovirt, &changed).expect("good texts");
        let [Step::Create { name, .. }, Step::Merge { patch, .. }] = &steps[..] else {
            panic!("{steps:?}")
        };
        assert_eq!(*name, "datasources.cdi.kubevirt.io");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert!(patch["spec"]["versions"].is_array());
        // One that is being deleted is left alone.
        let ending = changed.get_mut(DECISIVE).expect("it is defined");
        ending.deletion_timestamp = serde_json::from_value(json!("2026-11-21T12:00:00Z")).ok();
        assert!(ending.deletion_timestamp.is_some());
        let steps = plan(Owner::Ferrovirt, &changed).expect("good texts");
        assert!(matches!(&steps[..], [Step::Create { .. }]), "{steps:?}");
    }

    #[test]
    fn cdi_gets_our_definitions_and_keeps_its_own() {
        let mut found = installed();
        found.insert(OF_CDI, foreign());
        let steps = plan(Owner::Cdi, &found).expect("good texts");
        assert_eq!(steps.len(), crds::IMPORTER.len());
        for step in &steps {
            let Step::Release { patch, .. } = step else {
                panic!("{step:?}")
            };
            let metadata = patch.as_object().expect("an object");
            assert_eq!(metadata.len(), 1, "the spec stays: {patch}");
            assert_eq!(
                patch["metadata"]["labels"],
                json!({labels::OWN_IMPORTER: null})
            );
            assert_eq!(patch["metadata"]["annotations"], json!({DIGEST: null}));
        }
        let theirs: Found = found.into_keys().map(|name| (name, foreign())).collect();
        assert_eq!(plan(Owner::Cdi, &theirs).expect("good texts"), []);
    }
}
