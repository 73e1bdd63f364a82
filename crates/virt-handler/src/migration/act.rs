//! Carries out the steps of a migration.

use std::{collections::BTreeSet, io, net::SocketAddr, sync::Arc, time::Duration};

use error_chain::error_chain;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kubevirt_api::{
    VirtualMachineInstance, migration::VirtualMachineInstanceMigrationState as State,
};
use launcher_channel::{DomainState, MigrationPlan, Request};
use model::Guest;
use reasons::Reason;
use reconcile::{EventType, Key, Requeue};
use serde_json::{Value, json};
use serving::Target;

use super::{
    carriage::{Carriage, Listening, Pace, SILENCE_LIMIT, Way},
    endpoint, figures,
    flows::flows,
    limits::{self, Limits},
    network::{self, Place},
    plan::{Observed, Outcome, Step, plan},
};
use crate::{
    guest::{
        BringError, Entry, GuestError, Guests, Pair, Part, arriving_pod, copied_disks, moved_disks,
    },
    launcher::{self, CallError},
    prepare::{self, PrepareError},
};

/// The field manager of the VMI's status.
const MANAGER: &str = "virt-handler";
/// How often a copy is compared with its limits, if its launcher reports nothing.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

impl Guests {
    /// The next step of this node in the migration of a guest, if there is one.
    pub(crate) async fn follow_migration(
        &self,
        key: &Key,
        pair: &Pair,
        entry: &Entry,
    ) -> Result<Requeue, GuestError> {
        let vmi = self.latest(key, pair);
        let status = vmi.status.as_ref();
        let state = status.and_then(|status| status.migration_state.as_ref());
        let Some((state, uid)) =
            state.and_then(|state| Some((state, model::copy_id(state)?.to_owned())))
        else {
            self.migrations.remove(key);
            return Ok(Requeue::OnChange);
        };
        let link = entry.session.link();
        let report = link
            .state
            .as_ref()
            .and_then(|state| state.migration.as_ref());
        let report = report.filter(|report| report.id == uid);
        let is_copying = state.start_timestamp.is_some()
            && state.completed != Some(true)
            && pair.part == Part::Runs;
        let pace = if is_copying {
            let progress = report.and_then(|report| report.progress.as_ref());
            let written = state.migration_configuration.as_ref();
            let report = report.map(Box::as_ref);
            let at_completion = limits::at_completion(written, report);
            let limits = Limits::of(written, at_completion);
            if let Some(progress) = progress {
                figures::publish(key, &self.parts.node, progress);
            }
            self.migrations.observe(key, &uid, limits, progress)
        } else {
            Pace::default()
        };
        let step = plan(&Observed {
            state,
            part: pair.part,
            has_moved: model::has_moved(&vmi),
            node: &self.parts.node,
            is_connected: link.peer.is_some(),
            is_known: link.state.is_some(),
            stage: report.map(|report| &report.stage),
            overrun: pace.overrun.as_deref(),
            due: pace.due.of(report.map(Box::as_ref)),
            is_paused: report.is_some_and(|report| report.paused),
        });
        if let Some(step) = step {
            tracing::info!(migration = uid, ?step, "next step of a migration");
            let guest = Migrating {
                key,
                pair,
                entry,
                vmi: &vmi,
                state,
                uid: &uid,
            };
            self.carry_out(&guest, step).await?;
        } else if !is_copying && pair.part == Part::Runs {
            self.migrations.remove(key);
        }
        Ok(if is_copying {
            Requeue::After(CHECK_INTERVAL)
        } else {
            Requeue::OnChange
        })
    }

    async fn carry_out(&self, guest: &Migrating<'_>, step: Step) -> Result<(), GuestError> {
        let id = guest.uid.to_owned();
        match step {
            Step::Receive => self.receive(guest).await,
            Step::PublishAddress => self.publish_address(guest).await,
            Step::PublishArrival => {
                let published = json!({
                    "targetNodeDomainDetected": true,
                    "targetNodeDomainReadyTimestamp": self.time(),
                });
                self.publish(guest, published).await?;
                failpoints::after("virt-handler/migration/publish-arrival");
                Ok(())
            }
            Step::Begin => self.begin(guest).await,
            Step::Cancel => {
                let cancel = Request::CancelMigration { id };
                guest.entry.session.call(cancel).await?;
                failpoints::after("virt-handler/migration/cancel");
                Ok(())
            }
            Step::StartPostCopy => {
                let start = Request::StartPostCopy { id };
                guest.entry.session.call(start).await?;
                failpoints::after("virt-handler/migration/start-post-copy");
                Ok(())
            }
            Step::PublishPostCopy => {
                self.publish(guest, json!({"mode": "PostCopy"})).await?;
                failpoints::after("virt-handler/migration/publish-post-copy");
                Ok(())
            }
            Step::PublishPause => {
                self.publish(guest, json!({"mode": "Paused"})).await?;
                Ok(())
            }
            Step::End(outcome) => self.end(guest, &outcome).await,
        }
    }

