//! Command lines and the requests that they send, in the snapshots beside this file. The server is a list
//! of objects; it echoes what it is sent.

mod server;

use std::{ffi::OsString, time::Duration};

use super::memory_dump;
use crate::{
    cli::{self, Cli, Command},
    connect::Cluster,
    printer::Printer,
    proxy::Proxies,
    run::run_on,
};
use server::Server;

/// The requests and errors of a command line.
async fn requests(line: &str) -> String {
    let words = std::iter::once("virtctl").chain(line.split(' '));
    let cli = match Cli::from_words(cli::command(), words.map(OsString::from)) {
        Ok(cli) => cli,
        Err(err) => return format!("{}\n", err.to_string().lines().next().unwrap_or_default()),
    };
    let mut server = Server::default();
    let cluster = Cluster {
        client: server.client(),
        namespace: cli
            .connection
            .namespace
            .clone()
            .unwrap_or_else(|| "tests".to_owned()),
        proxies: Proxies::default(),
    };
    assert!(!matches!(
        cli.command,
        Command::Ssh(_) | Command::Scp(_) | Command::Create(_)
    ));
    let ended = run_on(&cluster, &cli.command, Printer).await;
    let failure = ended.err().map(|err| format!("error: {err:#}\n"));
    masked(&server.requests()) + &failure.unwrap_or_default()
}

/// Without the random ends of names of keys and random tokens.
fn masked(text: &str) -> String {
    ["{\"ssh-key-", "{\"token\":\""]
        .iter()
        .fold(text.to_owned(), |text, mark| {
            let mut parts = text.split(mark);
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |text, part| {
                let (_random, rest) = part.split_once('"').unwrap();
                format!("{text}{mark}RANDOM\"{rest}")
            })
        })
}

async fn transcript(lines: &str) -> String {
    let mut transcript = vec![];
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        transcript.push(format!("$ virtctl {line}\n{}", requests(line).await));
    }
    transcript.join("\n")
}

macro_rules! transcripts {
    ($($name:ident)*) => {$(
        #[tokio::test]
        async fn $name() {
            let lines = include_str!(concat!("cases/", stringify!($name), ".txt"));
            let transcript = transcript(lines).await;
            insta::assert_snapshot!(stringify!($name), transcript);
        }
    )*};
}

transcripts! {
    power
    services
    templates
    credentials
    volumes
    migrations
    reports
    uploads
    exports
    backups
    memory_dumps
    guestfs
}

#[tokio::test(start_paused = true)]
async fn memory_dump_that_takes_too_long_is_given_up_with_its_phase() {
    let mut server = Server::default();
    let cluster = Cluster {
        client: server.client(),
        namespace: "tests".to_owned(),
        proxies: Proxies::default(),
    };
    let limit = Duration::from_mins(2);
    let given_up = memory_dump::until_dumped(&cluster, "dump-hangs", limit).await;
    assert_eq!(
        given_up.unwrap_err().to_string(),
        "the memory dump of dump-hangs is not complete after 2 minutes (phase InProgress): see \
         `kubectl describe vm dump-hangs`"
    );
    assert_eq!(server.requests().lines().count(), 121);
}

#[tokio::test(start_paused = true)]
async fn run_makes_no_vm_for_a_file_that_is_not_uploaded() {
    let made = requests(
        "run ready --image ./Cargo.toml --ssh-key src/commands/transcripts/key.pub --uploadproxy-url \
         http://127.0.0.1:1",
    )
    .await;
    let token = "/apis/upload.cdi.kubevirt.io/v1beta1/namespaces/tests/uploadtokenrequests";
    assert_eq!(made.matches(&format!("POST {token}")).count(), 6, "{made}");
    assert!(made.contains("{\"pvcName\":\"ready-root\"}"), "{made}");
    assert!(!made.contains("POST /apis/kubevirt.io"), "{made}");
    assert!(made.contains("upload --image ./Cargo.toml: "), "{made}");
}

#[tokio::test]
async fn run_makes_a_vm_and_refuses_what_cannot_work() {
    let made = requests(
        "run debian --image quay.io/a/debian:13 --no-wait --ssh-key src/commands/transcripts/key.pub",
    )
    .await;
    let start = "POST /apis/kubevirt.io/v1/namespaces/tests/virtualmachines {";
    assert!(made.starts_with(start), "{made}");
    assert!(
        made.contains("ssh-ed25519 AAAA") && made.lines().count() == 1,
        "{made}"
    );
    for (line, expected) in [
        (
            "run file --image ./debian.qcow2",
            "read --image ./debian.qcow2",
        ),
        (
            "run full --image ./Cargo.toml --ssh-key src/commands/transcripts/key.pub",
            "VM full exists",
        ),
        (
            "run a --image b --ssh-key src/none.pub",
            "read --ssh-key src/none.pub",
        ),
        (
            "run a --image b --memory 1Gi --instancetype c",
            "cannot be used with",
        ),
        (
            "top nobody",
            "nobody does not run: `virtctl why nobody` explains why",
        ),
        ("top --interval 0", "invalid value '0'"),
    ] {
        let found = requests(line).await;
        assert!(
            found.contains(expected) && !found.contains("POST"),
            "{line}: {found}"
        );
    }
}
