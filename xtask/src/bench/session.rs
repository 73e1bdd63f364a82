//! The order of measurements on a host that is up.

use anyhow::{Context as _, Result};
use kube::Client;

use super::{
    Options,
    figures::{Figure, as_f64, maximum, median, milliseconds},
    greeting,
    host::Host,
    latency, memory,
    report::{self, Report},
    sightings::{Kind, Sightings},
    sizes,
    starts::{Start, Subject, milestones, remove, start_all},
    writes,
};
use crate::printer::Printer;

const MANY: u32 = 10;

struct Session<'a> {
    printer: &'a Printer,
    host: &'a Host,
    client: Client,
    sightings: Sightings,
    figures: Vec<Figure>,
}

pub(super) async fn measure(printer: &Printer, options: &Options, host: &Host) -> Result<Report> {
    let client = host.client().await?;
    let sightings = Sightings::begin(&client).await?;
    let mut session = Session {
        printer,
        host,
        client,
        sightings,
        figures: Vec::new(),
    };
    session.warm_up().await?;
    session.singles(options.singles).await?;
    session.tens(options.tens).await?;
    printer.line("asking the API");
    session
        .figures
        .extend(latency::measure(&session.client).await?);
    session.figures.extend(sizes::measure(host)?);
    let mut machine = report::machine()?;
    machine.push(("guests", host.guests.clone()));
    Ok(Report {
        machine,
        figures: session.figures,
    })
}

impl Session<'_> {
    /// The first start unpacks images, which no later one does.
    async fn warm_up(&mut self) -> Result<()> {
        self.printer.line("warming up");
        for subject in [Subject::Pod, Subject::Vm] {
            let starts = self.start(subject, vec!["first".to_owned()]).await?;
            self.remove(subject, &starts).await?;
        }
        Ok(())
    }

    async fn singles(&mut self, repetitions: u32) -> Result<()> {
        let (mut pods, mut vms, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 1..=repetitions {
            self.printer.line(format_args!(
                "one empty pod, one VM: {turn} of {repetitions}"
            ));
            let started = self
                .start(Subject::Pod, vec![format!("one-{turn}")])
                .await?;
            self.remove(Subject::Pod, &started).await?;
            pods.extend(started);
            let started = self.start(Subject::Vm, vec![format!("one-{turn}")]).await?;
            for start in &started {
                // The guest greets once, and soon.
                if turn == repetitions {
                    self.greeted(start).await?;
                }
                counts.push(writes::of_start(&self.sightings, start).await?);
                if turn == repetitions {
                    let process = self.host.process()?;
                    self.figures.extend(memory::of_process(process)?);
                }
            }
            self.remove(Subject::Vm, &started).await?;
            vms.extend(started);
        }
        self.compare("one", &pods, &vms)?;
        let most = |writes: &dyn Fn(&writes::Writes) -> u64| {
            as_f64(counts.iter().map(writes).max().unwrap_or_default())
        };
        let (vmi, pod) = (most(&|one| one.vmi), most(&|one| one.pod));
        self.figure("vm.writes.vmi", vmi, "");
        self.figure("vm.writes.pod", pod, "");
        Ok(())
    }

    async fn greeted(&mut self, start: &Start) -> Result<()> {
        let greeted = greeting::wait(self.host, &start.name).await?;
        let took = milliseconds(greeted.duration_since(start.sent));
        self.figure("vm.start.greeting", took, "ms");
        Ok(())
    }

    async fn tens(&mut self, repetitions: u32) -> Result<()> {
        let (mut pods, mut vms) = (Vec::new(), Vec::new());
        for turn in 1..=repetitions {
            self.printer.line(format_args!(
                "ten empty pods, ten VMs: {turn} of {repetitions}"
            ));
            let names = || (0..MANY).map(|one| format!("ten-{turn}-{one}")).collect();
            let started = self.start(Subject::Pod, names()).await?;
            self.remove(Subject::Pod, &started).await?;
            pods.extend(started);
            let started = self.start(Subject::Vm, names()).await?;
            if turn == repetitions {
                let uids = self.pods_of(&started);
                self.figures.extend(memory::per_vm(&uids)?);
                let of_host = memory::of_process(self.host.process()?)?;
                self.figures
                    .extend(of_host.into_iter().map(|figure| Figure {
                        name: format!("{}.ten", figure.name),
                        ..figure
                    }));
            }
            self.remove(Subject::Vm, &started).await?;
            vms.extend(started);
        }
        self.compare("ten", &pods, &vms)
    }

    async fn start(&self, subject: Subject, names: Vec<String>) -> Result<Vec<Start>> {
        let names = names
            .into_iter()
            .map(|name| format!("{}-{name}", subject.label()))
            .collect();
        start_all(&self.client, &self.sightings, subject, names).await
    }

    async fn remove(&self, subject: Subject, starts: &[Start]) -> Result<()> {
        remove(&self.client, &self.sightings, subject, starts).await
    }

    fn compare(&mut self, label: &str, pods: &[Start], vms: &[Start]) -> Result<()> {
        let mut middles = Vec::new();
        for (subject, starts) in [(Subject::Pod, pods), (Subject::Vm, vms)] {
            let times: Vec<f64> = starts.iter().map(Start::took).collect();
            let middle = median(&times).context("nothing was started")?;
            let most = maximum(&times).context("nothing was started")?;
            let label = format!("{}.start.{label}", subject.label());
            let seen = |name: &str| self.sightings.of(name);
            let passed = milestones(&format!("{label}.at"), starts, &seen);
            self.figures.extend(passed);
            self.figure(format!("{label}.p50"), middle, "ms");
            self.figure(format!("{label}.max"), most, "ms");
            middles.push(middle);
        }
        if let [pod, vm] = middles[..] {
            self.figure(format!("vm.start.{label}.ratio"), vm / pod, "x");
        }
        Ok(())
    }

    fn pods_of(&self, vms: &[Start]) -> Vec<String> {
        let pod = |vm: &Start| {
            let seen = self.sightings.of(&vm.name);
            let mut pods = seen.into_iter().filter(|one| one.kind == Kind::Pod);
            pods.next().map(|pod| pod.uid)
        };
        vms.iter().filter_map(pod).collect()
    }

    fn figure(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure::new(name, value, unit));
    }
}
