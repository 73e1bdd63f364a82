//! From a VMI and its pod to everything the launcher is told, and the pod made ready for it.
//!
//! What happens in the pod: its network is plumbed, libvirt's capability cache is placed. What
//! comes out: a [`GuestPlan`]. Doing it twice is the same as once.

use std::sync::Arc;

use domain_xml::{Acceleration, DirectIo, EfiFirmware, Facts, Input, InterfaceFacts, SmbiosFacts};
use host_net::{NetError, NetworkNamespace};
use kubevirt_api::{VirtualMachineInstance, vmi_status::VolumeStatus, volumes::Volume};
use launcher_channel::{Backing, GuestPlan, Prepare};
use net_plan::{Observed, PlanError};
use rustix::fs::{Mode, OFlags};
use seed::{CloudInit, CloudInitError, Data, Flavour};

use crate::{
    capabilities::Capabilities,
    guest::{Known, grace_seconds},
    launcher::Peer,
    pods_dir::{PodUid, PodsDir},
};

/// How often the balloon reports the guest's memory.
const BALLOON_STATS_SECONDS: u32 = 10;
/// The pod's interface on the pod network.
const POD_INTERFACE: &str = "eth0";

/// What to prepare and where.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) vmi: &'a VirtualMachineInstance,
    pub(crate) pod: &'a PodUid,
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
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("plumb the pod's network")]
    Network(#[from] NetError),
    #[error(transparent)]
    Domain(#[from] domain_xml::RenderError),
    #[error(transparent)]
    CloudInit(#[from] CloudInitError),
    #[error("reach into the pod")]
    Pod(#[from] std::io::Error),
    #[error("volume {volume}: capacity {value:?} is no size in bytes")]
    Capacity { volume: String, value: String },
}

impl PrepareError {
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Plan(err) => err.reason(),
            Self::Network(err) => err.reason(),
            Self::Domain(_) => "DomainNotRenderable",
            Self::CloudInit(_) => "CloudInitNotUsable",
            Self::Pod(_) => "PodNotReachable",
            Self::Capacity { .. } => "CapacityNotUsable",
        }
    }

    /// Trying again gives the same answer: it lies in the VMI, whose spec never changes.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Plan(_) | Self::Domain(_) | Self::CloudInit(_) | Self::Capacity { .. }
        )
    }
}

