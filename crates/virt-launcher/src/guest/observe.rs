//! Querying libvirt for the guest's state, recording it and publishing it.

use std::collections::BTreeMap;

use error_chain::error_chain;
use launcher_channel::{DomainState, GuestState, StopReason};
use libvirt::{Connection, Domain, DomainUuid, ErrorCode, PausedReason};
use tokio::time::Instant;

use super::agent_link::AgentLink;
use super::domain_xml::LiveDomain;
use super::ending::{self, Ending, Evidence};
use super::io_retry::{IoRetry, Storage};
use super::link::LINK_TIMEOUT;
use super::links;
use super::migration;
use super::record::Record;
use super::refusal::Refusal;
use super::saved_state;
use super::size;
use super::status::{Phase, Status, classify};
use super::task::Guest;

impl Guest {
    /// Queries libvirt for the guest and applies the result.
    pub(super) async fn observe(&mut self) -> Result<(), Refusal> {
        let (Some(phase), Some(connection)) = (self.store.phase(), self.connection()) else {
            return Ok(());
        };
        let Some(domain) = self.domain() else {
            return Ok(());
        };
        let mut observed = match connection.state(&domain).await {
            Ok(state) => Some(state),
            Err(error) if error.code() == Some(ErrorCode::NO_DOMAIN) => None,
            Err(error) => return Err(error.into()),
        };
        let is_given_up = self.store.is_given_up();
        let restored_from = self.restored_from();
        let is_resumable = match observed {
            Some(libvirt::DomainState::Paused(PausedReason::User)) => true,
            Some(libvirt::DomainState::Paused(_)) => restored_from.is_some(),
            _ => false,
        };
        if phase == Phase::Resuming && !is_given_up && is_resumable {
            if let Some(directory) = &restored_from {
                self.on_state(directory, saved_state::use_up).await?;
                failpoints::after("virt-launcher/saved/use-up");
            }
            connection.resume(&domain).await?;
            failpoints::after("virt-launcher/guest/resume");
            self.store.advance(Phase::Started)?;
            observed = Some(connection.state(&domain).await?);
            if let Some(directory) = &restored_from
                && let Err(error) = self.on_state(directory, saved_state::empty).await
            {
                tracing::warn!(error = error_chain(&error), "failed to free a used state");
            }
        }
        let status = self.faults.refine(classify(phase, observed));
        let step = self.store.migration_step();
        let status = migration::seen(status, step, self.migrations.memory());
        // These queries would wait for the end of post-copy.
        let answers = !self.store.is_following();
        if answers && self.faults.needs_disk_errors(status) {
            match connection.disk_errors(&domain).await {
                Ok(messages) => self.faults.set_disk_errors(&messages),
                Err(error) => tracing::info!(
                    error = error_chain(&error),
                    "failed to query libvirt for disk errors"
                ),
            }
        }
        if answers && matches!(status, Status::Alive(_)) {
            self.read_domain_xml(&connection, &domain).await?;
        }
        self.apply(status).await
    }

    /// Reads what only the live XML shows, once per connection.
    async fn read_domain_xml(
        &mut self,
        connection: &Connection,
        domain: &Domain,
    ) -> Result<(), Refusal> {
        if self.machine.is_some() && !self.agent.is_unknown() {
            return Ok(());
        }
        let xml = connection.xml(domain).await?;
        let live = LiveDomain::parse(&xml).unwrap_or_else(|error| {
            // A guest must be adopted all the same.
            tracing::warn!(
                error = error_chain(&error),
                "failed to parse the domain's XML"
            );
            LiveDomain::default()
        });
        self.size = size::size(&live);
        self.machine = live.machine;
        self.disks.observe(&live.disks);
        self.links = links::by_name(&live.interfaces);
        self.on_agent_state(live.agent);
        Ok(())
    }

    fn restored_from(&self) -> Option<String> {
        self.store.record()?.plan.restore.clone()
    }

    async fn on_state(
        &self,
        directory: &str,
        work: fn(&str) -> std::io::Result<()>,
    ) -> Result<(), Refusal> {
        let directory = directory.to_owned();
        let done = self.tasks.spawn_blocking(move || work(&directory)).await;
        Ok(done.map_err(std::io::Error::other)??)
    }

    /// The end of a guest whose state was saved: only with all of it on disk it is not a crash.
    async fn settled(&self, reason: StopReason) -> (StopReason, Ending) {
        let saved = self.store.dump().map(|report| &report.plan);
        let path = saved.filter(|plan| plan.is_saving());
        let path = path.and_then(launcher_channel::DumpPlan::path);
        let (StopReason::Saved, Some(path)) = (reason, path) else {
            return (reason, self.explain(reason).await);
        };
        let settle = move || saved_state::settle(&path);
        let settled = self.tasks.spawn_blocking(settle).await;
        let settled = settled.map_err(std::io::Error::other);
        match settled
            .map_err(saved_state::SavedStateError::from)
            .flatten()
        {
            Ok(()) => {
                failpoints::after("virt-launcher/saved/settle");
                (reason, Ending::default())
            }
            Err(error) => {
                let note = format!("its state was not saved: {}", error_chain(&error));
                let ending = Ending {
                    note: Some(note),
                    signal: None,
                };
                (StopReason::Crashed, ending)
            }
        }
    }

