//! From a VMI and its pod to everything the launcher is told, and the pod made ready for it.
//!
//! What happens in the pod: its network is plumbed, libvirt's capability cache is placed. What
//! comes out: a [`GuestPlan`]. Doing it twice is the same as once.

use std::sync::Arc;

use domain_xml::{
    Acceleration, DirectIo, EfiFirmware, Facts, Input, InterfaceFacts, RenderError, SmbiosFacts,
};
use host_net::{NetError, NetworkNamespace};
use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::{VirtualMachineInstance, vmi_status::VolumeStatus};
use launcher_channel::GuestPlan;
use model::{Supported, Unsupported};
use net_plan::{Observed, PlanError};
use reasons::Reason;
use rustix::fs::{Mode, OFlags};

use crate::{
    capabilities::Capabilities,
    guest::{Known, grace_seconds},
    launcher::Peer,
    pods_dir::{PodUid, PodsDir},
    volumes::{self, Claims, StepError},
};

/// How often the balloon reports the guest's memory.
const BALLOON_STATS_SECONDS: u32 = 10;
/// The pod's interface on the pod network.
const POD_INTERFACE: &str = "eth0";

/// What to prepare and where.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) vmi: &'a VirtualMachineInstance,
    pub(crate) pod: &'a Pod,
    pub(crate) pod_uid: &'a PodUid,
    pub(crate) pods_dir: &'a PodsDir,
    pub(crate) capabilities: &'a Capabilities,
    pub(crate) peer: Arc<Peer>,
}

/// A pod that is ready for its guest.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: GuestPlan,
    pub(crate) known: Known,
}

