//! The sidecar that runs executables of these names from its search path: for tenants who have a script in a config
//! map, and no image.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use bytes::Bytes;
use error_chain::error_chain;
use grpc::{Code, Reply, Service, Status};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::messages::{
    ChangedCloudInit, CloudInit, DefineDomain, DefinedDomain, Empty, HookPoint, INFO, Info, Point,
    Version,
};

/// The mode of the program.
pub(crate) const SIDECAR_SHIM: &str = "sidecar-shim";
const SOCKET: &str = "shim.sock";
/// The most bytes that an executable may print.
const MAX_OUTPUT: u64 = 2 << 20;
/// The launcher gives up earlier.
const RUN_LIMIT: Duration = Duration::from_mins(1);
/// For the answer to the launcher before the end.
const LAST_ANSWER: Duration = Duration::from_millis(200);
const USAGE: &str = "usage: virt-launcher sidecar-shim --version v1alpha1|v1alpha2|v1alpha3";

/// The hooks for which an executable is searched, and its name.
const EXECUTABLES: [(Point, &str); 2] = [
    (Point::OnDefineDomain, "onDefineDomain"),
    (Point::PreCloudInitIso, "preCloudInitIso"),
];

/// Serves until a signal or the end of the guest.
pub(crate) fn run(arguments: &[OsString]) -> ExitCode {
    let Some(version) = version(arguments) else {
        tracing::error!("needs a version of the hooks\n{USAGE}");
        return ExitCode::FAILURE;
    };
    let shim = Shim {
        version,
        search_path: std::env::var_os("PATH").unwrap_or_default(),
        stop: CancellationToken::new(),
    };
    match serve(shim, Path::new(launcher_channel::HOOKS)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error_chain(&error);
            tracing::error!(
                error,
                directory = launcher_channel::HOOKS,
                "failed to listen"
            );
            ExitCode::FAILURE
        }
    }
}

fn version(arguments: &[OsString]) -> Option<Version> {
    let texts: Vec<&str> = arguments.iter().filter_map(|one| one.to_str()).collect();
    let name = match texts.as_slice() {
        ["--version", name] => *name,
        [flag] => flag.strip_prefix("--version=")?,
        _ => return None,
    };
    Version::ALL.into_iter().find(|one| one.name() == name)
}

fn serve(shim: Shim, directory: &Path) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let listener = grpc::bind(directory, SOCKET)?;
        tracing::info!(version = shim.version.name(), "waiting for the launcher");
        let stop = shim.stop.clone();
        let ended = async {
            stop.cancelled().await;
            tracing::info!("the guest has ended");
            tokio::time::sleep(LAST_ANSWER).await;
        };
        tokio::select! {
            () = grpc::serve(listener, shim, CancellationToken::new()) => {}
            () = ended => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

/// The service of the sidecar.
#[derive(Debug, Clone)]
pub(super) struct Shim {
    pub(super) version: Version,
    /// Directories, separated by colons.
    pub(super) search_path: OsString,
    pub(super) stop: CancellationToken,
}

impl Service for Shim {
    async fn call(&self, method: &str, message: Bytes) -> Result<Reply, Status> {
        if method == INFO {
            return Ok(grpc::unary(&self.info()));
        }
        let is = |point: Point| {
            let mut versions = Version::ALL.into_iter();
            versions.any(|one| one.has(point) && one.method(point) == method)
        };
        if is(Point::OnDefineDomain) {
            let request: DefineDomain = grpc::decode(message)?;
            let arguments = [("--vmi", request.vmi), ("--domain", request.domain_xml)];
            let domain_xml = self.run(Point::OnDefineDomain, arguments).await?;
            Ok(grpc::unary(&DefinedDomain { domain_xml }))
        } else if is(Point::PreCloudInitIso) {
            let request: CloudInit = grpc::decode(message)?;
            let arguments = [("--vmi", request.vmi), ("--cloud-init", request.data)];
            let data = self.run(Point::PreCloudInitIso, arguments).await?;
            Ok(grpc::unary(&ChangedCloudInit {
                no_cloud_source: Vec::new(),
                data,
            }))
        } else if is(Point::Shutdown) {
            self.stop.cancel();
            Ok(grpc::unary(&Empty {}))
        } else {
            Err(grpc::unimplemented(method))
        }
    }
}

impl Shim {
    fn info(&self) -> Info {
        let found = EXECUTABLES
            .into_iter()
            .filter(|(_, name)| self.find(name).is_some());
        let points = found.map(|(point, _)| point);
        let points = points.chain(self.version.has(Point::Shutdown).then_some(Point::Shutdown));
        let points = points.map(|point| HookPoint {
            name: point.name().to_owned(),
            priority: 0,
        });
        Info {
            name: "shim".to_owned(),
            hook_points: points.collect(),
            versions: vec![self.version.name().to_owned()],
        }
    }

    fn find(&self, name: &str) -> Option<PathBuf> {
        let is_executable = |path: &PathBuf| {
            let metadata = path.metadata();
            metadata.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let directories = std::env::split_paths(&self.search_path);
        let mut candidates = directories.map(|directory| directory.join(name));
        candidates.find(is_executable)
    }

    /// What the executable of a hook prints.
    async fn run(&self, point: Point, arguments: [(&str, Vec<u8>); 2]) -> Result<Vec<u8>, Status> {
        let mut all = EXECUTABLES.into_iter();
        let name = all
            .find(|(of, _)| *of == point)
            .map_or("", |(_, name)| name);
        let failed = |why: String| Status::new(Code::Unknown, format!("{name}: {why}"));
        let path = self
            .find(name)
            .ok_or_else(|| failed("no executable of this name".to_owned()))?;
        let mut command = Command::new(path);
        for (flag, value) in arguments {
            let value = String::from_utf8(value)
                .map_err(|_| failed(format!("the value of {flag} is not text")))?;
            command.args([flag, &value]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        match tokio::time::timeout(RUN_LIMIT, output(command)).await {
            Ok(Ok(printed)) => {
                tracing::info!(bytes = printed.len(), "{name} has answered");
                Ok(printed)
            }
            Ok(Err(error)) => {
                let why = error_chain(&error);
                tracing::error!("{name}: {why}");
                Err(failed(why))
            }
            Err(_elapsed) => Err(failed(format!("not done after {} s", RUN_LIMIT.as_secs()))),
        }
    }
}

/// What a program prints, if it succeeds.
async fn output(mut command: Command) -> io::Result<Vec<u8>> {
    let mut child = command.spawn()?;
    let mut printed = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(MAX_OUTPUT + 1)
            .read_to_end(&mut printed)
            .await?;
    }
    if u64::try_from(printed.len()).is_ok_and(|length| length > MAX_OUTPUT) {
        let message = format!("it prints more than {MAX_OUTPUT} bytes");
        return Err(io::Error::other(message));
    }
    let status = child.wait().await?;
    if status.success() {
        Ok(printed)
    } else {
        Err(io::Error::other(status.to_string()))
    }
}