    pub(super) async fn apply(&mut self, mut status: Status) -> Result<(), Refusal> {
        match status {
            Status::Startable => {}
            Status::Alive(state) => {
                // A guest that was received has not run here yet.
                if self.store.phase() != Some(Phase::Received) {
                    self.store.advance(Phase::Started)?;
                }
                self.record_qemu_pid()?;
                // libvirt does not resume a guest in post-copy.
                let is_retried =
                    state == DomainState::PausedByIoError && !self.store.is_following();
                let storage = if is_retried {
                    Storage::Failed
                } else {
                    Storage::Works
                };
                self.io_retry.observe(storage, Instant::now());
                if let Some(record) = self.store.record() {
                    self.dhcp.start(&record.plan.dhcp, &record.plan.ipv6);
                    self.files.adopt(&record.plan.filesystems);
                    self.passt.adopt(&record.plan.passt);
                    let pid = self.paths.domain_pid(&record.plan.domain_name);
                    self.metrics.adopt(record.plan.metrics.as_ref(), pid);
                }
            }
            Status::Ended(reason) => {
                if !matches!(self.store.phase(), Some(Phase::Ended(_))) {
                    let (reason, ending) = self.settled(reason).await;
                    self.store.end(reason, ending)?;
                    status = Status::Ended(reason);
                }
                self.io_retry = IoRetry::new();
                self.agent = AgentLink::Unknown;
                self.shutdown = None;
                self.dhcp.stop();
                self.files.stop();
                self.passt.stop();
                self.metrics.stop();
            }
        }
        self.status = Some(status);
        self.publish();
        Ok(())
    }

    /// The state as the handler gets it.
    pub(super) fn state(&self) -> GuestState {
        let domain = match self.status {
            Some(Status::Alive(state)) => Some(state),
            Some(Status::Ended(reason)) => Some(DomainState::Stopped(reason)),
            Some(Status::Startable) | None => None,
        };
        let alive = self.is_alive();
        let ending = match self.store.record() {
            Some(record) if !alive => record.ending.clone(),
            _ => Ending::default(),
        };
        let fault = domain.and_then(|state| self.faults.explain(state));
        GuestState {
            note: ending.note.or(fault),
            agent: self.agent.report(),
            failed_pings: self.failed_pings.count(),
            qemu_signal: ending.signal,
            lost_filesystems: self.files.lost(),
            domain,
            machine: self.machine.clone(),
            shutting_down: alive && self.shutdown.is_some(),
            migration: self.migration_report().map(Box::new),
            dump: self.dumps.report().filter(|_| alive).cloned().map(Box::new),
            backup: self
                .backups
                .report()
                .filter(|_| alive)
                .cloned()
                .map(Box::new),
            takes_backups: true,
            offers_disks: true,
            takes_interfaces: true,
            interface_failures: if alive {
                self.interface_failures.clone()
            } else {
                BTreeMap::new()
            },
            size: self.size.filter(|_| alive),
            disks: if alive {
                self.disks.attached()
            } else {
                BTreeMap::new()
            },
            links: if alive {
                self.reported_links()
            } else {
                BTreeMap::new()
            },
            disk_failures: if alive {
                self.disks.failures()
            } else {
                BTreeMap::new()
            },
        }
    }

    /// Publishes the state if it has changed.
    pub(super) fn publish(&self) {
        let state = self.status.map(|_| self.state());
        self.states.send_if_modified(|published| {
            let changed = *published != state;
            if changed {
                tracing::info!(?state, "guest state changed");
                *published = state;
            }
            changed
        });
    }

    pub(super) fn publish_console_setting(&self) {
        let wanted = |record: &Record| record.plan.console_to_log;
        let wanted = self.store.record().is_some_and(wanted);
        self.console_to_log.send_replace(wanted);
    }

    fn record_qemu_pid(&mut self) -> Result<(), Refusal> {
        let Some(record) = self.store.record().filter(|record| record.qemu.is_none()) else {
            return Ok(());
        };
        let path = self.paths.domain_pid(&record.plan.domain_name);
        let pid = std::fs::read_to_string(path).unwrap_or_default();
        if let Ok(pid) = pid.trim().parse() {
            self.store.set_qemu_pid(pid)?;
        }
        Ok(())
    }

    async fn explain(&self, reason: StopReason) -> Ending {
        let Some(record) = self.store.record() else {
            return Ending::default();
        };
        let evidence = Evidence {
            ends: &self.paths.ends(),
            log: &self.paths.domain_log(&record.plan.domain_name),
            qemu: record.qemu,
        };
        ending::explain(reason, &evidence).await
    }

    /// Waits until the state is known: after a restart of this launcher or of libvirtd it is not.
    pub(super) async fn ensure_known(&mut self) -> Result<(), Refusal> {
        if self.status.is_none() || (self.link.is_none() && self.is_alive()) {
            self.wait_for_link(Instant::now() + LINK_TIMEOUT).await?;
        }
        Ok(())
    }

    /// The domain by the plan's name and UUID; libvirt identifies it by the UUID.
    pub(super) fn domain(&self) -> Option<Domain> {
        let plan = &self.store.record()?.plan;
        let uuid = DomainUuid::parse(&plan.domain_uuid)?;
        Some(Domain {
            name: plan.domain_name.clone(),
            uuid,
            id: None,
        })
    }
}
