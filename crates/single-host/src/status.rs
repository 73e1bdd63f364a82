//! Reports whether Ferrovirt is up, and its VMs.

use anyhow::{Context, Result};
use kube::{
    Api, Client, Config, ResourceExt,
    api::ListParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use kubevirt_api::VirtualMachine;
use serde::Serialize;

use crate::{
    cli,
    printer::Printer,
    state_dir::{Locked, StateDir},
    up::{Remembered, Virtualization},
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    up: bool,
    state_dir: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guests_run_by: Option<Virtualization>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    virtual_machines: Vec<Vm>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Vm {
    namespace: String,
    name: String,
    status: String,
}

pub(crate) fn status(flags: &cli::Status, printer: Printer) -> Result<()> {
    let report = report(flags)?;
    match flags.output {
        Some(cli::Output::Json) => printer.line(&serde_json::to_string_pretty(&report)?),
        Some(cli::Output::Yaml) => printer.line(serde_saphyr::to_string(&report)?.trim_end()),
        None => describe(&report, printer),
    }
    Ok(())
}

fn describe(report: &Report, printer: Printer) {
    if !report.up {
        printer.line(&format!("Ferrovirt is down ({}).", report.state_dir));
        return;
    }
    let process = report
        .process
        .map_or_else(String::new, |pid| format!(", process {pid}"));
    printer.line(&format!("Ferrovirt is up ({}{process}).", report.state_dir));
    for (name, value) in [
        ("API server", &report.api_server),
        ("kubeconfig", &report.kubeconfig),
    ] {
        if let Some(value) = value {
            printer.line(&format!("{name}: {value}"));
        }
    }
    if let Some(guests) = &report.guests_run_by {
        printer.line(&format!("guests run by {guests}"));
    }
    for vm in &report.virtual_machines {
        printer.line(&format!("VM {}/{}: {}", vm.namespace, vm.name, vm.status));
    }
}

fn report(flags: &cli::Status) -> Result<Report> {
    let path = &flags.state.state_dir;
    let mut report = Report {
        up: false,
        state_dir: path.display().to_string(),
        process: None,
        api_server: None,
        kubeconfig: None,
        guests_run_by: None,
        virtual_machines: vec![],
    };
    if !path.exists() {
        return Ok(report);
    }
    let state = StateDir::open(path)?;
    let Locked::Theirs(process) = state.lock()? else {
        return Ok(report);
    };
    report.up = true;
    report.process = process;
    report.kubeconfig = Some(state.kubeconfig().display().to_string());
    if let Ok(bytes) = std::fs::read(state.settings()) {
        let remembered: Remembered = serde_json::from_slice(&bytes).context("read the settings")?;
        report.api_server = Some(format!("https://{}", remembered.listen));
        report.guests_run_by = remembered.guests_run_by;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    report.virtual_machines = runtime.block_on(vms(&state))?;
    Ok(report)
}

async fn vms(state: &StateDir) -> Result<Vec<Vm>> {
    let kubeconfig = Kubeconfig::read_from(state.kubeconfig()).context("read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let api: Api<VirtualMachine> = Api::all(Client::try_from(config)?);
    let list = api.list(&ListParams::default()).await.context("list VMs")?;
    let one = |vm: VirtualMachine| Vm {
        namespace: vm.namespace().unwrap_or_default(),
        name: vm.name_any(),
        status: vm
            .status
            .and_then(|status| status.printable_status)
            .map_or_else(|| "Stopped".to_owned(), |status| status.as_str().to_owned()),
    };
    Ok(list.items.into_iter().map(one).collect())
}
