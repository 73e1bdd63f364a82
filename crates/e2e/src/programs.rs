//! The programs under test, as they were built, and other programs that users have.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::Command;

/// For a program to end; those that wait for guests have bounds of their own below this.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a program said and how it ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub is_success: bool,
    pub stdout: String,
    pub stderr: String,
}

/// A program of ours: it lies beside this one, or beside the directory of this test.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a program knows its own path");
    let beside = own.parent();
    let is_test = beside.is_some_and(|beside| beside.ends_with("deps"));
    let built = if is_test {
        beside.and_then(Path::parent)
    } else {
        beside
    };
    let path = built
        .expect("it lies in a directory of built programs")
        .join(name);
    assert!(
        path.exists(),
        "{} is not built: run `cargo build --workspace --bins`",
        path.display()
    );
    path
}

/// Where the launcher image and the guests are.
pub fn images() -> PathBuf {
    let path = variable("FERROVIRT_IMAGES").map_or_else(|| cache().join("images"), PathBuf::from);
    assert!(
        path.join("virt-launcher.oci").exists() && path.join("guest-tiny.oci").exists(),
        "{} has no images: run `cargo xtask image launcher` and `cargo xtask guest`",
        path.display()
    );
    path
}

/// Where everything is kept that takes long to make.
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

/// Runs a program to its end with `input` on its standard input.
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
    let mut stdin = child.stdin.take().expect("it was asked for");
    // A program that does not read is no fault of this side.
    drop(stdin.write_all(input).await);
    drop(stdin);
    let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
    let output = output
        .unwrap_or_else(|_| panic!("{shown} did not end within {PATIENCE:?}"))
        .unwrap_or_else(|err| panic!("run {shown}: {err}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Outcome {
        is_success: output.status.success(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

impl Outcome {
    /// Standard output of a program that must have succeeded.
    #[track_caller]
    pub fn success(self) -> String {
        assert!(self.is_success, "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Standard error of a program that must have failed, and in one sentence.
    #[track_caller]
    pub fn failure(self) -> String {
        assert!(!self.is_success, "it went well: {}", self.stdout);
        let text = self.stderr.trim().to_owned();
        assert!(!text.is_empty(), "it failed without a word");
        text
    }
}
