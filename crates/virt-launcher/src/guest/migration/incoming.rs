//! The launcher of the pod that gets the guest.

use std::collections::BTreeMap;
use std::path::Path;

use error_chain::error_chain;
use launcher_channel::{
    GuestPlan, MAX_FRAME, MAX_PARALLEL_CONNECTIONS, MigrationSocket, MigrationStage, StopReason,
    read_frame, write_frame,
};
use libvirt::{Cookie, Migration, MigrationParameters, Outcome};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::outgoing::{flags, parallel, parameters};
use super::peer::{Answer, Ask, BUSY_INTERVAL, Origin, WireCookie};
use super::{Event, Migrations, adopted, moved_disks, own_cpus, pod_images};
use crate::guest::ending::Ending;
use crate::guest::link::LINK_TIMEOUT;
use crate::guest::record::{MigrationRecord, MigrationStep};
use crate::guest::refusal::Refusal;
use crate::guest::separate;
use crate::guest::status::{Phase, Status};
use crate::guest::task::Guest;
use crate::{prepare, serve, settings};

/// A request of the other launcher, or the end of its connection.
#[derive(Debug)]
pub(in crate::guest) struct Visit {
    /// `None` when the connection has ended.
    ask: Option<Ask>,
    answer: oneshot::Sender<Answer>,
}

impl Guest {
    /// Prepares the pod and waits for the other launcher.
    pub(in crate::guest) async fn receive(
        &mut self,
        id: String,
        plan: GuestPlan,
    ) -> Result<(), Refusal> {
        self.check_plan(&plan)?;
        if self.migrations.is(&id) && self.migrations.task.is_some() {
            return Ok(());
        }
        self.store.set_plan(plan)?;
        self.publish_console_setting();
        if !matches!(self.store.phase(), Some(Phase::Planned | Phase::Receiving)) {
            return Ok(());
        }
        if self.terminating {
            return Err(Refusal::Terminating);
        }
        self.prepare_pod().await?;
        self.store.set_migration(Some(MigrationRecord {
            id: id.clone(),
            step: MigrationStep::Incoming,
            stays_paused: false,
        }))?;
        let listener = serve::listen(Path::new(&MigrationSocket::Control.target_path()))?;
        let events = self.migrations.sender.clone();
        let waiting = self.tasks.spawn(accept(listener, events));
        self.migrations.stop();
        self.migrations.task = Some(waiting.abort_handle());
        self.migrations.holds = false;
        self.migrations.enter(&id, MigrationStage::Waiting);
        tracing::info!(id, "waiting for the guest of another pod");
        Ok(())
    }

    async fn prepare_pod(&mut self) -> Result<(), Refusal> {
        let steps = self.steps_after_hooks().await?;
        let Some(record) = self.store.record() else {
            return Ok(());
        };
        let cpus = record.plan.separate_cpus.clone();
        let metrics = record.plan.metrics.clone();
        let pid = self.paths.domain_pid(&record.plan.domain_name);
        let prepared = self
            .tasks
            .spawn_blocking(move || prepare::all(&steps))
            .await;
        prepared
            .map_err(std::io::Error::other)?
            .map_err(Refusal::Prepare)?;
        self.metrics.start(metrics.as_ref(), pid)?;
        separate::keep_to(&cpus).map_err(Refusal::Separate)
    }

    /// Runs the guest that was received, for the handler.
    pub(in crate::guest) async fn take_over(&mut self, id: &str) -> Result<(), Refusal> {
        self.ensure_known().await?;
        match self.store.migration() {
            Some(record) if record.id == id => {
                // The old pod was switched to post-copy, and could not ask for it.
                if self.store.phase() == Some(Phase::Receiving) && self.migrations.holds {
                    self.run_without_request().await?;
                    // The other launcher does not ask any more.
                    self.migrations.stop();
                    return Ok(());
                }
                if record.step == MigrationStep::Following {
                    return Ok(());
                }
                self.take().await?;
                self.migrations.stop();
                Ok(())
            }
            _ => Err(Refusal::NotReceived),
        }
    }

