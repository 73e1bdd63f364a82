//! `backup list`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::{
    cli::List,
    state::{directory, state},
};
use crate::{
    connect::Cluster,
    objects::{self, text},
    printer::Printer,
    table,
};

/// A backup for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    namespace: String,
    name: String,
    /// The VM; `None` if it is that of a tracker that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    vm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracker: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    type_: Option<String>,
    state: &'static str,
    message: String,
    pvc: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
    created: String,
}

pub(super) async fn list(cluster: &Cluster, printer: Printer, flags: &List) -> Result<()> {
    let path = |kind: objects::Kind| {
        if flags.all_namespaces {
            kind.everywhere()
        } else {
            kind.all(&cluster.namespace)
        }
    };
    let backups = objects::list(cluster, &path(objects::BACKUP)).await?;
    let by_tracker =
        |one: &Value| text(one, "/spec/source/kind") == Some("VirtualMachineBackupTracker");
    let trackers = if backups.iter().any(by_tracker) {
        objects::list_if_permitted(cluster, &path(objects::BACKUP_TRACKER)).await?
    } else {
        Ok(Vec::new())
    };
    let trackers = trackers.unwrap_or_else(|denied| {
        printer.warn(&untracked(flags, &denied));
        Vec::new()
    });
    let mut rows = rows(&backups, &trackers);
    if let Some(vm) = &flags.vm {
        rows.retain(|row| row.vm.as_ref() == Some(vm));
    }
    match flags.output {
        Some(output) => {
            let rows = serde_json::to_value(&rows).context("write the list")?;
            printer.object(output.into(), &rows)
        }
        None if rows.is_empty() => {
            printer.line("There is no backup.");
            Ok(())
        }
        None => {
            printer.line(&table(&rows, flags.all_namespaces));
            Ok(())
        }
    }
}

/// What is missing without the trackers.
fn untracked(flags: &List, denied: &str) -> String {
    let missing = match &flags.vm {
        Some(vm) => format!("the backups of VM {vm} that a tracker made are not shown"),
        None => "the VMs of trackers are not shown".to_owned(),
    };
    format!("{missing}: {denied}")
}

/// The oldest first.
fn rows(backups: &[Value], trackers: &[Value]) -> Vec<Row> {
    let field = |one: &Value, pointer: &str| text(one, pointer).unwrap_or_default().to_owned();
    let key = |one: &Value, name: &str| (field(one, "/metadata/namespace"), field(one, name));
    let vms: BTreeMap<_, _> = trackers
        .iter()
        .map(|one| (key(one, "/metadata/name"), field(one, "/spec/source/name")))
        .collect();
    let row = |one: &Value| {
        let source = field(one, "/spec/source/name");
        let is_vm = text(one, "/spec/source/kind") == Some("VirtualMachine");
        let vm = if is_vm {
            Some(source.clone())
        } else {
            vms.get(&key(one, "/spec/source/name")).cloned()
        };
        let state = state(one);
        Row {
            namespace: field(one, "/metadata/namespace"),
            name: field(one, "/metadata/name"),
            vm,
            tracker: Some(source).filter(|_| !is_vm),
            type_: text(one, "/status/type").map(str::to_owned),
            state: state.word(),
            message: state.message().to_owned(),
            pvc: field(one, "/spec/pvcName"),
            directory: directory(&state).map(str::to_owned),
            created: field(one, "/metadata/creationTimestamp"),
        }
    };
    let mut rows: Vec<Row> = backups.iter().map(row).collect();
    rows.sort_by(|a, b| {
        (&a.namespace, &a.created, &a.name).cmp(&(&b.namespace, &b.created, &b.name))
    });
    rows
}

fn table(rows: &[Row], with_namespace: bool) -> String {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let mut lines = vec![
        [
            "NAMESPACE",
            "NAME",
            "VM",
            "TRACKER",
            "TYPE",
            "STATE",
            "CLAIM",
            "DIRECTORY",
            "CREATED",
        ]
        .map(str::to_owned),
    ];
    lines.extend(rows.iter().map(|row| {
        [
            row.namespace.clone(),
            row.name.clone(),
            or_dash(&row.vm),
            or_dash(&row.tracker),
            or_dash(&row.type_),
            row.state.to_owned(),
            row.pvc.clone(),
            or_dash(&row.directory),
            row.created.clone(),
        ]
    }));
    let mut text = table::lines(&lines, usize::from(!with_namespace));
    let failed = rows.iter().filter(|row| row.state == "Failed");
    text.extend(failed.map(|row| format!("{}: {}", row.name, row.message)));
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::proxy::Proxies;

    fn backup(name: &str, (kind, source): (&str, &str), status: &Value) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "n", "creationTimestamp": format!("2026-11-2{name}")},
            "spec": {"source": {"kind": kind, "name": source}, "pvcName": "c"}, "status": status,
        })
    }

    /// Lists on a server that has a backup of a tracker, and answers a list of trackers with this code.
    async fn listed(code: u16, vm: Option<&str>) -> Result<()> {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let (code, answer) = if request.uri().path().ends_with("trackers") {
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no trackers for you"});
                (code, status)
            } else {
                let tracked = backup("1", ("VirtualMachineBackupTracker", "t"), &Value::Null);
                (200, json!({"items": [tracked]}))
            };
            let body = Body::from(serde_json::to_vec(&answer).unwrap());
            Response::builder().status(code).body(body)
        });
        let cluster = Cluster {
            client: kube::Client::new(service, "n"),
            namespace: "n".to_owned(),
            proxies: Proxies::default(),
        };
        let flags = flags(vm);
        list(&cluster, Printer, &flags).await
    }

    fn flags(vm: Option<&str>) -> List {
        List {
            all_namespaces: false,
            vm: vm.map(str::to_owned),
            output: None,
        }
    }

    #[tokio::test]
    async fn right_to_trackers_is_not_needed() {
        listed(403, None).await.unwrap();
        listed(403, Some("a")).await.unwrap();
        let broken = listed(500, None).await.unwrap_err();
        assert_eq!(broken.to_string(), "no trackers for you");
        let all = untracked(&flags(None), "no");
        assert_eq!(all, "the VMs of trackers are not shown: no");
        let of_vm = untracked(&flags(Some("a")), "no");
        assert!(of_vm.contains("backups of VM a"), "{of_vm}");
    }

    #[test]
    fn list_has_the_vm_of_a_tracker_and_the_reason_of_a_failure() {
        let complete = json!({"type": "Full", "conditions": [
            {"type": "Complete", "status": "True", "message": "claim c, directory d-1 (files: 1)"}]});
        let failed = json!({"conditions": [
            {"type": "Failed", "status": "True", "message": "the claim is full"}]});
        let tracked = "VirtualMachineBackupTracker";
        let backups = [
            backup("3", (tracked, "gone"), &Value::Null),
            backup("2", (tracked, "t"), &failed),
            backup("1", ("VirtualMachine", "a"), &complete),
        ];
        let trackers = [json!({"metadata": {"name": "t", "namespace": "n"},
                               "spec": {"source": {"name": "b"}}})];
        let rows = rows(&backups, &trackers);
        let expected = "NAME VM TRACKER TYPE STATE CLAIM DIRECTORY CREATED\n\
                        1 a - Full Complete c d-1 2026-11-21\n\
                        2 b t - Failed c - 2026-11-22\n\
                        3 - gone - Pending c - 2026-11-23\n\
                        2: the claim is full";
        let table = table(&rows, false);
        let squeezed: Vec<String> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(squeezed.join("\n"), expected);
    }
}
