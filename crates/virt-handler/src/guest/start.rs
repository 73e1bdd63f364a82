//! Starting a guest: preparing its pod, and publishing why that is refused.

use domain_xml::Facts;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use launcher_channel::Request;
use reasons::Reason;
use reconcile::{EventType, Key};

use super::{
    act::Guests,
    error::GuestError,
    interfaces::Attached,
    nics,
    observe::Pair,
    plan::{Synced, pauses_agent_probes},
    sessions::Entry,
    status::{self, PreparedStatus},
};
use crate::prepare;

impl Guests {
    pub(super) async fn start(
        &self,
        key: &Key,
        pair: &Pair,
        entry: &Entry,
    ) -> Result<(), GuestError> {
        let link = entry.session.link();
        let Some(peer) = link.peer.clone() else {
            return Ok(());
        };
        let cluster = self.parts.cluster.now();
        let request = prepare::Request {
            vmi: &pair.vmi,
            pod: &pair.pod,
            pod_uid: &pair.pod_uid,
            pods_dir: &self.parts.pods_dir,
            capabilities: &self.parts.capabilities,
            settings: &cluster.written,
            node: &self.parts.node,
            peer,
            left_out: nics::left_out(&pair.vmi, link.state.as_ref(), &Attached::of(&pair.pod)),
        };
        let synced = Synced {
            connection: link.connection,
            agent_probes_paused: pauses_agent_probes(&pair.vmi),
        };
        match prepare_and_sync(request, entry).await {
            Ok((prepared, facts)) => {
                self.sessions.update(key, &pair.pod_uid, |entry| {
                    entry.synced = Some(synced);
                    entry.prepared = Some(prepared);
                    entry.facts = Some(facts);
                });
                Ok(())
            }
            Err(error) => self.refuse_start(key, pair, error).await,
        }
    }

    /// Publishes on the VMI why its guest cannot be started. A permanent error fails the VMI; after
    /// a transient one it waits, and the start is tried again with back-off.
    pub(super) async fn refuse_start(
        &self,
        key: &Key,
        pair: &Pair,
        error: GuestError,
    ) -> Result<(), GuestError> {
        let Some(refusal) = error.start_refusal() else {
            return Err(error);
        };
        let now = Time(self.parts.clock.now());
        let vmi = self.latest(key, pair);
        let status = status::start_refused(&vmi, &refusal, &now);
        let transient = refusal.transient;
        if self.write(key, &vmi, &status).await? {
            let recorder = &self.parts.recorder;
            recorder.publish(
                vmi.as_ref(),
                EventType::Warning,
                Reason::SyncFailed,
                refusal.message,
            );
        }
        if transient { Err(error) } else { Ok(()) }
    }
}

async fn prepare_and_sync(
    request: prepare::Request<'_>,
    entry: &Entry,
) -> Result<(PreparedStatus, Facts), GuestError> {
    let prepared = prepare::prepare(request).await?;
    let sync = Request::Sync(Box::new(prepared.plan));
    entry.session.call(sync).await?;
    Ok((prepared.status, prepared.facts))
}