    /// The VMI may be here before its guest: then it arrives yet, or it is lost if nothing of it is here any more.
    pub(in crate::guest) async fn sync_while_receiving(&mut self) -> Result<(), Refusal> {
        let report = self.migrations.report();
        let has_failed =
            report.is_some_and(|report| matches!(report.stage, MigrationStage::Failed(_)));
        if self.store.phase() != Some(Phase::Receiving) || !has_failed {
            return Err(Refusal::Receiving);
        }
        tracing::error!("the guest was given up to this pod, and is not here: it is lost");
        let ending = Ending {
            note: Some("the guest was lost at the end of a migration".to_owned()),
            signal: None,
        };
        self.store.end(StopReason::Crashed, ending)?;
        self.apply(Status::Ended(StopReason::Crashed)).await
    }

    pub(super) async fn on_visit(&mut self, visit: Visit) {
        let Some(ask) = visit.ask else {
            if self.store.phase() == Some(Phase::Receiving) && !self.migrations.holds {
                self.fail_to_receive("the connection to the other pod has ended")
                    .await;
            }
            return;
        };
        if let Ask::Finish {
            post_copy: true,
            cookie,
            stays_paused,
            ..
        } = &ask
        {
            match self.begin_early(cookie, *stays_paused) {
                Ok(begun) => self.run_early(begun, Some(visit.answer)).await,
                Err(refusal) => {
                    let message = error_chain(&refusal);
                    tracing::warn!(message, "the guest was not run");
                    // The other launcher may be gone.
                    visit.answer.send(Answer::Refused(message)).ok();
                }
            }
            return;
        }
        let answer = match self.answer(ask).await {
            Ok(answer) => answer,
            Err(refusal) => Answer::Refused(error_chain(&refusal)),
        };
        // The other launcher may be gone.
        visit.answer.send(answer).ok();
    }

    pub(super) async fn answer(&mut self, ask: Ask) -> Result<Answer, Refusal> {
        match ask {
            Ask::Prepare {
                id,
                xml,
                cookie,
                copied_disks,
                disk_lengths,
                post_copy,
                parallel_connections,
                compression,
                origin,
            } => {
                let cookie = cookie.decode().map_err(|_| Refusal::NotReceived)?;
                if parallel_connections > MAX_PARALLEL_CONNECTIONS {
                    return Err(Refusal::TooManyConnections);
                }
                let xml = match &origin {
                    Some(origin) => self.take_in(&id, xml, origin)?,
                    None => xml,
                };
                let xml = self.with_own_places(&id, xml, &copied_disks, &disk_lengths);
                let xml = xml.await?;
                let mut migration = self.arrival(Some(xml), &copied_disks, post_copy);
                migration.parameters.parallel = parallel(parallel_connections, compression);
                self.prepare_arrival(&id, &migration, &cookie).await
            }
            Ask::Hold => {
                if self.store.phase() != Some(Phase::Receiving) {
                    return Err(Refusal::NotReceived);
                }
                self.migrations.holds = true;
                Ok(Answer::Done)
            }
            Ask::Finish {
                cookie,
                stays_paused,
                ..
            } => {
                let cookie = cookie.decode().map_err(|_| Refusal::NotReceived)?;
                // Before it counts as received.
                self.store.set_stays_paused(stays_paused)?;
                self.finish_arrival(&cookie).await
            }
            Ask::Abandon => {
                self.fail_to_receive("the migration was given up by the other pod")
                    .await;
                Ok(Answer::Done)
            }
            Ask::End => Ok(Answer::Ended(match self.store.phase() {
                Some(Phase::Ended(reason)) => Some(reason),
                _ => None,
            })),
            Ask::Take { resume } => {
                if !resume {
                    self.store.set_stays_paused(true)?;
                }
                self.take().await?;
                // The task ends with this answer.
                self.migrations.task = None;
                Ok(Answer::Done)
            }
        }
    }

    /// Takes a guest of another VMI for that of this pod: it keeps its UUID, by which libvirt knows it, and gets the
    /// paths of this pod.
    fn take_in(&mut self, id: &str, xml: String, origin: &Origin) -> Result<String, Refusal> {
        let record = self.store.record().filter(|_| self.expects(id));
        let plan = &record.ok_or(Refusal::NotReceived)?.plan;
        let own = Origin::of(plan);
        if *origin == own {
            return Ok(xml);
        }
        let xml = adopted::xml(xml, origin, &own)?;
        self.store.set_domain_uuid(&origin.domain_uuid)?;
        Ok(xml)
    }

