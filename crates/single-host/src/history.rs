//! Whether a database belongs to what runs and is stored on this host.
//!
//! A node ends the pods that the API server does not know. With a lost or an older database that
//! would be every guest, or the latest ones, so `up` and `restore` check first and stop.

use std::path::{Path, PathBuf};

use anyhow::Result;
use embedded_api::Contents;
use serde::Deserialize;

use crate::state_dir::StateDir;

/// A pod on this host, from its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordedPod {
    pub(crate) uid: String,
    /// Namespace and name; empty if the record cannot be read.
    pub(crate) name: String,
    /// The revision at which the pod was last recorded.
    pub(crate) revision: u64,
}

/// What is on this host besides the database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OnHost {
    pub(crate) pods: Vec<RecordedPod>,
    /// Names of persistent volumes.
    pub(crate) volumes: Vec<String>,
    /// The database that was set aside for a copy which is not there.
    pub(crate) set_aside: Option<PathBuf>,
}

/// Why a database must not be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Mismatch {
    #[error(
        "the database is missing or empty, but {pods} pods and {volumes} volumes exist; guests keep \
         running. Restore a copy with `ferrovirt restore FILE` (automatic copies are in {copies}). \
         To start without the lost objects: `ferrovirt down`{}",
        kept.as_ref().map(|dir| format!(", then move {dir} away")).unwrap_or_default()
    )]
    Lost {
        pods: usize,
        volumes: usize,
        copies: String,
        /// The directory of the volumes, if there are any.
        kept: Option<String>,
    },
    #[error(
        "the database is missing, and an earlier one is kept as {}: `ferrovirt restore` was interrupted; guests keep \
         running. Run `ferrovirt restore FILE` again, with the copy or that file; to start without objects, move \
         that file away",
        aside.display()
    )]
    Interrupted { aside: PathBuf },
    #[error(
        "the database is at revision {database}, but pod {pod} was recorded at revision {revision}: \
         the database is an old copy; guests keep running. Put the copy in place with \
         `ferrovirt restore FILE`, which continues with new revisions"
    )]
    Older {
        database: u64,
        pod: String,
        revision: u64,
    },
    #[error(
        "the copy does not know {} ({}): the next `ferrovirt up` would end them. Run \
         `ferrovirt down` first, which gives guests time to power off, then restore",
        count(pods.len()), pods.join(", ")
    )]
    UnknownPods { pods: Vec<String> },
}

fn count(pods: usize) -> String {
    match pods {
        1 => "1 running pod".to_owned(),
        more => format!("{more} running pods"),
    }
}

/// Checks the database that `up` is about to open.
pub(crate) fn check_start(
    database: Option<&Contents>,
    host: &OnHost,
    state: &StateDir,
) -> Result<(), Mismatch> {
    let Some(database) = database.filter(|database| database.objects > 0) else {
        if let Some(aside) = &host.set_aside {
            return Err(Mismatch::Interrupted {
                aside: aside.clone(),
            });
        }
        if host.pods.is_empty() && host.volumes.is_empty() {
            return Ok(());
        }
        let kept = (!host.volumes.is_empty()).then(|| state.volumes());
        return Err(Mismatch::Lost {
            pods: host.pods.len(),
            volumes: host.volumes.len(),
            copies: state.copies().display().to_string(),
            kept: kept.map(|dir| dir.display().to_string()),
        });
    };
    let newest = host.pods.iter().max_by_key(|pod| pod.revision);
    match newest {
        Some(pod) if pod.revision > database.revision => Err(Mismatch::Older {
            database: database.revision,
            pod: pod.label(),
            revision: pod.revision,
        }),
        _ => Ok(()),
    }
}

/// Checks the copy that `restore` is about to put in place.
pub(crate) fn check_restore(copy: &Contents, host: &OnHost) -> Result<(), Mismatch> {
    let unknown = host.pods.iter().filter(|pod| !copy.pods.contains(&pod.uid));
    let pods: Vec<String> = unknown.map(RecordedPod::label).collect();
    if pods.is_empty() {
        return Ok(());
    }
    Err(Mismatch::UnknownPods { pods })
}

impl RecordedPod {
    fn label(&self) -> String {
        if self.name.is_empty() {
            self.uid.clone()
        } else {
            self.name.clone()
        }
    }
}

/// Reads the pods and volumes of a node's directory.
pub(crate) fn on_host(state: &StateDir) -> Result<OnHost> {
    let pods = embedded_node::recorded_pods(&state.node())?;
    Ok(OnHost {
        pods: pods
            .into_iter()
            .map(|(uid, object)| recorded(uid, object.as_deref()))
            .collect(),
        volumes: names(&state.volumes())?,
        set_aside: embedded_api::interrupted_restore(&state.database()),
    })
}