    async fn publish_address(&self, guest: &Migrating<'_>) -> Result<(), GuestError> {
        let named = self.named_network(guest.state);
        let offered = network::offer(self.place(named.as_deref()), self.parts.address).await;
        let offer = match offered {
            Ok(offer) => offer,
            Err(error) => {
                return self.end(guest, &Outcome::Failed(error_chain(&error))).await;
            }
        };
        let own_cpus = guest.own_cpus()?;
        let ports = ports(guest.state, offer.address.port());
        let published = json!({
            "targetNodeAddress": offer.address.ip(),
            "targetCPUSet": own_cpus,
            "targetDirectMigrationNodePorts": ports,
            "migrationNetworkType": offer.network,
        });
        self.publish(guest, published).await?;
        failpoints::after("virt-handler/migration/publish-address");
        Ok(())
    }

    /// The network that guests move over between nodes, if it is another one than that of the pods.
    fn named_network(&self, state: &State) -> Option<String> {
        if model::is_within_node(state) {
            return None;
        }
        let cluster = self.parts.cluster.now();
        let migrations = cluster.written.migrations.as_ref()?;
        let named = migrations.network.clone();
        named.filter(|named| !named.is_empty())
    }

    fn place<'a>(&'a self, named: Option<&'a str>) -> Place<'a> {
        Place {
            node: &self.parts.node,
            named,
        }
    }

    /// Prepares the pod as for a start, and has its launcher wait for the guest.
    async fn receive(&self, guest: &Migrating<'_>) -> Result<(), GuestError> {
        let Some(peer) = guest.entry.session.link().peer else {
            return Ok(());
        };
        let cluster = self.parts.cluster.now();
        let request = prepare::Request {
            vmi: guest.vmi,
            pod: &guest.pair.pod,
            pod_uid: &guest.pair.pod_uid,
            pods_dir: &self.parts.pods_dir,
            capabilities: &self.parts.capabilities,
            settings: &cluster.written,
            node: &self.parts.node,
            peer,
            left_out: BTreeSet::new(),
        };
        let volumes = self.bring_along(guest.vmi, guest.pair, guest.entry);
        if let Err(error) = Box::pin(volumes).await {
            let message = format!("bring the attached volumes: {}", error_chain(&error));
            // The hand-over is written once: what it lacks does not come.
            if matches!(error, BringError::NoPod) {
                return self.end(guest, &Outcome::Failed(message)).await;
            }
            let reason = Reason::VolumeNotMounted;
            let recorder = &self.parts.recorder;
            recorder.publish(&**guest.vmi, EventType::Warning, reason, message);
            return Err(PrepareError::HandOver(io::Error::other(error)).into());
        }
        let received = async {
            let prepared = prepare::prepare(request).await?;
            let receive = Request::Receive {
                id: guest.uid.to_owned(),
                plan: Box::new(prepared.plan),
            };
            guest.entry.session.call(receive).await?;
            failpoints::after("virt-handler/migration/receive");
            Ok(())
        };
        match received.await {
            Err(error @ (GuestError::Prepare(_) | GuestError::Call(_))) if error.ends_arrival() => {
                let message = format!("prepare the new pod: {}", error_chain(&error));
                self.end(guest, &Outcome::Failed(message)).await
            }
            done => done,
        }
    }

