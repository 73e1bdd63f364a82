//! Runs the component of a command line until the kubelet stops it.

use anyhow::{Context, Result};
use cluster_view::Configuration;
use installation::{API_ACCOUNT, CONTROLLER_ACCOUNT, HANDLER_ACCOUNT};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    api,
    cli::{Command, Place},
    client, controller, handler,
    notices::{Notices, notices},
    rights,
};

/// The parts of the process that every component uses.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) client: Client,
    /// The component and its service account.
    pub(crate) component: &'static str,
    pub(crate) account: &'static str,
    pub(crate) notices: Notices,
    /// The administrator's configuration, kept current by the component.
    pub(crate) cluster: Configuration,
    pub(crate) namespace: String,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

/// Runs a component until it ends.
pub fn run(command: &Command) -> Result<()> {
    let place = match command {
        Command::Api(flags) => &flags.place,
        Command::Controller(flags) => &flags.place,
        Command::Handler(flags) => &flags.place,
    };
    let style = logging::Style {
        format: place.log_format,
        colours: false,
        modules: true,
    };
    logging::start(&place.log, style)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(Box::pin(component(command, place)))
}

async fn component(command: &Command, place: &Place) -> Result<()> {
    let (refused, refusals) = rights::refusals();
    let client = client::in_pod(&refused).await?;
    let (component, account) = match command {
        Command::Api(_) => ("virt-api", API_ACCOUNT),
        Command::Controller(_) => ("virt-controller", CONTROLLER_ACCOUNT),
        Command::Handler(_) => ("virt-handler", HANDLER_ACCOUNT),
    };
    let (notices, writing) = notices(client.clone(), component, place);
    let process = Process {
        client,
        component,
        account,
        notices,
        cluster: Configuration::new(&place.namespace),
        namespace: place.namespace.clone(),
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
    };
    process.tasks.spawn(writing.run(process.stop.clone()));
    process
        .tasks
        .spawn(rights::watch(process.clone(), refusals));
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let stop = process.stop.clone();
    let ended = {
        let work = async {
            let stopped = process
                .stop
                .run_until_cancelled(rights::wait_for_any(&process));
            if stopped.await.is_none() {
                return Ok(());
            }
            match command {
                Command::Api(flags) => Box::pin(api::run(&process, flags)).await,
                Command::Controller(flags) => Box::pin(controller::run(&process, flags)).await,
                Command::Handler(flags) => Box::pin(handler::run(&process, flags)).await,
            }
        };
        tokio::pin!(work);
        tokio::select! {
            ended = &mut work => ended,
            _ = terminate.recv() => {
                stop.cancel();
                work.await
            }
        }
    };
    stop.cancel();
    process.tasks.close();
    process.tasks.wait().await;
    ended
}
