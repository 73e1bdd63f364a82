//! VMs and empty pods in turns, and what came of each compared.

use std::path::Path;

use anyhow::{Context as _, Result};
use kube::Client;

use super::{
    figures::{Figure, maximum, median, milliseconds},
    greeting,
    sightings::{Kind, Sightings},
    starts::{Start, Subject, milestones, remove, start_all},
};

/// A home that is measured, and the figures so far.
pub(super) struct Turns {
    pub(super) client: Client,
    pub(super) sightings: Sightings,
    pub(super) figures: Vec<Figure>,
}

/// Names for ten of a kind.
pub(super) fn ten(turn: u32) -> Vec<String> {
    (0..10).map(|one| format!("ten-{turn}-{one}")).collect()
}

impl Turns {
    pub(super) async fn begin(client: Client) -> Result<Self> {
        Ok(Self {
            sightings: Sightings::begin(&client).await?,
            client,
            figures: Vec::new(),
        })
    }

    /// The first start unpacks images, which no later one does.
    pub(super) async fn warm_up(&self) -> Result<()> {
        for subject in [Subject::Pod, Subject::Vm] {
            let starts = self.start(subject, vec!["first".to_owned()]).await?;
            self.remove(subject, &starts).await?;
        }
        Ok(())
    }

    pub(super) async fn start(&self, subject: Subject, names: Vec<String>) -> Result<Vec<Start>> {
        let names = names
            .into_iter()
            .map(|name| format!("{}-{name}", subject.label()))
            .collect();
        start_all(&self.client, &self.sightings, subject, names).await
    }

    pub(super) async fn remove(&self, subject: Subject, starts: &[Start]) -> Result<()> {
        remove(&self.client, &self.sightings, subject, starts).await
    }

    pub(super) fn compare(&mut self, label: &str, pods: &[Start], vms: &[Start]) -> Result<()> {
        let mut middles = Vec::new();
        for (subject, starts) in [(Subject::Pod, pods), (Subject::Vm, vms)] {
            middles.push(self.timed(label, subject, starts)?);
        }
        if let [pod, vm] = middles[..] {
            self.figure(format!("vm.start.{label}.ratio"), vm / pod, "x");
        }
        Ok(())
    }

    /// How long these starts took; answers with the middle.
    pub(super) fn timed(&mut self, label: &str, subject: Subject, starts: &[Start]) -> Result<f64> {
        let times: Vec<f64> = starts.iter().map(Start::took).collect();
        let middle = median(&times).context("nothing was started")?;
        let most = maximum(&times).context("nothing was started")?;
        let label = format!("{}.start.{label}", subject.label());
        let seen = |name: &str| self.sightings.of(name);
        let passed = milestones(&format!("{label}.at"), starts, &seen);
        self.figures.extend(passed);
        self.figure(format!("{label}.p50"), middle, "ms");
        self.figure(format!("{label}.max"), most, "ms");
        Ok(middle)
    }

    /// Waits for the greeting of a guest that was just started.
    pub(super) async fn greeted(
        &mut self,
        virtctl: &Path,
        kubeconfig: &Path,
        vm: &Start,
    ) -> Result<()> {
        let greeted = greeting::wait(virtctl, kubeconfig, &vm.name).await?;
        let took = milliseconds(greeted.duration_since(vm.sent));
        self.figure("vm.start.greeting", took, "ms");
        Ok(())
    }

    pub(super) fn pods_of(&self, vms: &[Start]) -> Vec<String> {
        let pod = |vm: &Start| {
            let seen = self.sightings.of(&vm.name);
            let mut pods = seen.into_iter().filter(|one| one.kind == Kind::Pod);
            pods.next().map(|pod| pod.uid)
        };
        vms.iter().filter_map(pod).collect()
    }

    pub(super) fn figure(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure::new(name, value, unit));
    }
}