    async fn begin(&self, guest: &Migrating<'_>) -> Result<(), GuestError> {
        let named = self.named_network(guest.state);
        if let Err(error) = network::check(self.place(named.as_deref()), guest.state).await {
            let outcome = Outcome::Failed(error_chain(&error));
            return self.end(guest, &outcome).await;
        }
        let listening = match self.way(guest) {
            Some(way) => self.listen(guest, way).map_err(|error| error.to_string()),
            None => Err(
                "the address of the new pod is not valid, or it expects another guest".to_owned(),
            ),
        };
        let listening = match listening {
            Ok(listening) => listening,
            Err(message) => {
                let message = format!("listen in the guest's pod: {message}");
                return self.end(guest, &Outcome::Failed(message)).await;
            }
        };
        failpoints::after("virt-handler/migration/listen");
        let started = json!({"startTimestamp": self.time(), "mode": "PreCopy"});
        let begun = Arc::new(self.publish(guest, started).await?);
        failpoints::after("virt-handler/migration/publish-start");
        let stop = self.migrations.begin(guest.key, guest.uid);
        let all = self.parts.stop.clone();
        self.parts.tasks.spawn(async move {
            tokio::select! {
                () = all.cancelled() => {}
                () = listening.run(stop) => {}
            }
        });
        let written = guest.state.migration_configuration.as_ref();
        let flows = flows(guest.vmi, written);
        let moved_disks = moved_disks(guest.vmi);
        let plan = MigrationPlan {
            id: guest.uid.to_owned(),
            auto_converge: written.and_then(|all| all.allow_auto_converge) == Some(true),
            bandwidth_mib: limits::bandwidth_mib(written),
            copied_disks: copied_disks(guest.vmi),
            is_within_node: model::is_within_node(guest.state),
            // A guest that is lost half-way would leave two claims, each with a part of what it wrote, and two VMIs,
            // neither of which could go on.
            post_copy: limits::allows_post_copy(written)
                && moved_disks.is_empty()
                && !model::is_decentralized(guest.state),
            pauses: limits::allows_pause(written),
            parallel_connections: flows.connections,
            compression: flows.compression,
            moved_disks,
        };
        let migrate = Request::Migrate(Box::new(plan));
        match guest.entry.session.call(migrate).await {
            Ok(_state) => {
                failpoints::after("virt-handler/migration/begin");
                Ok(())
            }
            Err(error @ CallError::Refused { .. }) => {
                let guest = Migrating {
                    vmi: &begun,
                    ..*guest
                };
                let outcome = Outcome::Failed(error_chain(&error));
                self.end(&guest, &outcome).await
            }
            // Whether the launcher has begun is unknown; the next reconcile sees it.
            Err(error) => Err(error.into()),
        }
    }

    fn listen(&self, guest: &Migrating<'_>, way: Way) -> io::Result<Listening> {
        let carriage = Carriage {
            way,
            pods_dir: self.parts.pods_dir.clone(),
            pod: guest.pair.pod_uid.clone(),
            check: launcher::check_peer,
        };
        carriage.listen()
    }

    /// The way to the new pod; `None` if it is not known.
    fn way(&self, guest: &Migrating<'_>) -> Option<Way> {
        let state = guest.state;
        if model::is_within_node(state) {
            if model::is_decentralized(state) && !self.is_awaited(guest) {
                return None;
            }
            let pod = arriving_pod(&self.parts.pods, guest.vmi, &self.parts.node)?;
            return Some(Way::WithinNode(pod));
        }
        let ip = state.target_node_address.as_ref()?.parse().ok()?;
        let ports = &state.target_direct_migration_node_ports;
        let port = ports.keys().next()?.parse().ok()?;
        let node = state.target_node.as_ref()?;
        Some(Way::ToNode {
            peers: self
                .parts
                .peers
                .clone()?
                .ending_after_silence(SILENCE_LIMIT),
            target: Target::at(SocketAddr::new(ip, port), format!("virt-handler.{node}")),
            path: endpoint::path(&guest.destination(), guest.uid),
        })
    }

    /// Whether the other VMI, which is on this node, too, waits for this guest.
    fn is_awaited(&self, guest: &Migrating<'_>) -> bool {
        let other = self.vmi(&guest.destination());
        let status = other.as_ref().and_then(|vmi| vmi.status.as_ref());
        let state = status.and_then(|status| status.migration_state.as_ref());
        state.is_some_and(|state| {
            let source = state.source_state.as_ref();
            let uid = source.and_then(|one| one.virtual_machine_instance_uid.as_ref());
            let is_over = state.completed == Some(true) || state.failed == Some(true);
            uid == guest.vmi.metadata.uid.as_ref()
                && model::copy_id(state) == Some(guest.uid)
                && !is_over
        })
    }

