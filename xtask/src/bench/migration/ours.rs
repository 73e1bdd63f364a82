//! Moves of a VM, asked for by an object.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::super::{
    figures::milliseconds,
    objects::{Guest, Objects, Running, VMI, has_condition},
    qemu::Qemu,
    silence::{Seen, observe},
};

const MIGRATION: (&str, &str) = ("kubevirt.io/v1", "VirtualMachineInstanceMigration");

pub(super) struct Ours {
    name: String,
    pub(super) running: Running,
}

impl Ours {
    pub(super) async fn start(objects: &Objects, name: &str, mib: u64) -> Result<Self> {
        let guest = Guest {
            name,
            mib,
            volumes: Vec::new(),
            binding: "masquerade",
        };
        Ok(Self {
            name: name.to_owned(),
            running: objects.start(&guest).await?,
        })
    }

    /// Milliseconds from the request until the object says that the guest has moved.
    pub(super) async fn moves(&self, objects: &Objects, round: u32) -> Result<(f64, Seen)> {
        let may_move = |vmi: &Value| {
            let pods = vmi["status"]["activePods"].as_object();
            has_condition(vmi, "LiveMigratable") && pods.is_some_and(|pods| pods.len() == 1)
        };
        objects.wait(VMI, &self.name, may_move).await?;
        let name = format!("{}-{round}", self.name);
        let request = json!({
            "apiVersion": MIGRATION.0, "kind": MIGRATION.1,
            "metadata": {"name": name}, "spec": {"vmiName": self.name},
        });
        let log = format!(
            "var/run/kubevirt-private/{}/virt-serial0-log",
            self.running.uid
        );
        let find = || {
            let all = Qemu::all_of(&self.name)?;
            Ok(all
                .iter()
                .map(|qemu| (qemu.pid, qemu.inside(&log)))
                .collect())
        };
        let (seen, total) = observe(find, self.move_once(objects, &name, &request)).await?;
        objects.delete(MIGRATION, &name).await?;
        Ok((total, seen))
    }

    async fn move_once(&self, objects: &Objects, name: &str, request: &Value) -> Result<f64> {
        let sent: Instant = objects.create(request).await?;
        let phase = |object: &Value| object["status"]["phase"].as_str().map(str::to_owned);
        let has_ended =
            |object: &Value| matches!(phase(object).as_deref(), Some("Succeeded" | "Failed"));
        let (object, ended) = objects.wait(MIGRATION, name, has_ended).await?;
        ensure!(
            phase(&object).as_deref() == Some("Succeeded"),
            "{name} failed: {}",
            object["status"]
        );
        let took = ended.checked_duration_since(sent);
        Ok(milliseconds(took.context("it ended before it began")?))
    }
}
