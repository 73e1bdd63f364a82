//! The program: its arguments, and how it reports its end.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use error_chain::error_chain;
use import_report::Report;
use jiff::Timestamp;

use crate::connect::Network;
use crate::convert::{CONFINED, Converter, become_confined};
use crate::disk::Place;
use crate::error::io_failed;
use crate::fetch::{Fetch, OpenEnd, Patience};
use crate::google::Account;
use crate::pipeline::{Content, Import, Pipeline};
use crate::progress::log;
use crate::source::{Credentials, WebSource};
use crate::{Checksum, ImportError, files, restore, upload, version};

const OWN: &str = "/proc/self/exe";
/// The longest file of credentials, headers or certificates.
const MOST_BYTES: u64 = 1 << 20;

/// Fills a volume with a disk image.
#[derive(Debug, Parser)]
#[command(name = "disk-import", version)]
struct Arguments {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    source: Source,
}

#[derive(Debug, Args)]
struct Target {
    /// Directory in which the file disk.img is made
    #[arg(
        long,
        conflicts_with = "device",
        requires = "size",
        required_unless_present = "device"
    )]
    directory: Option<PathBuf>,
    /// Block device to fill
    #[arg(long)]
    device: Option<PathBuf>,
    /// Size of the disk in a directory, in bytes
    #[arg(long)]
    size: Option<u64>,
    /// Directory for images that must be converted
    #[arg(long, default_value = "/scratch")]
    scratch: PathBuf,
    /// File for the termination message
    #[arg(long, default_value = "/dev/termination-log")]
    termination_log: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Source {
    /// A file on a web server
    Http(Http),
    /// An object in a bucket of S3 or a server like it
    S3(S3),
    /// The disk in an image of a registry, whose root is mounted
    Image { root: PathBuf },
    /// The disk of another volume: its directory or device
    Clone { from: PathBuf },
    /// A file that a client sends by HTTP to a unix socket
    Upload { socket: PathBuf },
    /// A disk of zeros
    Blank,
    /// The disk that the volume has already, which gets its size
    Expand,
    /// A volume of a backup: the root of the claim of the backup, the directory in it, and the volume
    Restore {
        root: PathBuf,
        directory: String,
        volume: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Http {
    /// Address, http or https
    url: String,
    /// Checksum of the file, as sha256:HEX or sha512:HEX
    #[arg(long)]
    checksum: Option<Checksum>,
    /// Directory with PEM files of authorities to trust besides the public ones
    #[arg(long)]
    pub(crate) authorities: Option<PathBuf>,
    /// Directory with the files accessKeyId and secretKey: user and password; or with credentials.json: the key of a
    /// service account of Google
    #[arg(long)]
    credentials: Option<PathBuf>,
    /// Header to send, as "name: value"
    #[arg(long = "header")]
    headers: Vec<String>,
    /// Directory with files that each contain a header
    #[arg(long = "headers-from")]
    headers_from: Vec<PathBuf>,
    /// The file is the disk byte by byte, whatever it begins with
    #[arg(long)]
    raw: bool,
}

#[derive(Debug, Args)]
pub(crate) struct S3 {
    /// Address: `s3://BUCKET/KEY`, or http or https
    url: String,
    /// Checksum of the object, as sha256:HEX or sha512:HEX
    #[arg(long)]
    checksum: Option<Checksum>,
    /// Directory with PEM files of authorities to trust besides the public ones
    #[arg(long)]
    pub(crate) authorities: Option<PathBuf>,
    /// Directory with the files accessKeyId and secretKey
    #[arg(long)]
    credentials: Option<PathBuf>,
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let verb = words.nth(1);
    if verb.as_ref().is_some_and(|word| word == CONFINED) {
        let words: Vec<OsString> = words.collect();
        log(format_args!("{}", become_confined(&words)));
        return ExitCode::from(2);
    }
    if verb.as_ref().is_some_and(|word| word == version::VERB) {
        return version::main(words);
    }
    if verb.is_some_and(|word| word == restore::INSPECT) {
        return restore::inspect_main(words);
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let termination_log = arguments.target.termination_log.clone();
    let place = arguments.target.place();
    let (report, code) = match run(arguments, &place) {
        Ok(report) => {
            log(format_args!("{}", import_report::progress(1000)));
            (report, ExitCode::SUCCESS)
        }
        Err(error) => {
            let (reason, message) = (error.reason().as_str(), error_chain(&error));
            let mut report = Report::failure(reason, message, error.is_transient());
            report.is_intact = place.has_disk();
            (report, ExitCode::FAILURE)
        }
    };
    self::report(&report, &termination_log);
    code
}

/// Writes the termination message.
pub(crate) fn report(report: &Report, termination_log: &Path) {
    log(format_args!("{}", report.message));
    if let Err(error) = fs::write(termination_log, report.text()) {
        log(format_args!("write {}: {error}", termination_log.display()));
    }
}

impl Target {
    fn place(&self) -> Place {
        match (self.directory.clone(), self.device.clone()) {
            (_, Some(device)) => Place::Device(device),
            (directory, None) => Place::Directory {
                path: directory.unwrap_or_default(),
                size: self.size.unwrap_or_default(),
            },
        }
    }
}

fn run(arguments: Arguments, place: &Place) -> Result<Report, ImportError> {
    let target = arguments.target;
    let import = |checksum| Import {
        place: place.clone(),
        content: Content::Image,
        scratch: target.scratch.clone(),
        checksum,
        converter: Converter::confined(OWN.into()),
    };
    let bytes = match arguments.source {
        Source::Restore {
            root,
            directory,
            volume,
        } => {
            let restored = restore::restore(&root, &directory, &volume, place)?;
            return Ok(Report::restored(restored.bytes, restored.verified));
        }
        Source::Blank => files::blank(place),
        Source::Expand => files::expand(place),
        Source::Upload { socket } => upload::receive(&socket, &import(None)),
        Source::Clone { from } => files::clone(&from, place),
        Source::Image { root } => files::image(&root, import(None)),
        Source::Http(http) => {
            let mut import = import(http.checksum.clone());
            if http.raw {
                import.content = Content::Disk;
            }
            download(&web(&http)?, http.authorities.as_deref(), import)
        }
        Source::S3(s3) => {
            let import = import(s3.checksum.clone());
            download(&bucket(&s3)?, s3.authorities.as_deref(), import)
        }
    };
    bytes.map(Report::success)
}

pub(crate) fn web(http: &Http) -> Result<WebSource, ImportError> {
    let directory = http.credentials.as_deref();
    let account = directory.map(account).transpose()?.flatten();
    let credentials = match directory.filter(|_| account.is_none()) {
        Some(directory) => Some(credentials(directory)?),
        None => None,
    };
    let mut headers = http.headers.clone();
    for directory in &http.headers_from {
        for content in contents(directory)? {
            headers.push(text(content)?);
        }
    }
    let source = WebSource::new(&http.url, credentials.as_ref(), &headers)?;
    match account {
        Some(account) => source.with_account(account),
        None => Ok(source),
    }
}

pub(crate) fn bucket(s3: &S3) -> Result<WebSource, ImportError> {
    let credentials = s3.credentials.as_deref().map(credentials).transpose()?;
    WebSource::in_bucket(&s3.url, credentials.as_ref(), Timestamp::now)
}

fn download(
    source: &WebSource,
    authorities: Option<&Path>,
    import: Import,
) -> Result<u64, ImportError> {
    let network = network(source, authorities)?;
    let open_end = match import.checksum {
        Some(_) => OpenEnd::Accepted,
        None => OpenEnd::Refused,
    };
    let mut pipeline = Pipeline::new(import)?;
    let fetch = Fetch {
        connect: &network,
        source,
        patience: Patience::default(),
        open_end,
    };
    // Connections are read by the other thread while this one writes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(io_failed("start the runtime"))?;
    runtime.block_on(fetch.run(&mut pipeline))?;
    pipeline.finish()
}

/// Connections that trust the public authorities and those in a directory.
pub(crate) fn network(
    source: &WebSource,
    authorities: Option<&Path>,
) -> Result<Network, ImportError> {
    let authorities = match authorities {
        Some(directory) => contents(directory)?,
        None => Vec::new(),
    };
    Network::new(&authorities).map_err(|problem| ImportError::Address {
        address: source.url.host_str().unwrap_or_default().to_owned(),
        problem: format!("its authorities: {problem}"),
    })
}

/// The account of Google whose key is there, if there is one.
fn account(directory: &Path) -> Result<Option<Account>, ImportError> {
    let path = directory.join("credentials.json");
    if !path.exists() {
        return Ok(None);
    }
    let account = Account::parse(&content(&path)?, Timestamp::now);
    let account = account.map_err(|problem| ImportError::Address {
        address: "Google".to_owned(),
        problem: problem.to_owned(),
    })?;
    Ok(Some(account))
}

fn credentials(directory: &Path) -> Result<Credentials, ImportError> {
    let read = |name: &str| text(content(&directory.join(name))?);
    Ok(Credentials {
        user: read("accessKeyId")?,
        password: read("secretKey")?,
    })
}

/// The files that a kubelet puts into a directory; its own names begin with two dots.
fn contents(directory: &Path) -> Result<Vec<Vec<u8>>, ImportError> {
    let failed = io_failed("read the files of the source's secrets and config maps");
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        if !entry.file_name().to_string_lossy().starts_with("..") {
            paths.push(entry.path());
        }
    }
    paths.sort();
    paths.iter().map(|path| content(path)).collect()
}

fn content(path: &Path) -> Result<Vec<u8>, ImportError> {
    let failed = io_failed("read the files of the source's secrets and config maps");
    let length = fs::metadata(path).map_err(&failed)?.len();
    if length > MOST_BYTES {
        return Err(failed(io::ErrorKind::FileTooLarge.into()));
    }
    fs::read(path).map_err(failed)
}

fn text(bytes: Vec<u8>) -> Result<String, ImportError> {
    let failed = io_failed("read the files of the source's secrets and config maps");
    let text = String::from_utf8(bytes).map_err(|_| failed(io::ErrorKind::InvalidData.into()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_checked() {
        let check = |line: &str, valid: bool| {
            let found = Arguments::try_parse_from(line.split(' '));
            assert_eq!(found.is_ok(), valid, "{line}: {found:?}");
        };
        check("disk-import --directory /a --size 1 blank", true);
        check("disk-import --device /dev/a blank", true);
        check("disk-import --directory /a --size 1 expand", true);
        check(
            "disk-import --device /dev/a http http://a/b --header a:b",
            true,
        );
        check("disk-import --device /dev/a upload /upload/socket", true);
        check(
            "disk-import --device /dev/a s3 s3://a/b --credentials /c",
            true,
        );
        check(
            "disk-import --device /dev/a s3 s3://a/b --header a:b",
            false,
        );
        check("disk-import --device /dev/a restore /backup d root", true);
        check("disk-import --device /dev/a restore /backup d", false);
        check("disk-import --directory /a blank", false);
        check(
            "disk-import --directory /a --size 1 --device /b blank",
            false,
        );
        check("disk-import blank", false);
        check("disk-import --device /a http u --checksum md5:0", false);
    }

    #[test]
    fn files_of_a_secret_are_read_without_those_of_the_kubelet() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("accessKeyId", "me\n"),
            ("secretKey", "p w"),
            ("..data", "x"),
        ] {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let found = credentials(dir.path()).unwrap();
        assert_eq!(
            (found.user.as_str(), found.password.as_str()),
            ("me", "p w")
        );
        assert_eq!(contents(dir.path()).unwrap().len(), 2);
        assert!(credentials(Path::new("/nowhere")).is_err());
    }
}