pub(crate) async fn prepare(request: Request<'_>) -> Result<Prepared, PrepareError> {
    let Request {
        vmi,
        pod,
        pods_dir,
        capabilities,
        peer,
    } = request;
    let network = plumb(vmi, &peer).await?;
    let private = pods_dir.open(pod, "private")?;
    let uid = vmi.metadata.uid.clone().unwrap_or_default();
    private.make_dir(&uid, kubevirt_api::RUNTIME_USER)?;
    if let Some((path, cache)) = capabilities.cache() {
        private.place(&path, cache, kubevirt_api::RUNTIME_USER)?;
    }
    let facts = Facts {
        acceleration: if capabilities.facts().kvm {
            Acceleration::Kvm
        } else {
            Acceleration::Emulation
        },
        direct_io: direct_io(pods_dir, pod),
        interfaces: network.interfaces.iter().map(interface_facts).collect(),
        smbios: SmbiosFacts::usual(),
        balloon_stats_seconds: BALLOON_STATS_SECONDS,
        efi: EfiFirmware::debian(),
    };
    let input = Input { vmi, facts: &facts };
    let domain_xml = domain_xml::render(&input)?;
    let prepare = vmi
        .spec
        .volumes
        .iter()
        .enumerate()
        .filter_map(|(index, volume)| preparation(vmi, index, volume).transpose())
        .collect::<Result<_, _>>()?;
    let plan = GuestPlan {
        vmi_uid: uid,
        domain_name: domain_xml::domain_name(vmi),
        domain_uuid: firmware_uuid(vmi),
        domain_xml,
        prepare,
        dhcp: network.dhcp,
        start_paused: vmi
            .spec
            .start_strategy
            .as_ref()
            .is_some_and(|s| s.as_str() == "Paused"),
        grace_seconds: u64::try_from(grace_seconds(vmi)).unwrap_or(0),
    };
    let volumes = domain_xml::disk_targets(&input)?
        .into_iter()
        .map(|(name, target)| VolumeStatus {
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
async fn plumb(vmi: &VirtualMachineInstance, peer: &Peer) -> Result<net_plan::Plan, PrepareError> {
    if vmi.spec.domain.devices.interfaces.is_empty() {
        return Ok(net_plan::Plan::default());
    }
    let name = vmi.metadata.name.clone().unwrap_or_default();
    let namespace = NetworkNamespace::of(peer.network_namespace()?, &name);
    let resolv_conf = peer.resolv_conf()?;
    let observe = |net: &mut host_net::Net| host_net::observe_interface(net, POD_INTERFACE);
    let interface = host_net::in_namespace(namespace.clone(), observe).await?;
    let plan = net_plan::plan(
        vmi,
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

/// What the launcher makes for one volume.
fn preparation(
    vmi: &VirtualMachineInstance,
    index: usize,
    volume: &Volume,
) -> Result<Option<Prepare>, PrepareError> {
    let name = &volume.name;
    if let Some(disk) = &volume.container_disk {
        let root = domain_xml::paths::image_volume(index);
        let backing = Backing::ImageRoot {
            root,
            path: disk.path.clone(),
        };
        return Ok(Some(Prepare::Overlay {
            path: domain_xml::paths::overlay(name),
            backing,
        }));
    }
    if let Some(disk) = &volume.empty_disk {
        let capacity = &disk.capacity;
        let bytes = kubevirt_api::quantity::Amount::parse(capacity)
            .ok()
            .map(kubevirt_api::quantity::Amount::units);
        let bytes = bytes.ok_or_else(|| PrepareError::Capacity {
            volume: name.clone(),
            value: capacity.0.clone(),
        })?;
        return Ok(Some(Prepare::EmptyDisk {
            path: domain_xml::paths::empty_disk(name),
            bytes,
        }));
    }
    if let Some(source) = &volume.cloud_init_no_cloud {
        let data = SeedData {
            user: (
                &source.user_data,
                &source.user_data_base64,
                source.secret_ref.is_some(),
            ),
            network: (
                &source.network_data,
                &source.network_data_base64,
                source.network_data_secret_ref.is_some(),
            ),
        };
        return Ok(Some(cloud_init(vmi, name, Flavour::NoCloud, &data)?));
    }
    if let Some(source) = &volume.cloud_init_config_drive {
        let data = SeedData {
            user: (
                &source.user_data,
                &source.user_data_base64,
                source.secret_ref.is_some(),
            ),
            network: (
                &source.network_data,
                &source.network_data_base64,
                source.network_data_secret_ref.is_some(),
            ),
        };
        return Ok(Some(cloud_init(vmi, name, Flavour::ConfigDrive, &data)?));
    }
    Ok(None)
}

/// The ways to give data, in the order in which they count: text, base64, a mounted secret.
type Ways<'a> = (&'a Option<String>, &'a Option<String>, bool);

struct SeedData<'a> {
    user: Ways<'a>,
    network: Ways<'a>,
}

fn cloud_init(
    vmi: &VirtualMachineInstance,
    volume: &str,
    flavour: Flavour,
    data: &SeedData<'_>,
) -> Result<Prepare, CloudInitError> {
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    let files = seed::cloud_init_files(&CloudInit {
        flavour,
        namespace,
        vmi: name,
        hostname: &host_name(vmi),
        instance_type: None,
        volume,
        user_data: chosen(&data.user),
        network_data: chosen(&data.network),
    })?;
    Ok(Prepare::Seed {
        path: domain_xml::paths::seed(namespace, name, flavour.file_name()),
        label: flavour.label().to_owned(),
        files,
    })
}

fn chosen<'a>((text, base64, secret): &Ways<'a>) -> Option<Data<'a>> {
    let text = text.as_deref().map(Data::Plain);
    text.or_else(|| base64.as_deref().map(Data::Base64))
        .or(secret.then_some(Data::Secret))
}

/// As the pod's: what the spec says, else the name up to its first dot.
fn host_name(vmi: &VirtualMachineInstance) -> String {
    let name = vmi.metadata.name.as_deref().unwrap_or_default();
    let name = vmi.spec.hostname.as_deref().unwrap_or(name);
    name.split('.')
        .next()
        .unwrap_or_default()
        .chars()
        .take(63)
        .collect()
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