    async fn end(&self, guest: &Migrating<'_>, outcome: &Outcome) -> Result<(), GuestError> {
        let mut published = json!({"completed": true, "endTimestamp": self.time()});
        let is_unwanted = guest.state.abort_requested == Some(true);
        match outcome {
            Outcome::Moved => {
                // The new node may not have published it yet, and does not after this.
                if guest.state.target_node_domain_ready_timestamp.is_none() {
                    published["targetNodeDomainDetected"] = json!(true);
                    published["targetNodeDomainReadyTimestamp"] = json!(self.time());
                }
                if is_unwanted {
                    published["abortStatus"] = json!("Failed");
                }
            }
            Outcome::Failed(message) => {
                published["failed"] = json!(true);
                published["failureReason"] = json!(message);
                // Post-copy may have broken before its beginning was published.
                if guest.is_lost() {
                    published["mode"] = json!("PostCopy");
                }
            }
            Outcome::Aborted => {
                published["failed"] = json!(true);
                published["failureReason"] = json!("the migration was cancelled");
                published["abortStatus"] = json!("Succeeded");
            }
        }
        self.publish(guest, published).await?;
        failpoints::after("virt-handler/migration/end");
        self.migrations.remove(guest.key);
        Ok(())
    }

    /// Writes members of the migration's state; the VMI must be as it was observed.
    async fn publish(
        &self,
        guest: &Migrating<'_>,
        members: Value,
    ) -> Result<VirtualMachineInstance, GuestError> {
        let body = json!({
            "metadata": {"resourceVersion": guest.vmi.metadata.resource_version},
            "status": {"migrationState": members},
        });
        let namespace = &guest.key.namespace;
        let api = Api::namespaced(self.parts.client.0.clone(), namespace);
        let written: VirtualMachineInstance =
            reconcile::merge(&api, MANAGER, guest.key, &body).await?;
        self.parts.vmis.wrote(guest.vmi, written.clone());
        self.parts.arrivals.wrote(guest.vmi, written.clone());
        Ok(written)
    }

    fn time(&self) -> Time {
        Time(self.parts.clock.now())
    }
}

/// The ports to publish: a merge keeps the port of an earlier virt-handler, unless that is removed.
fn ports(state: &State, own: u16) -> Value {
    let earlier = state.target_direct_migration_node_ports.keys();
    let mut ports: serde_json::Map<_, _> =
        earlier.map(|port| (port.clone(), Value::Null)).collect();
    ports.insert(own.to_string(), json!(0));
    Value::Object(ports)
}

/// A guest with its migration.
#[derive(Clone, Copy)]
struct Migrating<'a> {
    key: &'a Key,
    pair: &'a Pair,
    entry: &'a Entry,
    vmi: &'a Arc<VirtualMachineInstance>,
    state: &'a State,
    uid: &'a str,
}

impl Migrating<'_> {
    /// The CPUs that this node has given the pod, if the guest has some for itself.
    fn own_cpus(&self) -> Result<Option<Vec<u32>>, PrepareError> {
        let peer = self.entry.session.link().peer;
        let peer = peer.filter(|_| Guest::of(self.vmi).has_dedicated_cpus());
        let cpus = peer.map(|peer| host_cpus::parse_list(&peer.allowed_cpus()?));
        Ok(cpus.transpose()?)
    }

    /// The VMI that the guest goes to: its own or another one.
    fn destination(&self) -> Key {
        let target = self.state.target_state.as_ref();
        let target = target.filter(|_| model::is_decentralized(self.state));
        let named = target.and_then(|one| {
            Some(Key::new(
                one.domain_namespace.as_ref()?,
                one.domain_name.as_ref()?,
            ))
        });
        named.unwrap_or_else(|| self.key.clone())
    }

    /// Whether the guest's memory was in two pods, and cannot come together any more.
    fn is_lost(&self) -> bool {
        let link = self.entry.session.link();
        let domain = link.state.as_ref().and_then(|state| state.domain);
        domain == Some(DomainState::PausedPostcopyFailed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_of_an_earlier_virt_handler_is_removed() {
        for (published, expected) in [
            (json!({}), json!({"8443": 0})),
            (json!({"8443": 0}), json!({"8443": 0})),
            (json!({"8442": 0}), json!({"8442": null, "8443": 0})),
        ] {
            let state = json!({"targetDirectMigrationNodePorts": published});
            let state: State = serde_json::from_value(state).unwrap();
            assert_eq!(ports(&state, 8443), expected);
        }
    }
}
