//! `ui`: the web console, on a local port, with the rights of the kubeconfig's user.

use std::sync::Arc;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use tokio::{net::TcpListener, process::Command};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use web_console::{Access, Console, Sessions, serve};

use crate::{cli::Ui, connect::Cluster, ports, printer::Printer};

/// The programs that open a link in the user's browser.
const OPENER: &str = if cfg!(target_os = "macos") {
    "open"
} else if cfg!(windows) {
    "explorer"
} else {
    "xdg-open"
};

/// Serves until the program is ended.
pub(crate) async fn ui(cluster: &Cluster, printer: Printer, options: &Ui) -> Result<()> {
    // Other hosts cannot connect: the console has the user's rights.
    let listener = TcpListener::bind(("127.0.0.1", options.port))
        .await
        .map_err(|error| ports::not_offered(&format!("127.0.0.1:{}", options.port), error))?;
    let address = listener.local_addr().context("read the local port")?;
    let sessions = Arc::new(Sessions::default());
    let console = Console {
        access: Access::Links {
            client: cluster.client.clone(),
            sessions: Arc::clone(&sessions),
            namespace: cluster.namespace.clone(),
        },
        now: Timestamp::now,
        tickets: None,
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    };
    let links = async {
        let mut is_first = true;
        loop {
            let link = sessions.issue_link()?;
            let url = format!("http://{address}/console/#link={}", link.secret());
            if is_first {
                printer.note("The console, for one browser tab; Ctrl+C ends it:");
            } else {
                printer.note("The link was used. For another tab:");
            }
            printer.line(&url);
            if is_first && !options.no_browser {
                open(printer, &url);
            }
            is_first = false;
            sessions.link_used().await;
        }
    };
    tokio::select! {
        served = serve(listener, console) => served.context("serve the console"),
        ended = links => ended,
    }
}

/// Without a desktop the user opens the link that was printed.
fn open(printer: Printer, url: &str) {
    let null = std::process::Stdio::null;
    let started = Command::new(OPENER)
        .arg(url)
        .stdin(null())
        .stdout(null())
        .stderr(null())
        .spawn();
    if let Err(error) = started {
        printer.note(&format!("No browser was opened ({OPENER}: {error})."));
    }
}