    /// The guest's XML with the places that its disks have in this pod, and with the CPUs of this pod.
    async fn with_own_places(
        &self,
        id: &str,
        xml: String,
        copied_disks: &[String],
        lengths: &BTreeMap<String, u64>,
    ) -> Result<String, Refusal> {
        let record = self.store.record().filter(|_| self.expects(id));
        let plan = &record.ok_or(Refusal::NotReceived)?.plan;
        moved_disks::check(&plan.claim_disks, settings::moved_volumes(), copied_disks)?;
        let images = pod_images::paths(&plan.prepare);
        pod_images::fit(&plan.domain_xml, images, copied_disks, lengths).await?;
        let placed = moved_disks::place(xml, &plan.domain_xml, &plan.claim_disks, lengths);
        Ok(own_cpus::with_own_cpus(placed.await?, &plan.domain_xml)?)
    }

    /// Whether this pod waits for that guest.
    fn expects(&self, id: &str) -> bool {
        let expected = self.store.migration();
        let is_expected = expected
            .is_some_and(|record| record.id == id && record.step == MigrationStep::Incoming);
        let phase = self.store.phase();
        is_expected && matches!(phase, Some(Phase::Planned | Phase::Receiving))
    }

    async fn prepare_arrival(
        &mut self,
        id: &str,
        migration: &Migration,
        cookie: &Cookie,
    ) -> Result<Answer, Refusal> {
        if !self.expects(id) {
            return Err(Refusal::NotReceived);
        }
        let phase = self.store.phase();
        let connection = self.wait_for_link(Instant::now() + LINK_TIMEOUT).await?;
        if phase == Some(Phase::Receiving) {
            self.discard_arrival().await?;
        }
        self.store.advance(Phase::Receiving)?;
        self.migrations.enter(id, MigrationStage::Receiving);
        self.migrations.holds = false;
        let cookie = connection.prepare(migration, cookie).await?;
        failpoints::after("virt-launcher/migration/receiving");
        self.publish();
        let cookie = WireCookie::from(&cookie);
        Ok(match migration.parameters.parallel {
            Some(_) => Answer::Parallel(cookie),
            None => Answer::Cookie(cookie),
        })
    }

    pub(super) fn arrival(
        &self,
        xml: Option<String>,
        copied_disks: &[String],
        post_copy: bool,
    ) -> Migration {
        let name = self
            .store
            .record()
            .map(|record| record.plan.domain_name.clone());
        Migration {
            flags: flags(copied_disks, post_copy),
            parameters: MigrationParameters {
                destination_name: name,
                destination_xml: xml,
                ..parameters(MigrationSocket::target_path, copied_disks)
            },
        }
    }

    async fn finish_arrival(&mut self, cookie: &Cookie) -> Result<Answer, Refusal> {
        if self.store.phase() != Some(Phase::Receiving) {
            return Err(Refusal::NotReceived);
        }
        let connection = self.connection().ok_or(libvirt::Error::Closed)?;
        let migration = self.arrival(None, &[], false);
        let finished = connection.finish(&migration, cookie, Outcome::Copied).await;
        let (_, cookie) = match finished {
            Ok(finished) => finished,
            Err(error) => {
                self.fail_to_receive(&error_chain(&error)).await;
                return Err(error.into());
            }
        };
        self.store.advance(Phase::Received)?;
        self.set_stage(MigrationStage::Received);
        self.observe().await?;
        Ok(Answer::Cookie(WireCookie::from(&cookie)))
    }

    /// The other pod has given the guest up: it runs here. May be repeated until the guest was resumed.
    async fn take(&mut self) -> Result<(), Refusal> {
        let stays_paused = self.store.migration().is_some_and(|one| one.stays_paused);
        match self.store.phase() {
            Some(Phase::Received) if stays_paused => self.store.advance(Phase::Started)?,
            Some(Phase::Received) => self.store.advance(Phase::Resuming)?,
            Some(Phase::Resuming | Phase::Started | Phase::Ended(_)) => {}
            _ => return Err(Refusal::NotReceived),
        }
        self.store.arrive()?;
        self.observe().await?;
        Box::pin(self.refresh_links()).await;
        self.set_stage(MigrationStage::Done);
        tracing::info!("the guest has come to this pod");
        Ok(())
    }

