//! `disk-import version`: finds out which version of a file, an object or an image there is now. It writes nothing but
//! the termination message, whose text is `sha256:` and a sum that differs for every version.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use error_chain::error_chain;
use import_report::Report;
use sha2::{Digest as _, Sha256};

use crate::ImportError;
use crate::error::io_failed;
use crate::fetch::{Fetch, OpenEnd, Patience};
use crate::program::{Http, S3, bucket, network, report, web};
use crate::source::WebSource;

/// The first argument of the program.
pub(crate) const VERB: &str = "version";
const CHUNK: usize = 1 << 20;

/// Finds out the version of a disk image.
#[derive(Debug, Parser)]
#[command(name = "disk-import version")]
struct Arguments {
    /// File for the termination message
    #[arg(long, default_value = "/dev/termination-log")]
    termination_log: PathBuf,
    #[command(subcommand)]
    source: Source,
}

#[derive(Debug, Subcommand)]
enum Source {
    /// A file on a web server, which must name its version
    Http(Http),
    /// An object in a bucket of S3 or a server like it
    S3(S3),
    /// The disk in an image of a registry, whose root is mounted
    Image { root: PathBuf },
}

/// Runs the program with the arguments after its verb.
pub(crate) fn main(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words = std::iter::once(OsString::from(VERB)).chain(words);
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => {
            drop(error.print());
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let found = run(arguments.source);
    let (made, code) = match found {
        Ok(digest) => (Report::version(digest), ExitCode::SUCCESS),
        Err(error) => {
            let (reason, message) = (error.reason().as_str(), error_chain(&error));
            let made = Report::failure(reason, message, error.is_transient());
            (made, ExitCode::FAILURE)
        }
    };
    report(&made, &arguments.termination_log);
    code
}

fn run(source: Source) -> Result<String, ImportError> {
    match source {
        Source::Http(http) => of_web(&web(&http)?, http.authorities.as_deref()),
        Source::S3(s3) => of_web(&bucket(&s3)?, s3.authorities.as_deref()),
        Source::Image { root } => of_image(&root),
    }
}

fn of_web(source: &WebSource, authorities: Option<&Path>) -> Result<String, ImportError> {
    let network = network(source, authorities)?;
    let fetch = Fetch {
        connect: &network,
        source,
        patience: Patience::default(),
        open_end: OpenEnd::Accepted,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(io_failed("start the runtime"))?;
    let version = runtime.block_on(fetch.version())?;
    Ok(digest(Sha256::new().chain_update(version)))
}

/// The sum of the disk: whatever else changes in the image does not matter.
fn of_image(root: &Path) -> Result<String, ImportError> {
    let found = container_disk::find(root, None);
    let mut found = found.map_err(|error| ImportError::NoDisk(error.to_string()))?;
    let failed = io_failed("read the disk in the image");
    let mut buffer = vec![0; CHUNK];
    let mut hasher = Sha256::new();
    loop {
        let read = found.file.read(&mut buffer).map_err(&failed)?;
        if read == 0 {
            return Ok(digest(hasher));
        }
        hasher.update(buffer.get(..read).unwrap_or_default());
    }
}

fn digest(hasher: Sha256) -> String {
    format!("sha256:{}", hex::encode(hasher.finalize()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn version_of_an_image_is_that_of_its_disk() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk");
        fs::create_dir(&disk).unwrap();
        of_image(dir.path()).unwrap_err();
        fs::write(disk.join("a.img"), "one").unwrap();
        let first = of_image(dir.path()).unwrap();
        let expected = "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
        assert_eq!(first, expected);
        fs::write(dir.path().join("other"), "text").unwrap();
        assert_eq!(of_image(dir.path()).unwrap(), first);
        fs::write(disk.join("a.img"), "two").unwrap();
        assert_ne!(of_image(dir.path()).unwrap(), first);
    }

    #[test]
    fn command_lines_need_no_volume() {
        let check = |line: &str, valid: bool| {
            let found = Arguments::try_parse_from(line.split(' '));
            assert_eq!(found.is_ok(), valid, "{line}: {found:?}");
        };
        check("version http https://a/b --header a:b", true);
        check("version s3 s3://a/b --credentials /c", true);
        check("version image /source", true);
        check("version blank", false);
        check("version", false);
    }
}
