//! Starting the guest from its plan.

use std::sync::Arc;

use launcher_channel::{GuestPlan, StopReason};
use libvirt::{Connection, Domain, DomainUuid, StartMode};
use tokio::time::Instant;

use super::file_servers;
use super::link::LINK_TIMEOUT;
use super::refusal::Refusal;
use super::saved_state;
use super::separate;
use super::status::{Phase, Status};
use super::task::Guest;
use crate::prepare;

/// Failed starts after which the guest counts as impossible to start.
pub(super) const MAX_STARTS: u32 = 3;

impl Guest {
    /// Refuses a plan for another guest.
    pub(super) fn check_plan(&self, plan: &GuestPlan) -> Result<(), Refusal> {
        if plan.vmi_uid != self.identity.uid {
            return Err(Refusal::WrongGuest {
                requested: plan.vmi_uid.clone(),
                ours: self.identity.uid.clone(),
            });
        }
        if DomainUuid::parse(&plan.domain_uuid).is_none() {
            return Err(Refusal::BadUuid(plan.domain_uuid.clone()));
        }
        Ok(())
    }

    pub(super) async fn sync(&mut self, plan: GuestPlan) -> Result<(), Refusal> {
        self.check_plan(&plan)?;
        if self.store.is_receiving() {
            return self.sync_while_receiving().await;
        }
        self.store.set_plan(plan)?;
        self.publish_console_setting();
        let deadline = Instant::now() + LINK_TIMEOUT;
        loop {
            self.wait_for_link(deadline).await?;
            self.observe().await?;
            match self.status {
                Some(Status::Alive(_) | Status::Ended(_)) => return Ok(()),
                _ if self.terminating => return Err(Refusal::Terminating),
                _ => {}
            }
            match self.start().await {
                Err(refusal) if refusal.is_closed() && Instant::now() < deadline => {
                    self.lose_link();
                }
                started => return started,
            }
        }
    }

    async fn start(&mut self) -> Result<(), Refusal> {
        let asked = self.ask_hooks().await?;
        let (Some(record), Some(connection)) = (self.store.record(), self.connection()) else {
            return Err(libvirt::Error::Closed.into());
        };
        let plan = &record.plan;
        let phase_after_start = if plan.start_paused {
            Phase::Started
        } else {
            Phase::Resuming
        };
        let was_interrupted = record.phase == Phase::Starting;
        let (servers, of_ipv6) = (plan.dhcp.clone(), plan.ipv6.clone());
        let (filesystems, passt) = (plan.filesystems.clone(), plan.passt.clone());
        let cpus = plan.separate_cpus.clone();
        let metrics = plan.metrics.clone();
        let pid = self.paths.domain_pid(&plan.domain_name);
        // Shared instead of copied: the XML may be large, and memory once touched is not returned.
        let (xml, steps): (Arc<str>, _) = match asked {
            Some(asked) => (asked.domain_xml.into(), asked.prepare),
            None => (plan.domain_xml.as_str().into(), plan.prepare.clone()),
        };
        let directories = filesystems.clone();
        let restore = plan.restore.clone();
        let prepare = move || {
            prepare::all(&steps).map_err(Refusal::Prepare)?;
            file_servers::check(&directories)?;
            let saved = restore.map(|directory| saved_state::find(&directory));
            Ok::<_, Refusal>(saved.transpose()?)
        };
        let prepared = self.tasks.spawn_blocking(prepare).await;
        let saved = prepared.map_err(std::io::Error::other)??;
        self.dhcp.start(&servers, &of_ipv6);
        separate::keep_to(&cpus).map_err(Refusal::Separate)?;
        self.files.start(&filesystems)?;
        self.passt.start(&passt).await?;
        self.metrics.start(metrics.as_ref(), pid)?;
        let domain = connection.define(&xml).await.map_err(Refusal::Define)?;
        failpoints::after("virt-launcher/guest/define");
        if was_interrupted {
            discard_interrupted_start(&connection, &domain).await?;
            failpoints::after("virt-launcher/guest/discard");
        }
        self.store.advance(Phase::Starting)?;
        let started = match &saved {
            Some(path) => connection.restore_paused(path, &xml).await,
            None => connection.start(&domain, StartMode::Paused).await.map(drop),
        };
        match started {
            Ok(()) => {
                failpoints::after("virt-launcher/guest/start-paused");
                self.store.advance(phase_after_start)?;
                self.observe().await
            }
            // The state stays as it is; the user decides.
            Err(source @ libvirt::Error::Remote(_)) if saved.is_some() => {
                Err(Refusal::Restore(source))
            }
            Err(source @ libvirt::Error::Remote(_)) => self.start_failed(source).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn start_failed(&mut self, source: libvirt::Error) -> Result<(), Refusal> {
        let attempt = self.store.count_failed_start()?;
        if attempt >= MAX_STARTS {
            self.apply(Status::Ended(StopReason::StartFailed)).await?;
        }
        Err(Refusal::Start {
            attempt,
            of: MAX_STARTS,
            source,
        })
    }
}

/// Destroys the QEMU of an interrupted start. Its guest was never resumed, so nothing is lost.
async fn discard_interrupted_start(
    connection: &Connection,
    domain: &Domain,
) -> Result<(), libvirt::Error> {
    match connection.destroy(domain).await {
        Err(error @ libvirt::Error::Remote(_)) => {
            tracing::debug!(%error, "the interrupted start left no domain");
            Ok(())
        }
        done => done,
    }
}
