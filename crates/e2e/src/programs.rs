//! Runs the built programs under test, and other programs that users have.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::Command;

/// The time limit of a program; those that wait for guests have lower limits of their own.
const PATIENCE: Duration = Duration::from_mins(4);

/// The output of a program and how it ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub is_success: bool,
    /// `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A built program: beside this one, or in the parent directory of a test binary.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its own path");
    let beside = own.parent();
    let is_test = beside.is_some_and(|beside| beside.ends_with("deps"));
    let built = if is_test {
        beside.and_then(Path::parent)
    } else {
        beside
    };
    let path = built.expect("programs are in a directory").join(name);
    assert!(
        path.exists(),
        "{} is not built: run `cargo build --workspace --bins`",
        path.display()
    );
    path
}

/// The directory of the launcher image and the guests.
pub fn images() -> PathBuf {
    let path = variable("FERROVIRT_IMAGES").map_or_else(|| cache().join("images"), PathBuf::from);
    assert!(
        path.join("virt-launcher.oci").exists() && path.join("guest-tiny.oci").exists(),
        "{} has no images: run `cargo xtask image launcher` and `cargo xtask guest`",
        path.display()
    );
    path
}

/// The cache directory.
pub(crate) fn cache() -> PathBuf {
    let cache = variable("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(variable("HOME").unwrap_or_default()).join(".cache"),
        PathBuf::from,
    );
    cache.join("ferrovirt")
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Runs a program with `input` on its standard input until it exits.
pub async fn run(command: &mut Command, input: &[u8]) -> Outcome {
    use tokio::io::AsyncWriteExt;
    let shown = format!("{:?}", command.as_std());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|err| panic!("start {shown}: {err}"));
    let mut stdin = child.stdin.take().expect("stdio is piped");
    // The program need not read its input.
    drop(stdin.write_all(input).await);
    drop(stdin);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
    let output = output
        .unwrap_or_else(|_| panic!("{shown} did not end within {PATIENCE:?}"))
        .unwrap_or_else(|err| panic!("run {shown}: {err}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Outcome {
        is_success: output.status.success(),
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

impl Outcome {
    /// The standard output of a program that must have succeeded.
    #[track_caller]
    pub fn success(self) -> String {
        assert!(self.is_success, "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// The standard error of a program that must have failed.
    #[track_caller]
    pub fn failure(self) -> String {
        assert!(!self.is_success, "it succeeded: {}", self.stdout);
        let text = self.stderr.trim().to_owned();
        assert!(!text.is_empty(), "it failed without a message");
        text
    }
}
