//! Built images on their way to a registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use image_store::{Digest, Package, Progress, Push, Transport};
use parking_lot::Mutex;

use crate::cache;
use crate::image::megabytes;
use crate::logins;
use crate::printer::Printer;

/// What an installation takes, and the guests of the examples.
const BUILT: [&str; 4] = [
    "ferrovirt",
    "virt-launcher",
    "guest-tiny",
    "guest-tiny-kernel",
];
/// Smaller blobs arrive before anybody wonders.
const LARGE: u64 = 8_000_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The registry, with an optional path that replaces that of the images.
    #[arg(
        long,
        value_name = "HOST[:PORT][/PATH]",
        default_value = "localhost:5000"
    )]
    to: String,
    /// Their tag, in place of the one they were built with.
    #[arg(long)]
    tag: Option<String>,
    /// Speak HTTP without TLS, which is done unasked with registries of this machine only.
    #[arg(long)]
    plain_http: bool,
    /// Built images by their names, or OCI layouts and archives by their paths; all that are built
    /// if none is named.
    #[arg(value_name = "IMAGE")]
    images: Vec<String>,
}

/// Pushes images and prints their digests.
pub(crate) fn run(printer: &Printer, options: &Options) -> Result<()> {
    let built = cache::directory()?.join("images");
    let names = if options.images.is_empty() {
        BUILT.map(str::to_owned).to_vec()
    } else {
        options.images.clone()
    };
    // All that can be wrong here is, before anything is sent.
    let mut packages = Vec::new();
    for name in &names {
        let place = place(&built, name)?;
        let package = Package::open(&place)?;
        let target = target(package.name(), options)
            .with_context(|| format!("name the image of {}", place.display()))?;
        packages.push((package, target));
    }
    let registry = options.to.split('/').next().unwrap_or_default();
    let credentials = logins::of(registry)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    for (package, target) in packages {
        printer.line(format_args!("pushing {target}"));
        let how = Push {
            credentials: credentials.clone(),
            transport: if options.plain_http {
                Transport::Plain
            } else {
                Transport::TlsUnlessLoopback
            },
            listener: listener(),
        };
        let pushed = runtime.block_on(package.push(&target.to_string(), &how));
        pushed.with_context(|| match how.transport {
            Transport::TlsUnlessLoopback => {
                format!("push {target} (--plain-http if its registry has no TLS)")
            }
            Transport::Plain => format!("push {target}"),
        })?;
        printer.result(format_args!("{}@{}", target.repository, package.digest()))?;
    }
    Ok(())
}

/// The target reference of an image.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    repository: String,
    tag: String,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.repository, self.tag)
    }
}

fn target(name: &str, options: &Options) -> Result<Target> {
    let own = name.split_once('@').map_or(name, |(own, _)| own);
    // A colon before the last slash belongs to a port.
    let (path, tag) = match own.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, tag),
        _ => (own, "latest"),
    };
    ensure!(
        !path.is_empty(),
        "its layout has no name; build it with cargo xtask image"
    );
    let to = options.to.trim_end_matches('/');
    ensure!(
        !to.contains("://"),
        "--to takes a registry such as registry.example/team, and no address"
    );
    let last = path.rsplit('/').next().unwrap_or(path);
    let path = match path.split_once('/') {
        _ if to.contains('/') => last,
        // Built for another registry.
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => rest,
        _ => path,
    };
    Ok(Target {
        repository: format!("{to}/{path}"),
        tag: options.tag.clone().unwrap_or_else(|| tag.to_owned()),
    })
}

fn place(built: &Path, name: &str) -> Result<PathBuf> {
    let path = PathBuf::from(name);
    if path.exists() {
        return Ok(path);
    }
    let place = built.join(format!("{name}.oci"));
    ensure!(
        place.exists(),
        "there is no {}; build images with: cargo xtask image control-plane, cargo xtask image \
         launcher, cargo xtask guest",
        place.display()
    );
    Ok(place)
}

/// Reports existing blobs, finished uploads, and each quarter of a large upload.
fn listener() -> image_store::ProgressListener {
    let quarters: Mutex<BTreeMap<Digest, u64>> = Mutex::default();
    Arc::new(move |digest, size, progress| {
        let state = match progress {
            Progress::AlreadyPresent => "is there already".to_owned(),
            Progress::Done => "pushed".to_owned(),
            Progress::Sent(sent) => {
                let quarter = quarter(sent, size);
                let mut quarters = quarters.lock();
                let printed = quarters.entry(digest.clone()).or_default();
                if quarter <= *printed {
                    return;
                }
                *printed = quarter;
                format!("{}%", quarter * 25)
            }
        };
        let short: String = digest.hex().chars().take(12).collect();
        Printer::new().line(format_args!("  {short}  {:>9}  {state}", megabytes(size)));
    })
}

/// The finished quarters of a large upload; none for small ones and at the end.
fn quarter(sent: u64, size: u64) -> u64 {
    if size < LARGE || sent >= size {
        return 0;
    }
    sent.saturating_mul(4).checked_div(size).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn options(to: &str, tag: Option<&str>) -> Options {
        Options {
            to: to.to_owned(),
            tag: tag.map(str::to_owned),
            plain_http: false,
            images: Vec::new(),
        }
    }

    #[test]
    fn images_stand_where_they_are_wanted() {
        for (name, to, tag, expected) in [
            (
                "ferrovirt/guest:devel",
                "localhost:5000",
                None,
                "localhost:5000/ferrovirt/guest:devel",
            ),
            (
                "ferrovirt/guest:devel",
                "r.example",
                Some("1.0"),
                "r.example/ferrovirt/guest:1.0",
            ),
            (
                "ferrovirt/guest:devel",
                "r.example/team/",
                None,
                "r.example/team/guest:devel",
            ),
            (
                "docker.io/ferrovirt/guest:1",
                "r.example",
                None,
                "r.example/ferrovirt/guest:1",
            ),
            (
                "old:5000/guest",
                "r.example",
                None,
                "r.example/guest:latest",
            ),
            (
                "guest",
                "r.example:1/a/b",
                None,
                "r.example:1/a/b/guest:latest",
            ),
        ] {
            let found = target(name, &options(to, tag)).expect(name);
            assert_eq!(found.to_string(), expected, "{name} {to}");
        }
        for (name, to, why) in [
            ("", "r.example", "has no name"),
            ("guest", "https://r.example", "no address"),
        ] {
            let error = target(name, &options(to, None)).expect_err(name);
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn large_blobs_are_told_of_by_quarters() {
        for (sent, size, expected) in [
            (1, 2, 0),
            (LARGE / 5, LARGE, 0),
            (LARGE / 2, LARGE, 2),
            (LARGE - 1, LARGE, 3),
            (LARGE, LARGE, 0),
            (0, 0, 0),
        ] {
            assert_eq!(quarter(sent, size), expected, "{sent} of {size}");
        }
    }

    #[test]
    fn an_image_that_is_not_built_says_how_to() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = place(directory.path(), "virt-launcher").expect_err("nothing is there");
        assert!(
            error.to_string().contains("cargo xtask image launcher"),
            "{error}"
        );
        fs::create_dir(directory.path().join("virt-launcher.oci")).expect("make a directory");
        let found = place(directory.path(), "virt-launcher").expect("it is there");
        assert_eq!(found, directory.path().join("virt-launcher.oci"));
    }
}
