//! The connection to one sidecar.

use std::path::Path;
use std::time::Duration;

use grpc::{Client, Code};
use launcher_channel::HookSidecar;
use prost::Message;
use tokio::time::Instant;

use super::error::{HookError, Problem, shown};
use super::messages::{Empty, INFO, Info, Point, Version};

/// How often a sidecar without a socket is looked at again.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// For the connection and the description of a sidecar that listens.
const INFO_LIMIT: Duration = Duration::from_secs(5);
/// The same for the last of many slow sidecars.
const LEAST_INFO_LIMIT: Duration = Duration::from_secs(1);
/// The most sockets in the directory of one sidecar: one, and those that earlier runs of it have left.
const MAX_SOCKETS: usize = 32;
/// The most hooks of one sidecar.
const MAX_POINTS: usize = 64;

/// A sidecar that has described itself.
#[derive(Debug)]
pub(super) struct Sidecar {
    pub(super) name: String,
    client: Client,
    version: Version,
    points: Vec<(String, i32)>,
}

impl Sidecar {
    /// Waits for the sidecar until the deadline.
    pub(super) async fn connect(
        sidecar: &HookSidecar,
        deadline: Instant,
    ) -> Result<Self, HookError> {
        let failed = |source| HookError {
            sidecar: sidecar.name.clone(),
            source,
        };
        loop {
            if let Some(found) = Self::find(sidecar, deadline).await.map_err(failed)? {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                let directory = sidecar.directory.clone();
                return Err(failed(Problem::NoSocket { directory }));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The sidecar behind the first socket that answers.
    pub(super) async fn find(
        sidecar: &HookSidecar,
        deadline: Instant,
    ) -> Result<Option<Self>, Problem> {
        let rest = deadline.saturating_duration_since(Instant::now());
        let limit = rest.clamp(LEAST_INFO_LIMIT, INFO_LIMIT);
        let directory = Path::new(&sidecar.directory);
        for socket in sockets(directory) {
            let Some(client) = client(directory, &socket, limit).await else {
                continue;
            };
            let info: Info = match client.call_within(limit, INFO, &Empty {}).await {
                Ok(info) => info,
                // It has just gone, and comes back.
                Err(status) if status.code == Code::Unavailable => continue,
                Err(status) => return Err(Problem::of_call("Info", limit, &status)),
            };
            return Self::described(&sidecar.name, client, info).map(Some);
        }
        Ok(None)
    }

    fn described(name: &str, client: Client, info: Info) -> Result<Self, Problem> {
        let versions = Version::ALL.into_iter().rev();
        let mut spoken =
            versions.filter(|version| info.versions.iter().any(|one| one == version.name()));
        let version = spoken.next().ok_or_else(|| Problem::Version {
            versions: format!("{:?}", shown(&info.versions.join(", "))),
        })?;
        tracing::info!(
            container = name,
            sidecar = shown(&info.name),
            version = version.name(),
            "hook sidecar found"
        );
        let points = info.hook_points.into_iter().take(MAX_POINTS);
        Ok(Self {
            name: name.to_owned(),
            client,
            version,
            points: points.map(|point| (point.name, point.priority)).collect(),
        })
    }

    /// The priority of a hook that the sidecar has.
    pub(super) fn priority(&self, point: Point) -> Option<i32> {
        let mut points = self.points.iter();
        let (_, priority) = points.find(|(name, _)| name == point.name())?;
        self.version.has(point).then_some(*priority)
    }

    /// Calls a hook that the sidecar has.
    pub(super) async fn call<R: Message + Default>(
        &self,
        point: Point,
        request: &impl Message,
        deadline: Instant,
    ) -> Result<R, Problem> {
        let limit = deadline.saturating_duration_since(Instant::now());
        let method = self.version.method(point);
        let called = self.client.call_within(limit, &method, request).await;
        called.map_err(|status| Problem::of_point(point, limit, &status))
    }

    pub(super) fn error(&self, source: Problem) -> HookError {
        HookError {
            sidecar: self.name.clone(),
            source,
        }
    }
}

/// The sockets in a sidecar's directory, by name. Links are left out: they lead to sockets of this container.
fn sockets(directory: &Path) -> Vec<String> {
    use std::os::unix::fs::FileTypeExt as _;
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let entries = entries.filter_map(Result::ok);
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let names = sockets.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.take(MAX_SOCKETS).collect();
    names.sort_unstable();
    names
}

/// `None` if nobody listens.
async fn client(directory: &Path, socket: &str, limit: Duration) -> Option<Client> {
    let connect = async {
        let stream = grpc::connect(directory, socket).await.ok()?;
        Client::over(stream).await.ok()
    };
    tokio::time::timeout(limit, connect).await.ok()?
}
