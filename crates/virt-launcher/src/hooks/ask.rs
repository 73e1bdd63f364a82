//! Calls the hooks of all sidecars of a guest.

use std::cmp::Reverse;
use std::path::Path;
use std::time::Duration;

use launcher_channel::{GuestPlan, Hooks, Prepare, SeedFile};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::cloud_init;
use super::domain::{self, Identity};
use super::error::{HookError, Problem};
use super::messages::{ChangedCloudInit, CloudInit, DefineDomain, DefinedDomain, Empty, Point};
use super::sidecar::Sidecar;
use crate::prepare;

/// For a sidecar that has not opened its socket; then the next try waits again.
const SOCKET_LIMIT: Duration = Duration::from_secs(10);
/// For all hooks of a guest together: virt-handler waits no longer than a minute for the whole start.
const HOOKS_LIMIT: Duration = Duration::from_secs(30);
/// For the goodbye to all sidecars.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// The plan as the sidecars change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) domain_xml: String,
    pub(crate) prepare: Vec<Prepare>,
}

/// Asks all sidecars about the seeds and the domain of a plan.
pub(crate) async fn ask(
    plan: &GuestPlan,
    hooks: &Hooks,
    tasks: &TaskTracker,
) -> Result<Asked, HookError> {
    let sidecars = connect(hooks).await?;
    let deadline = Instant::now() + HOOKS_LIMIT;
    let call = Call {
        hooks,
        sidecars: &sidecars,
        deadline,
    };
    let prepare = call.seeds(&plan.prepare, tasks).await?;
    let identity = Identity {
        name: plan.domain_name.clone(),
        uuid: plan.domain_uuid.clone(),
    };
    let domain_xml = call.domain(&plan.domain_xml, &identity).await?;
    Ok(Asked {
        domain_xml,
        prepare,
    })
}

/// Asks all sidecars about the seeds only: the domain comes from another pod.
pub(crate) async fn ask_for_seeds(
    plan: &GuestPlan,
    hooks: &Hooks,
    tasks: &TaskTracker,
) -> Result<Vec<Prepare>, HookError> {
    let sidecars = connect(hooks).await?;
    let call = Call {
        hooks,
        sidecars: &sidecars,
        deadline: Instant::now() + HOOKS_LIMIT,
    };
    call.seeds(&plan.prepare, tasks).await
}

/// Calls the hook for the end of the guest. Nothing depends on the answers.
pub(crate) async fn shut_down(hooks: &Hooks) {
    let deadline = Instant::now() + SHUTDOWN_LIMIT;
    let tell = async {
        for sidecar in &hooks.sidecars {
            let Ok(Some(sidecar)) = Sidecar::find(sidecar, deadline).await else {
                continue;
            };
            if sidecar.priority(Point::Shutdown).is_none() {
                continue;
            }
            let told: Result<Empty, _> = sidecar.call(Point::Shutdown, &Empty {}, deadline).await;
            if let Err(error) = told {
                tracing::info!(container = sidecar.name, %error, "a hook sidecar did not shut down");
            }
        }
    };
    if tokio::time::timeout_at(deadline, tell).await.is_err() {
        tracing::info!("not all hook sidecars were told that the guest has ended");
    }
}

async fn connect(hooks: &Hooks) -> Result<Vec<Sidecar>, HookError> {
    let deadline = Instant::now() + SOCKET_LIMIT;
    let mut all = Vec::new();
    for sidecar in &hooks.sidecars {
        all.push(Sidecar::connect(sidecar, deadline).await?);
    }
    Ok(all)
}

/// The sidecars that have a hook: the highest priority first, equal ones in the order of the VMI.
fn in_order(sidecars: &[Sidecar], point: Point) -> Vec<&Sidecar> {
    let with = sidecars.iter();
    let with = with.filter_map(|sidecar| Some((Reverse(sidecar.priority(point)?), sidecar)));
    let mut with: Vec<_> = with.collect();
    with.sort_by_key(|(priority, _)| *priority);
    with.into_iter().map(|(_, sidecar)| sidecar).collect()
}

/// The calls of one start.
struct Call<'a> {
    hooks: &'a Hooks,
    sidecars: &'a [Sidecar],
    deadline: Instant,
}

impl Call<'_> {
    async fn domain(&self, xml: &str, identity: &Identity) -> Result<String, HookError> {
        let sidecars = in_order(self.sidecars, Point::OnDefineDomain);
        if sidecars.is_empty() {
            return Ok(xml.to_owned());
        }
        let mut xml = domain::for_hooks(xml);
        for sidecar in sidecars {
            let request = DefineDomain {
                domain_xml: xml.into_bytes(),
                vmi: self.hooks.vmi.clone().into_bytes(),
            };
            let answer: DefinedDomain = sidecar
                .call(Point::OnDefineDomain, &request, self.deadline)
                .await
                .map_err(|problem| sidecar.error(problem))?;
            xml = domain::check(answer.domain_xml, identity)
                .map_err(|problem| sidecar.error(problem.into()))?;
        }
        Ok(xml)
    }

    async fn seeds(
        &self,
        steps: &[Prepare],
        tasks: &TaskTracker,
    ) -> Result<Vec<Prepare>, HookError> {
        let sidecars = in_order(self.sidecars, Point::PreCloudInitIso);
        let mut all = steps.to_vec();
        let Some(first) = sidecars.first() else {
            return Ok(all);
        };
        for step in &mut all {
            let Prepare::Seed { path, files, .. } = step else {
                continue;
            };
            // A seed is made once.
            if Path::new(path).symlink_metadata().is_ok() {
                continue;
            }
            let contents = read(files.clone(), tasks).await;
            let contents = contents.map_err(|error| first.error(Problem::Seed(error)))?;
            let Some(before) = cloud_init::data(files, &contents) else {
                continue;
            };
            let mut data = before.clone();
            for sidecar in &sidecars {
                let request = CloudInit {
                    no_cloud_source: data.to_no_cloud_source().into_bytes(),
                    vmi: self.hooks.vmi.clone().into_bytes(),
                    data: data.to_json().into_bytes(),
                };
                let answer: ChangedCloudInit = sidecar
                    .call(Point::PreCloudInitIso, &request, self.deadline)
                    .await
                    .map_err(|problem| sidecar.error(problem))?;
                data = data
                    .changed_by(&answer)
                    .map_err(|problem| sidecar.error(Problem::CloudInit(problem)))?;
            }
            *files = cloud_init::files(files, &before, &data);
        }
        Ok(all)
    }
}

async fn read(
    files: Vec<SeedFile>,
    tasks: &TaskTracker,
) -> Result<Vec<Vec<u8>>, prepare::PrepareError> {
    let read = move || files.iter().map(prepare::read_source).collect();
    let done = tasks.spawn_blocking(read).await;
    done.map_err(|error| {
        prepare::PrepareError::at(Path::new("seed"))(std::io::Error::other(error))
    })?
}
