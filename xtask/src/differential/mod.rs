//! `xtask differential`: our API server and a real one, asked the same.
//!
//! - the real one is a kube-apiserver with its etcd, bound to our life ([`crate::kube_apiserver`]);
//! - `ours` is the embedded API server, in this process and in memory;
//! - `script` reads the requests, which are data under `xtask/differential`;
//! - `ask` sends one to a server, `normal` removes from the response what differs by nature;
//! - `compare` finds differences, `known` holds the listed ones with their reasons.
//!
//! **Invariants**: both servers start empty and get the same definitions; each scenario has a
//! namespace of its own and its requests run in sequence; a difference that is listed but
//! did not occur is a failure, too.

mod ask;
mod compare;
mod known;
mod normal;
mod ours;
mod script;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use self::{
    ask::{Asker, Variables},
    compare::Difference,
    script::{Scenario, Step},
};
use crate::{
    kube_apiserver::{Durability, KubeApiServer},
    kubernetes,
    printer::Printer,
    workspace::root,
};

/// Scenarios at once.
const AT_ONCE: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only scenarios with this text in their name; unused entries of known.yaml are then ignored.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Show every answer of both servers.
    #[arg(long)]
    verbose: bool,
    /// Write what differs to this file, in the form of the list of known differences.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// What one run found.
#[derive(Debug, Default)]
struct Findings {
    requests: usize,
    differences: Vec<Difference>,
}

/// Builds missing programs, sends the requests, compares the responses; the last line has the counts.
pub(crate) fn run(printer: &Printer, options: &Options) -> Result<()> {
    let directory = root().join("xtask/differential");
    let scenarios = script::read(&directory)?;
    let programs = kubernetes::control_plane(printer)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    let findings = runtime.block_on(Box::pin(async {
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        // Started on this thread, which lives as long as the process: they die with it.
        let parent = std::env::temp_dir();
        let mut real = KubeApiServer::start(&programs, &parent, Durability::Unsynced)?;
        let outcome = tokio::select! {
            outcome = Box::pin(all(printer, options, &scenarios, &real)) => outcome,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
            _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
        };
        let outcome = outcome.with_context(|| real.end_of_logs());
        real.stop().await?;
        outcome
    }))?;
    report(printer, options, findings)
}

async fn all(
    printer: &Printer,
    options: &Options,
    scenarios: &[Scenario],
    real: &KubeApiServer,
) -> Result<Findings> {
    let ours = ours::start().await?;
    let theirs = real.client().await?;
    let servers = [Asker::new(ours), Asker::new(theirs)];
    for server in &servers {
        load_definitions(server).await?;
    }
    let wanted = |scenario: &&Scenario| {
        options
            .only
            .as_ref()
            .is_none_or(|text| scenario.name.contains(text.as_str()))
    };
    let found: Vec<Findings> = futures::stream::iter(scenarios.iter().filter(wanted).enumerate())
        .map(|(number, scenario)| {
            let servers = &servers;
            async move {
                play(printer, options, servers, scenario, number)
                    .await
                    .with_context(|| format!("scenario {:?}", scenario.name))
            }
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    let mut all = Findings::default();
    for findings in found {
        all.requests += findings.requests;
        all.differences.extend(findings.differences);
    }
    Ok(all)
}

/// The definitions of our kinds, and those made for these scenarios.
async fn load_definitions(server: &Asker) -> Result<()> {
    let mut definitions = Vec::new();
    for directory in ["deploy/crds", "xtask/differential/crds"] {
        let directory = root().join(directory);
        let entries = fs::read_dir(&directory)
            .with_context(|| format!("read {}", directory.display()))?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?;
        for path in entries {
            let text = fs::read_to_string(&path)?;
            let definition: Value = serde_saphyr::from_str(&text)
                .with_context(|| format!("read {}", path.display()))?;
            definitions.push(definition);
        }
    }
    for definition in &definitions {
        server.define(definition).await?;
    }
    for definition in &definitions {
        server.await_kind(definition).await?;
    }
    Ok(())
}

/// Puts the requests of one scenario to both servers.
async fn play(
    printer: &Printer,
    options: &Options,
    servers: &[Asker; 2],
    scenario: &Scenario,
    number: usize,
) -> Result<Findings> {
    let mut found = Findings::default();
    let mut variables = [Variables::new(number), Variables::new(number)];
    for server in servers {
        server.make_namespace(&variables[0]).await?;
    }
    for (at, step) in scenario.steps.iter().enumerate() {
        let name = format!("{} / {} {}", scenario.name, at + 1, step.ask);
        let [ours, theirs] = &mut variables;
        let (ours, theirs) = tokio::try_join!(
            answer(&servers[0], step, ours),
            answer(&servers[1], step, theirs)
        )
        .with_context(|| format!("request {name:?}"))?;
        if options.verbose {
            printer.line(format_args!("{name}\n  ours   {ours}\n  theirs {theirs}"));
        }
        found.requests += 1;
        found
            .differences
            .extend(compare::differences(&name, &ours, &theirs));
    }
    Ok(found)
}

/// The normalised answer to one step.
async fn answer(server: &Asker, step: &Step, variables: &mut Variables) -> Result<Value> {
    let raw = server.ask_until(step, variables).await?;
    variables.keep(&step.keep, &raw);
    let mut answer = normal::normalise(raw, variables);
    for pointer in &step.ignore {
        if let Some(value) = answer.pointer_mut(pointer) {
            *value = "<ignored>".into();
        }
    }
    Ok(answer)
}

fn report(printer: &Printer, options: &Options, findings: Findings) -> Result<()> {
    let Findings {
        requests,
        differences,
    } = findings;
    if let Some(path) = &options.write {
        known::write(path, &differences)?;
    }
    let (unknown, vanished) = known::split(differences, options.only.is_none())?;
    for difference in &unknown {
        printer.line(difference);
    }
    for difference in &vanished {
        printer.line(format_args!("listed, but the same on both: {difference}"));
    }
    printer.result(format_args!(
        "{requests} requests, {} differences",
        unknown.len() + vanished.len()
    ))?;
    if unknown.is_empty() && vanished.is_empty() {
        return Ok(());
    }
    bail!("the servers differ")
}