    /// Nothing arrives any more.
    pub(super) async fn abandon(&mut self) -> Result<(), Refusal> {
        if self.has_all() {
            return Ok(());
        }
        self.discard_arrival().await?;
        self.set_stage(MigrationStage::Cancelled);
        self.migrations.stop();
        Ok(())
    }

    /// Whether all of the guest is here: from now on only the other pod knows to whom it belongs.
    fn has_all(&self) -> bool {
        !matches!(
            self.store.phase(),
            None | Some(Phase::Planned | Phase::Starting | Phase::Receiving)
        )
    }

    async fn fail_to_receive(&mut self, message: &str) {
        if self.has_all() {
            return;
        }
        tracing::warn!(message, "the guest did not arrive");
        if let Err(error) = self.discard_arrival().await {
            tracing::warn!(
                error = error_chain(&error),
                "what has arrived is still here"
            );
        }
        self.set_stage(MigrationStage::Failed(message.to_owned()));
    }

    /// Ends the QEMU that waits for the guest, but not one that has all of it.
    async fn discard_arrival(&mut self) -> Result<(), Refusal> {
        if self.store.phase() != Some(Phase::Receiving) {
            return Ok(());
        }
        let (Some(connection), Some(domain)) = (self.connection(), self.domain()) else {
            return Err(libvirt::Error::Closed.into());
        };
        match connection.destroy(&domain).await {
            // There is none any more.
            Ok(()) | Err(libvirt::Error::Remote(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn set_stage(&mut self, stage: MigrationStage) {
        let Migrations { report, .. } = &mut self.migrations;
        if let Some(report) = report {
            report.stage = stage;
        }
    }
}

/// Serves one launcher after the other; there is only one that has a reason to come.
pub(super) async fn accept(listener: UnixListener, events: mpsc::Sender<Event>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                if serve_visitor(stream, &events).await == Visits::Over {
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "connection refused"),
        }
    }
}

/// Whether another launcher may come.
#[derive(Debug, PartialEq, Eq)]
enum Visits {
    Expected,
    /// The guest is here.
    Over,
}

async fn serve_visitor(mut stream: UnixStream, events: &mpsc::Sender<Event>) -> Visits {
    loop {
        let ask = match read_frame::<Ask>(&mut stream, MAX_FRAME).await {
            Ok(ask) => ask,
            Err(error) => {
                tracing::info!(error = error_chain(&error), "the other launcher is gone");
                None
            }
        };
        let is_over = ask.is_none();
        let is_last = ask.as_ref().is_some_and(Ask::is_last);
        let reports_busy = ask.as_ref().is_some_and(Ask::reports_busy);
        let (answer, answered) = oneshot::channel();
        let sent = events.send(Event::Visit(Visit { ask, answer })).await;
        if is_over || sent.is_err() {
            return Visits::Expected;
        }
        let answer = if reports_busy {
            busy_until(&mut stream, answered).await
        } else {
            answered.await
        };
        let Ok(answer) = answer else {
            return Visits::Expected;
        };
        if let Err(error) = write_frame(&mut stream, &answer).await {
            tracing::info!(error = error_chain(&error), "the other launcher is gone");
        }
        if is_last && matches!(answer, Answer::Done | Answer::Cookie(_)) {
            return Visits::Over;
        }
    }
}

/// Waits for the answer, and reports to the other launcher meanwhile that this one is still busy.
async fn busy_until(
    stream: &mut UnixStream,
    mut answered: oneshot::Receiver<Answer>,
) -> Result<Answer, oneshot::error::RecvError> {
    let mut ticks = tokio::time::interval(BUSY_INTERVAL);
    loop {
        tokio::select! {
            biased;
            answer = &mut answered => return answer,
            _ = ticks.tick() => if let Err(error) = write_frame(stream, &Answer::Busy).await {
                tracing::info!(error = error_chain(&error), "the other launcher is gone");
                return answered.await;
            },
        }
    }
}