fn recorded(uid: String, object: Option<&[u8]>) -> RecordedPod {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Metadata {
        namespace: String,
        name: String,
        resource_version: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Object {
        metadata: Metadata,
    }
    let object: Object = object
        .and_then(|bytes| serde_json::from_slice(bytes).ok())
        .unwrap_or_default();
    let Metadata {
        namespace,
        name,
        resource_version,
    } = object.metadata;
    RecordedPod {
        uid,
        name: if name.is_empty() {
            name
        } else {
            format!("{namespace}/{name}")
        },
        revision: resource_version.parse().unwrap_or(0),
    }
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(revision: u64, objects: u64, pods: &[&str]) -> Contents {
        Contents {
            revision,
            objects,
            pods: pods.iter().map(ToString::to_string).collect(),
        }
    }

    fn host(pods: &[(&str, u64)], volumes: &[&str]) -> OnHost {
        let pod = |(uid, revision): &(&str, u64)| RecordedPod {
            uid: (*uid).to_owned(),
            name: format!("ns/{uid}"),
            revision: *revision,
        };
        OnHost {
            pods: pods.iter().map(pod).collect(),
            volumes: volumes.iter().map(ToString::to_string).collect(),
            set_aside: None,
        }
    }

    #[test]
    fn up_stops_at_a_lost_or_an_older_database() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let nothing = host(&[], &[]);
        let running = host(&[("a", 50), ("b", 90)], &["pvc-1"]);
        let stored = host(&[], &["pvc-1"]);
        let interrupted = OnHost {
            set_aside: Some("/state/api.db.before-restore".into()),
            ..host(&[], &[])
        };
        let cases = [
            ("first start", None, &nothing, None),
            (
                "a restore was interrupted",
                None,
                &interrupted,
                Some("kept as /state/api.db.before-restore"),
            ),
            (
                "missing, pods run",
                None,
                &running,
                Some("missing or empty"),
            ),
            (
                "missing, volumes exist",
                None,
                &stored,
                Some("down`, then move "),
            ),
            (
                "empty",
                Some(contents(1, 0, &[])),
                &running,
                Some("2 pods and 1 volumes"),
            ),
            (
                "older",
                Some(contents(70, 9, &["a"])),
                &running,
                Some("pod ns/b was recorded"),
            ),
            (
                "current",
                Some(contents(91, 9, &["a", "b"])),
                &running,
                None,
            ),
            (
                "a pod was deleted",
                Some(contents(91, 9, &["a"])),
                &running,
                None,
            ),
        ];
        for (case, database, host, expected) in cases {
            let outcome = check_start(database.as_ref(), host, &state);
            match (&outcome, expected) {
                (Ok(()), None) => {}
                (Err(error), Some(text)) => {
                    assert!(error.to_string().contains(text), "{case}: {error}");
                    assert!(error.to_string().contains("ferrovirt restore"), "{case}");
                }
                _ => panic!("{case}: {outcome:?}"),
            }
        }
    }

    #[test]
    fn host_without_volumes_has_nothing_to_move_away() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        let error = check_start(None, &host(&[("a", 50)], &[]), &state).unwrap_err();
        assert!(error.to_string().ends_with("`ferrovirt down`"), "{error}");
    }

    #[test]
    fn copy_that_does_not_know_a_running_pod_is_not_restored() {
        let copy = contents(10, 5, &["a"]);
        assert_eq!(check_restore(&copy, &host(&[("a", 9)], &[])), Ok(()));
        let error = check_restore(&copy, &host(&[("a", 9), ("b", 12)], &[])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("1 running pod (ns/b)"), "{text}");
        assert!(text.contains("ferrovirt down"), "{text}");
    }

    #[test]
    fn pods_are_read_from_their_records() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::open(dir.path()).unwrap();
        assert_eq!(on_host(&state).unwrap(), OnHost::default());
        let pods = state.node().join("pods");
        std::fs::create_dir_all(pods.join("u-1")).unwrap();
        std::fs::create_dir_all(pods.join("u-2")).unwrap();
        std::fs::create_dir_all(state.volumes().join("pvc-1")).unwrap();
        let object = r#"{"metadata":{"namespace":"ns","name":"a","resourceVersion":"42"}}"#;
        std::fs::write(pods.join("u-1/object.json"), object).unwrap();
        let mut found = on_host(&state).unwrap();
        found.pods.sort_by(|one, other| one.uid.cmp(&other.uid));
        let labels: Vec<_> = found
            .pods
            .iter()
            .map(|pod| (pod.label(), pod.revision))
            .collect();
        assert_eq!(labels, [("ns/a".to_owned(), 42), ("u-2".to_owned(), 0)]);
        assert_eq!(found.volumes, ["pvc-1"]);
    }
}