/// Why a pod cannot be made ready.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error("not supported yet: {0}")]
    Unsupported(#[from] Unsupported),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("plumb the pod's network")]
    Network(#[from] NetError),
    #[error(transparent)]
    Domain(#[from] RenderError),
    #[error(transparent)]
    Volume(#[from] StepError),
    #[error("reach into the pod")]
    Pod(#[from] std::io::Error),
    #[error("hand the guest's disks over")]
    HandOver(#[source] std::io::Error),
}

impl PrepareError {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Plan(err) => err.reason(),
            Self::Network(err) => err.reason(),
            Self::Domain(RenderError::NotPlumbed { .. }) => Reason::InterfaceNotPlumbed,
            Self::Unsupported(_) | Self::Domain(_) => Reason::DomainNotRenderable,
            Self::Volume(StepError::CloudInit(_)) => Reason::CloudInitNotUsable,
            Self::Volume(StepError::Capacity(_)) => Reason::CapacityNotUsable,
            Self::Pod(_) => Reason::PodNotReachable,
            Self::HandOver(_) => Reason::DiskNotUsable,
        }
    }
}

pub(crate) async fn prepare(request: Request<'_>) -> Result<Prepared, PrepareError> {
    let Request {
        vmi,
        pod,
        pod_uid,
        pods_dir,
        capabilities,
        peer,
    } = request;
    let claims = Claims::of(pod);
    let guest = Supported::of(vmi)?;
    let prepare = volumes::steps(&guest, &claims)?;
    let network = plumb(&guest, &peer).await?;
    failpoints::after("virt-handler/prepare/plumb");
    let private = pods_dir.open(pod_uid, "private")?;
    let uid = vmi.metadata.uid.clone().unwrap_or_default();
    private.make_dir(&uid, kubevirt_api::RUNTIME_USER)?;
    failpoints::after("virt-handler/prepare/make-directory");
    if let Some((path, cache)) = capabilities.cache() {
        private.place(&path, cache, kubevirt_api::RUNTIME_USER)?;
    }
    failpoints::after("virt-handler/prepare/place-capabilities");
    let direct_io = direct_io(pods_dir, pod_uid);
    let kept = volumes::hand_over(&guest, &claims, peer, direct_io).await;
    failpoints::after("virt-handler/prepare/hand-over-disks");
    let facts = Facts {
        volumes: kept.map_err(PrepareError::HandOver)?,
        acceleration: if capabilities.facts().kvm {
            Acceleration::Kvm
        } else {
            Acceleration::Emulation
        },
        direct_io,
        interfaces: network.interfaces.iter().map(interface_facts).collect(),
        smbios: SmbiosFacts::defaults(),
        balloon_stats_seconds: BALLOON_STATS_SECONDS,
        efi: EfiFirmware::debian(),
    };
    let input = Input {
        guest: &guest,
        facts: &facts,
    };
    let domain_xml = domain_xml::render(&input)?;
    let plan = GuestPlan {
        vmi_uid: uid,
        domain_name: guest.domain_name(),
        domain_uuid: firmware_uuid(vmi),
        domain_xml,
        prepare,
        dhcp: network.dhcp,
        start_paused: vmi
            .spec
            .start_strategy
            .as_ref()
            .is_some_and(|s| s.as_str() == "Paused"),
        console_to_log: vmi.spec.domain.devices.log_serial_console == Some(true),
        grace_seconds: u64::try_from(grace_seconds(vmi)).unwrap_or(0),
    };
    let volumes = domain_xml::disk_targets(&input)?
        .into_iter()
        .map(|(name, target)| VolumeStatus {
            persistent_volume_claim_info: claims.info(&name).cloned(),
            name,
            target,
            ..VolumeStatus::default()
        })
        .collect();
    Ok(Prepared {
        plan,
        known: Known {
            interfaces: network.status,
            volumes,
        },
    })
}

/// Looks at the pod's interface, plans, and makes it so, all inside the pod's namespace.
async fn plumb(guest: &Supported<'_>, peer: &Peer) -> Result<net_plan::Plan, PrepareError> {
    if guest.interfaces.is_empty() {
        return Ok(net_plan::Plan::default());
    }
    let namespace = NetworkNamespace::of(peer.network_namespace()?, guest.name());
    let resolv_conf = peer.resolv_conf()?;
    let observe = |net: &mut host_net::Net| host_net::observe_interface(net, POD_INTERFACE);
    let interface = host_net::in_namespace(namespace.clone(), observe).await?;
    let plan = net_plan::plan(
        guest,
        &Observed {
            interface,
            resolv_conf,
        },
    )?;
    let plumbing = plan.plumbing.clone();
    host_net::in_namespace(namespace, move |net| host_net::plumb(net, &plumbing)).await?;
    Ok(plan)
}

fn interface_facts(interface: &net_plan::GuestInterface) -> InterfaceFacts {
    InterfaceFacts {
        name: interface.name.clone(),
        tap: interface.tap.clone(),
        mac: interface.mac.to_string(),
        mtu: u16::try_from(interface.mtu).unwrap_or(u16::MAX),
    }
}

fn firmware_uuid(vmi: &VirtualMachineInstance) -> String {
    let firmware = vmi.spec.domain.firmware.as_ref();
    firmware
        .and_then(|firmware| firmware.uuid.clone())
        .unwrap_or_default()
}

/// Whether files beside the pod's disks can be opened past the page cache.
fn direct_io(pods_dir: &PodsDir, pod: &PodUid) -> DirectIo {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let dir = pods_dir.empty_dir(pod, "ephemeral-disks");
    match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_unnamed) => DirectIo::Supported,
        Err(_) => DirectIo::Unsupported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A VMI ends only for a permanent reason; the others are tried again.
    #[test]
    fn transient_problems_of_the_pod_do_not_end_the_vmi() {
        let interface = || "default".to_owned();
        let no_address = PlanError::PodHasNoAddress {
            interface: interface(),
        };
        let not_plumbed = RenderError::NotPlumbed {
            interface: interface(),
        };
        let no_network = PlanError::NoSuchNetwork {
            interface: interface(),
        };
        for (error, is_permanent) in [
            (PrepareError::from(no_address), false),
            (PrepareError::from(not_plumbed), false),
            (PrepareError::from(no_network), true),
        ] {
            assert_eq!(error.reason().is_permanent(), is_permanent, "{error}");
        }
    }
}
