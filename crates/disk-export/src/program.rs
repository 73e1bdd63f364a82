//! The program: its arguments, and how it ends.

use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use error_chain::error_chain;
use jiff::Timestamp;
use serving::{ClientCertificates, Identity, Limits, PkiError, TlsError, TlsSource};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::server::{Export, Server};
use crate::token::TokenFile;
use crate::view::Views;
use crate::volume::{Volume, VolumeError};

/// The name under which the program is called.
pub const NAME: &str = "disk-export";

/// A download is one connection; those of a proxy come from one address.
const LIMITS: Limits = Limits {
    connections: 64,
    per_address: 64,
    streams: 16,
    // A guest may be about to write: what was not sent by now is not sent.
    grace: Duration::ZERO,
    ..Limits::STANDARD
};
/// Time limit for threads that still read when the server ends.
const GOODBYE: Duration = Duration::from_secs(5);

/// Serves the volumes of an export over HTTPS.
#[derive(Debug, Parser)]
#[command(name = NAME, version)]
struct Arguments {
    /// Port to listen on; 0 for any
    #[arg(long, default_value_t = 8443)]
    port: u16,
    /// Directory with the files tls.crt and tls.key
    #[arg(long)]
    certificate: PathBuf,
    /// File with the token
    #[arg(long)]
    token: PathBuf,
    /// When the export ends
    #[arg(long)]
    until: Timestamp,
    /// A disk, as NAME=PATH of a directory or a block device
    #[arg(long = "disk", value_parser = named)]
    disks: Vec<(String, PathBuf)>,
    /// Files, as NAME=PATH of a directory
    #[arg(long = "files", value_parser = named)]
    files: Vec<(String, PathBuf)>,
    /// Directory of a backup, whose guest offers its disks there
    #[arg(long, requires = "backup_volumes")]
    backup: Option<PathBuf>,
    /// A disk of the backup
    #[arg(long = "backup-volume", requires = "backup")]
    backup_volumes: Vec<String>,
    /// Directory with manifests
    #[arg(long, requires = "header_secret")]
    manifests: Option<PathBuf>,
    /// Name of the Secret in the manifest with the token
    #[arg(long)]
    header_secret: Option<String>,
    /// File for the termination message
    #[arg(long, default_value = "/dev/termination-log")]
    termination_log: PathBuf,
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("write NAME=PATH")?;
    Ok((name.to_owned(), path.into()))
}

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
enum ServerError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("open the claim of the backup")]
    Backup(#[source] io::Error),
    #[error("read the certificate")]
    Certificate(#[from] PkiError),
    #[error("use the certificate")]
    Tls(#[from] TlsError),
    #[error("{what}")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> ServerError {
    move |source| ServerError::Io { what, source }
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let termination_log = arguments.termination_log.clone();
    let (message, code) = match run(arguments) {
        Ok(()) => ("the export has ended".to_owned(), ExitCode::SUCCESS),
        Err(error) => (error_chain(&error), ExitCode::FAILURE),
    };
    log(&message);
    if let Err(error) = fs::write(&termination_log, &message) {
        log(&format!("write {}: {error}", termination_log.display()));
    }
    code
}

/// A line in the log of the container. A closed standard output is not an error.
fn log(line: &str) {
    let _written = writeln!(io::stdout().lock(), "{line}").is_ok();
}

fn run(arguments: Arguments) -> Result<(), ServerError> {
    let mut volumes = Vec::new();
    for (name, path) in &arguments.disks {
        volumes.push(Volume::with_disk(name, path)?);
    }
    for (name, path) in &arguments.files {
        volumes.push(Volume::with_files(name, path)?);
    }
    let views = views(arguments.backup.as_deref(), arguments.backup_volumes)?;
    let tls = tls(&arguments.certificate)?;
    let now = Timestamp::now();
    let export = Export {
        volumes,
        views,
        token: TokenFile(arguments.token),
        manifests: arguments.manifests,
        header_secret: arguments.header_secret.unwrap_or_default(),
        run: format!("{:x}", now.as_nanosecond()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(failed("start the runtime"))?;
    let left = now.duration_until(arguments.until);
    let left = Duration::try_from(left).unwrap_or_default();
    let served = runtime.block_on(serve(export, tls, (arguments.port, left)));
    runtime.shutdown_timeout(GOODBYE);
    served
}

fn views(directory: Option<&Path>, volumes: Vec<String>) -> Result<Option<Views>, ServerError> {
    let Some(directory) = directory else {
        return Ok(None);
    };
    let name = directory.file_name().and_then(|name| name.to_str());
    let (Some(claim), Some(name)) = (directory.parent(), name) else {
        return Err(ServerError::Backup(io::ErrorKind::InvalidInput.into()));
    };
    let views = Views::open(claim, name.to_owned(), volumes).map_err(ServerError::Backup)?;
    Ok(Some(views))
}

fn tls(directory: &Path) -> Result<TlsSource, ServerError> {
    let identity = Identity::load(&directory.join("tls.crt"), &directory.join("tls.key"))?;
    Ok(TlsSource::fixed(&identity, &ClientCertificates::Ignored)?)
}

async fn serve(
    export: Export,
    tls: TlsSource,
    (port, left): (u16, Duration),
) -> Result<(), ServerError> {
    let listener = listen(port).await.map_err(failed("listen"))?;
    let mut ended = signal(SignalKind::terminate()).map_err(failed("watch for signals"))?;
    let stop = CancellationToken::new();
    let router = Server::new(export, TaskTracker::new()).router();
    let server = serving::Server::new(listener, tls, router).with_limits(LIMITS);
    let port = server.local_addr().map_err(failed("listen"))?.port();
    log(&format!("ready on port {port}"));
    let stopping = async {
        tokio::select! {
            _ = ended.recv() => {}
            () = tokio::time::sleep(left) => {}
        }
        stop.cancel();
    };
    tokio::join!(server.run(stop.clone()), stopping);
    Ok(())
}

/// Both families where the node has both.
async fn listen(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        Ok(listener) => Ok(listener),
        Err(_) => TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_checked() {
        let check = |more: &str, valid: bool| {
            let base = "disk-export --certificate /c --token /t --until 2026-11-26T04:00:00Z";
            let line = format!("{base}{more}");
            let found = Arguments::try_parse_from(line.split(' '));
            assert_eq!(found.is_ok(), valid, "{line}: {found:?}");
        };
        check("", true);
        check(" --disk a=/b --files c=/d", true);
        check(" --disk a", false);
        check(" --manifests /m", false);
        check(" --manifests /m --header-secret s", true);
        check(" --backup /b/c --backup-volume root", true);
        check(" --backup /b/c", false);
        check(" --backup-volume root", false);
        check(" --port 70000", false);
    }
}
