//! The order of measurements on a host that is up.

use anyhow::Result;

use super::{
    Options,
    figures::{Figure, as_f64},
    host::Host,
    latency, memory,
    report::{self, Report},
    sizes,
    starts::{Start, Subject},
    turns::{Turns, ten},
    writes,
};
use crate::printer::Printer;

struct Session<'a> {
    printer: &'a Printer,
    host: &'a Host,
    turns: Turns,
}

pub(super) async fn measure(printer: &Printer, options: &Options, host: &Host) -> Result<Report> {
    let client = host.client().await?;
    let mut session = Session {
        printer,
        host,
        turns: Turns::begin(client).await?,
    };
    printer.line("warming up");
    session.turns.warm_up().await?;
    session.singles(options.singles).await?;
    session.tens(options.tens).await?;
    printer.line("asking the API");
    let turns = &mut session.turns;
    turns.figures.extend(latency::measure(&turns.client).await?);
    turns.figures.extend(sizes::measure(host)?);
    let mut machine = report::machine()?;
    machine.push(("guests", host.guests.clone()));
    Ok(Report {
        machine,
        figures: session.turns.figures,
    })
}

impl Session<'_> {
    async fn singles(&mut self, repetitions: u32) -> Result<()> {
        let (mut pods, mut vms, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        for turn in 1..=repetitions {
            self.printer.line(format_args!(
                "one empty pod, one VM: {turn} of {repetitions}"
            ));
            let started = self
                .turns
                .start(Subject::Pod, vec![format!("one-{turn}")])
                .await?;
            self.turns.remove(Subject::Pod, &started).await?;
            pods.extend(started);
            let started = self
                .turns
                .start(Subject::Vm, vec![format!("one-{turn}")])
                .await?;
            for start in &started {
                // The guest greets once, and soon.
                if turn == repetitions {
                    self.greeted(start).await?;
                }
                counts.push(writes::of_start(&self.turns.sightings, start).await?);
                if turn == repetitions {
                    let process = self.host.process()?;
                    self.turns.figures.extend(memory::of_process(process)?);
                }
            }
            self.turns.remove(Subject::Vm, &started).await?;
            vms.extend(started);
        }
        self.turns.compare("one", &pods, &vms)?;
        let most = |writes: &dyn Fn(&writes::Writes) -> u64| {
            as_f64(counts.iter().map(writes).max().unwrap_or_default())
        };
        let (vmi, pod) = (most(&|one| one.vmi), most(&|one| one.pod));
        self.turns.figure("vm.writes.vmi", vmi, "");
        self.turns.figure("vm.writes.pod", pod, "");
        Ok(())
    }

    async fn greeted(&mut self, start: &Start) -> Result<()> {
        let virtctl = self.host.programs.join("virtctl");
        let kubeconfig = self.host.kubeconfig();
        self.turns.greeted(&virtctl, &kubeconfig, start).await
    }

    async fn tens(&mut self, repetitions: u32) -> Result<()> {
        let (mut pods, mut vms) = (Vec::new(), Vec::new());
        for turn in 1..=repetitions {
            self.printer.line(format_args!(
                "ten empty pods, ten VMs: {turn} of {repetitions}"
            ));
            let started = self.turns.start(Subject::Pod, ten(turn)).await?;
            self.turns.remove(Subject::Pod, &started).await?;
            pods.extend(started);
            let started = self.turns.start(Subject::Vm, ten(turn)).await?;
            if turn == repetitions {
                let uids = self.turns.pods_of(&started);
                self.turns.figures.extend(memory::per_vm(&uids)?);
                let of_host = memory::of_process(self.host.process()?)?;
                self.turns
                    .figures
                    .extend(of_host.into_iter().map(|figure| Figure {
                        name: format!("{}.ten", figure.name),
                        ..figure
                    }));
            }
            self.turns.remove(Subject::Vm, &started).await?;
            vms.extend(started);
        }
        self.turns.compare("ten", &pods, &vms)
    }
}
