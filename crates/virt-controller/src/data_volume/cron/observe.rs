//! Observation: everything that one reconcile may read.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use kubevirt_api::data_import_cron::DataImportCron;
use kubevirt_api::data_source::DataSource;
use kubevirt_api::data_volume_status::{DataVolume as Whole, DataVolumePhase};
use kubevirt_api::labels;
use reconcile::Key;

use super::super::observe::is_of;
use super::super::request::{self, Abilities, Refusal, Request, Source};
use super::plan::Observed;
use super::schedule::Schedule;
use super::{Controller, CronError, pod_name};
use crate::Uploads;

/// The longest value of a label.
const MOST_NAME: usize = 63;
/// The longest name of a data source: that of a data volume has a digest besides.
const MOST_DATA_SOURCE: usize = 240;
/// More imports than any object keeps.
const MOST_IMPORTS: u32 = 500;

/// A data volume that was made for a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) phase: DataVolumePhase,
    pub(super) created: Option<Timestamp>,
    pub(super) is_deleting: bool,
}

/// The data source that stands for the latest import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Managed {
    Missing,
    /// With the name of its claim.
    Ours(Option<String>),
    Foreign,
}

impl Controller {
    pub(super) async fn observe(
        &self,
        key: &Key,
        cron: Arc<DataImportCron>,
    ) -> Result<Observed, CronError> {
        let uid = cron.uid().unwrap_or_default();
        let pod = self.pods.get(&Key::new(&key.namespace, pod_name(&uid)));
        let request = self.request(key, &cron);
        let imports = match &request {
            Ok(_) => self.imports(key).await?,
            Err(_) => Vec::new(),
        };
        Ok(Observed {
            schedule: schedule(&cron.spec.schedule),
            request,
            pod: pod.filter(|pod| is_of(pod.as_ref(), &uid)),
            imports,
            managed: self.managed(key, &cron),
            now: self.clock.now(),
            cron,
        })
    }

    fn request(&self, key: &Key, cron: &DataImportCron) -> Result<Request, Refusal> {
        if key.name.len() > MOST_NAME {
            let text = format!("metadata.name: it is longer than {MOST_NAME} characters");
            return Err(Refusal(text));
        }
        if !(1..=MOST_DATA_SOURCE).contains(&cron.spec.managed_data_source.len()) {
            return Err(Refusal(format!(
                "spec.managedDataSource: name the data source to keep, in at most \
                 {MOST_DATA_SOURCE} characters"
            )));
        }
        let mut whole = Whole::new(&key.name, cron.spec.template.spec.clone());
        whole.metadata.namespace = Some(key.namespace.clone());
        let abilities = Abilities {
            images: crate::container_disks::choose(
                &self.cluster.now(),
                self.hosts
                    .list()
                    .iter()
                    .filter(|host| host.takes_guests())
                    .map(|host| host.image_volumes),
            ),
            uploads: Uploads::Refused,
        };
        let request = request::parse(&whole, None, abilities);
        let request = request.map_err(|Refusal(text)| Refusal(format!("spec.template.{text}")))?;
        match &request.source {
            Source::Web { .. } | Source::Bucket { .. } | Source::Image(_) => Ok(request),
            Source::Claim(_)
            | Source::Snapshot(_)
            | Source::Elsewhere(_)
            | Source::Blank
            | Source::Upload => Err(Refusal(
                "spec.template.spec.source: only http, s3, gcs and registry have versions to \
                     look for"
                    .to_owned(),
            )),
        }
    }

    async fn imports(&self, key: &Key) -> Result<Vec<Import>, CronError> {
        let api = Api::<Whole>::namespaced(self.client.clone(), &key.namespace);
        let selector = format!("{}={}", labels::CDI_DATA_IMPORT_CRON, key.name);
        let parameters = ListParams::default().labels(&selector).limit(MOST_IMPORTS);
        let found = api.list(&parameters).await.map_err(CronError::read)?;
        let mut imports: Vec<Import> = found.items.into_iter().map(Import::from).collect();
        imports.sort_by(|one, other| {
            let newest = other.created.cmp(&one.created);
            newest.then_with(|| one.name.cmp(&other.name))
        });
        Ok(imports)
    }

    fn managed(&self, key: &Key, cron: &DataImportCron) -> Managed {
        let at = Key::new(&key.namespace, &cron.spec.managed_data_source);
        let Some(found) = self.data_sources.get(&at, key) else {
            return Managed::Missing;
        };
        managed(&found, &key.name)
    }
}

pub(super) fn managed(source: &DataSource, cron: &str) -> Managed {
    let owner = source.labels().get(labels::CDI_DATA_IMPORT_CRON);
    if owner.is_none_or(|owner| owner != cron) {
        return Managed::Foreign;
    }
    let claim = source.spec.source.pvc.as_ref();
    Managed::Ours(claim.map(|claim| claim.name.clone()))
}

pub(super) fn schedule(text: &str) -> Result<Option<Schedule>, Refusal> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let parsed = Schedule::parse(text);
    let parsed = parsed.map_err(|error| Refusal(format!("spec.schedule: {error}")))?;
    Ok(Some(parsed))
}

impl From<Whole> for Import {
    fn from(whole: Whole) -> Self {
        let phase = whole
            .status
            .as_ref()
            .and_then(|status| status.phase.clone());
        let created = whole.metadata.creation_timestamp.as_ref();
        Self {
            name: whole.name_any(),
            uid: whole.uid().unwrap_or_default(),
            phase: phase.unwrap_or_default(),
            created: created.map(|at| at.0),
            is_deleting: whole.metadata.deletion_timestamp.is_some(),
        }
    }
}
