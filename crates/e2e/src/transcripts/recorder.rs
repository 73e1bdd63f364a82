//! Calls `virtctl`, and keeps what it prints by the name of the command.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    process::{ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};

use super::{files, masks::masked};
use crate::{DEADLINE, Environment, Outcome, TestNamespace, run};

/// Commands whose second word is a command, too.
const GROUPS: [&str; 6] = [
    "adm",
    "backup",
    "create",
    "credentials",
    "template",
    "vmexport",
];

/// The calls of a test, by the file of their command.
#[derive(Debug)]
pub struct Transcripts<'a, H: Environment> {
    test: &'a TestNamespace<H>,
    /// Texts of this run and what stands for them, longer ones first.
    replaced: Vec<(String, String)>,
    files: BTreeMap<String, String>,
}

impl<'a, H: Environment> Transcripts<'a, H> {
    pub fn of(test: &'a TestNamespace<H>) -> Self {
        let mut new = Self {
            test,
            replaced: Vec::new(),
            files: BTreeMap::new(),
        };
        new.replace(&test.namespace, "NAMESPACE");
        new
    }

    /// From now on `mask` stands for this text of the run.
    pub fn replace(&mut self, text: &str, mask: &str) {
        if !text.is_empty() {
            self.replaced.push((text.to_owned(), mask.to_owned()));
            self.replaced
                .sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        }
    }

    /// Calls `virtctl` with the words of a line.
    pub async fn call(&mut self, line: &str) -> Outcome {
        let words: Vec<&str> = line.split(' ').collect();
        self.call_words(&words).await
    }

    /// The same with words that may have spaces.
    pub async fn call_words(&mut self, words: &[&str]) -> Outcome {
        let outcome = self.run(words).await;
        let shown = shown(words);
        self.record(words, &shown, &outcome);
        outcome
    }

    /// Calls `virtctl`, and keeps only the lines of its output that contain a text.
    pub async fn call_for(&mut self, line: &str, text: &str) -> Outcome {
        let words: Vec<&str> = line.split(' ').collect();
        let outcome = self.run(&words).await;
        let lines = outcome.stdout.lines().filter(|line| line.contains(text));
        let part = Outcome {
            stdout: lines.collect::<Vec<_>>().join("\n"),
            ..outcome.clone()
        };
        let shown = format!("{} | grep {}", shown(&words), quoted(text));
        self.record(&words, &shown, &part);
        outcome
    }

    /// Starts a command that does not end by itself, sends it an input, waits until it prints a text, and interrupts
    /// it. The transcript has its output up to that text.
    pub async fn interrupt_after(&mut self, line: &str, input: &[u8], text: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = self.command(&words);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("start virtctl");
        let outcome = timeout(DEADLINE, interrupted_after(&mut child, input, text)).await;
        let outcome =
            outcome.unwrap_or_else(|_| panic!("`virtctl {line}` does not print {text:?}"));
        self.record(&words, &shown(&words), &outcome);
    }

    /// Compares all that was recorded with the files.
    pub fn check(self) {
        files::compare(&self.files);
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.test.environment.virtctl();
        command.args(["--namespace", &self.test.namespace]);
        // Colours and language do not depend on who runs the test.
        command
            .args(words)
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C.UTF-8");
        command
    }

    async fn run(&self, words: &[&str]) -> Outcome {
        run(&mut self.command(words), b"").await
    }

    fn record(&mut self, words: &[&str], shown: &str, outcome: &Outcome) {
        let mut text = format!("$ {shown}\n");
        for line in outcome.stdout.lines() {
            text.push_str(line);
            text.push('\n');
        }
        for line in outcome.stderr.lines() {
            text.push_str("! ");
            text.push_str(line);
            text.push('\n');
        }
        match outcome.code {
            Some(0) => {}
            Some(code) => writeln!(text, "exit code {code}").expect("a string takes text"),
            None => text.push_str("killed\n"),
        }
        let text = masked(&text, &self.replaced);
        let file = self.files.entry(file(words)).or_default();
        file.push_str(&text);
        file.push('\n');
    }
}

async fn interrupted_after(child: &mut Child, input: &[u8], text: &str) -> Outcome {
    let mut stdin = child.stdin.take().expect("stdio is piped");
    let mut stdout = child.stdout.take().expect("stdio is piped");
    let mut stderr = child.stderr.take().expect("stdio is piped");
    stdin.write_all(input).await.expect("write to virtctl");
    let mut printed = Vec::new();
    let mut notes = Vec::new();
    let reading = async {
        loop {
            let seen = String::from_utf8_lossy(&printed).into_owned();
            if let Some(at) = seen.find(text) {
                return seen.get(..at + text.len()).unwrap_or_default().to_owned();
            }
            let count = stdout.read_buf(&mut printed).await.expect("read virtctl");
            assert!(count > 0, "virtctl ended before {text:?}, after {seen:?}");
        }
    };
    let pid = child.id().and_then(|id| i32::try_from(id).ok());
    let stdout = reading.await;
    let pid = pid.and_then(Pid::from_raw).expect("virtctl runs");
    kill_process(pid, Signal::INT).expect("interrupt virtctl");
    stderr
        .read_to_end(&mut notes)
        .await
        .expect("read the notes of virtctl");
    let status: ExitStatus = child.wait().await.expect("wait for virtctl");
    Outcome {
        is_success: status.success(),
        code: status.code(),
        stdout,
        stderr: String::from_utf8_lossy(&notes).into_owned(),
    }
}

/// The file of a command, by the words that name it.
fn file(words: &[&str]) -> String {
    match words {
        ["vnc", "screenshot", ..] => "vnc-screenshot".to_owned(),
        [group, command, ..] if GROUPS.contains(group) => format!("{group}-{command}"),
        [command, ..] => (*command).to_owned(),
        [] => panic!("name a command"),
    }
}

/// The line that a user types.
fn shown(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("virtctl {}", words.join(" "))
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@,+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{word}'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_named_after_the_command() {
        for (line, expected) in [
            ("start web", "start"),
            ("vnc web --proxy-only", "vnc"),
            ("vnc screenshot web", "vnc-screenshot"),
            ("credentials set-password web", "credentials-set-password"),
            ("memory-dump get web", "memory-dump"),
        ] {
            assert_eq!(file(&line.split(' ').collect::<Vec<_>>()), expected);
        }
    }

    #[test]
    fn line_is_what_a_user_types() {
        assert_eq!(shown(&["ssh", "a", "ls /"]), "virtctl ssh a 'ls /'");
    }
}
