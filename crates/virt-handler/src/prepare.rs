//! Preparation of a pod for its guest: configures the pod's network, places libvirt's capability
//! cache, hands over the disks, and renders the [`GuestPlan`] for the launcher. Idempotent.

mod claimed_devices;
mod cluster;
mod device_nodes;
mod error;
mod file_servers;
mod hooks;
mod hotplug;
mod interfaces;
mod metrics;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use domain_xml::{
    Acceleration, DirectIo, EfiFirmware, Facts, HostCell, HostCpu, Input, InterfaceFacts,
};
use host_net::{LinkKind, NetError, NetworkNamespace};
use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::{
    VirtualMachineInstance, annotations, cluster_config::KubeVirtConfiguration,
    vmi_status::VolumeStatus,
};
use launcher_channel::{ClaimDisk, Credential, GuestPlan};
use model::{
    AllocatedDevices, Binding, BindingPlugin, BindingPlugins, LinkState, PciAddress, Propagation,
    SAVED_STATE_VOLUME, Storage, Supported, VolumeSource, paths,
};
use net_plan::{Observed, PodInterface};
use rustix::fs::{Mode, OFlags};

use crate::{
    capabilities::Capabilities,
    devices,
    guest::{Attached, PreparedStatus, grace_seconds, pauses_agent_probes},
    launcher::{Peer, Right},
    pods_dir::{PodUid, PodsDir},
    volumes::{self, Claims},
};

pub(crate) use self::error::PrepareError;
pub(crate) use self::hotplug::hot_disks;
pub(crate) use self::interfaces::{connect, disconnect};

/// The kernel's name of a macvlan that a process can open.
const MACVTAP: &str = "macvtap";

/// The input of [`prepare`].
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) vmi: &'a VirtualMachineInstance,
    pub(crate) pod: &'a Pod,
    pub(crate) pod_uid: &'a PodUid,
    pub(crate) pods_dir: &'a PodsDir,
    pub(crate) capabilities: &'a Capabilities,
    /// The settings of the cluster.
    pub(crate) settings: &'a KubeVirtConfiguration,
    /// Name of this node.
    pub(crate) node: &'a str,
    pub(crate) peer: Arc<Peer>,
    /// Interfaces that a running guest does not have yet, and whose networks its pod has not joined.
    pub(crate) left_out: BTreeSet<String>,
}

/// The result of [`prepare`].
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) plan: GuestPlan,
    pub(crate) status: PreparedStatus,
    pub(crate) facts: Facts,
}

#[expect(clippy::too_many_lines, reason = "one step after the other")]
pub(crate) async fn prepare(request: Request<'_>) -> Result<Prepared, PrepareError> {
    let Request {
        vmi,
        pod,
        pod_uid,
        pods_dir,
        capabilities,
        settings,
        node,
        peer,
        left_out,
    } = request;
    let claims = Claims::of(pod);
    // What the VMI says about the pod and the guest holds for both.
    let present = interfaces::without(vmi, &left_out);
    let at_start = hotplug::at_start(&present, pod);
    let vmi = at_start.as_ref();
    let guest = Supported::of(vmi)?;
    // Before anything is changed: most errors of users are found here.
    let untagged = volumes::steps(&guest, &claims, &[])?;
    let filesystems = file_servers::of(&guest, pod)?;
    let attached = Attached::of(pod);
    let plugins = BindingPlugin::of_pod(pod.metadata.annotations.as_ref());
    let refreshed_links = refreshed_links(&guest, &plugins);
    let network = plumb(&guest, attached.primary(), plugins, &peer).await?;
    failpoints::after("virt-handler/prepare/plumb");
    let private = pods_dir.open(pod_uid, "private")?;
    let uid = vmi.metadata.uid.clone().unwrap_or_default();
    private.make_dir(&uid, kubevirt_api::RUNTIME_USER)?;
    failpoints::after("virt-handler/prepare/make-directory");
    if let Some((path, cache)) = capabilities.cache() {
        private.place(&path, cache, kubevirt_api::RUNTIME_USER)?;
    }
    failpoints::after("virt-handler/prepare/place-capabilities");
    grant_rights(&guest, &peer)?;
    let (cpus, cells) = host_cpus(&guest, &peer)?;
    let allocated = device_nodes::hand_over(&guest, Arc::clone(&peer)).await?;
    let (direct_io, block_size) = (direct_io(pods_dir, pod_uid), block_size(pods_dir, pod_uid));
    let volumes = volumes::hand_over(&guest, &claims, peer, direct_io).await;
    failpoints::after("virt-handler/prepare/hand-over-disks");
    let virtual_functions = attached.virtual_functions(&guest, &allocated);
    let facts = Facts {
        volumes: volumes.map_err(PrepareError::HandOver)?,
        acceleration: acceleration(capabilities),
        direct_io,
        hotplugged: BTreeSet::new(),
        interfaces: network.interfaces.iter().map(interface_facts).collect(),
        device_cells: device_cells(&guest, &allocated, &virtual_functions),
        virtual_functions,
        allocated,
        smbios: cluster::smbios(settings),
        balloon_stats_seconds: cluster::balloon_stats_seconds(settings),
        free_page_reporting: cluster::reports_free_pages(settings),
        efi: EfiFirmware::debian(),
        block_size,
        cpus,
        cells,
    };
    let input = Input {
        guest: &guest,
        facts: &facts,
    };
    let domain_xml = domain_xml::render(&input)?;
    let tagged = domain_xml::tagged_devices(&input)?;
    let prepare = if tagged.is_empty() {
        untagged
    } else {
        volumes::steps(&guest, &claims, &tagged)?
    };
    let bound_interfaces = network.bound_interfaces().map(ToOwned::to_owned).collect();
    let targets = domain_xml::disk_targets(&input)?;
    let plan = GuestPlan {
        vmi_uid: uid,
        domain_name: guest.domain_name(),
        domain_uuid: firmware_uuid(vmi),
        domain_xml,
        prepare,
        dhcp: network.dhcp,
        ipv6: network.ipv6,
        filesystems,
        passt: network.passt,
        start_paused: starts_paused(vmi),
        console_to_log: vmi.spec.domain.devices.log_serial_console == Some(true),
        agent_probes_paused: pauses_agent_probes(vmi),
        credentials: agent_credentials(&guest),
        separate_cpus: domain_xml::separate_cpus(&input)?,
        metrics: metrics::of(&guest, node)?,
        hooks: hooks::of(vmi, pod),
        refreshed_links,
        restore: restored_from(&guest),
        claim_disks: claim_disks(&guest, pod, &targets)?,
        grace_seconds: u64::try_from(grace_seconds(vmi)).unwrap_or(0),
    };
    let volumes = volume_statuses(&guest, &claims, targets);
    Ok(Prepared {
        plan,
        status: PreparedStatus {
            bound_interfaces,
            interfaces: network.status,
            volumes,
        },
        facts,
    })
}

fn acceleration(capabilities: &Capabilities) -> Acceleration {
    if capabilities.facts().kvm {
        Acceleration::Kvm
    } else {
        Acceleration::Emulation
    }
}

/// The volumes that have a disk in the guest, by the names of both.
fn volume_statuses(
    guest: &Supported<'_>,
    claims: &Claims,
    disks: impl IntoIterator<Item = (String, String)>,
) -> Vec<VolumeStatus> {
    // A drive without a medium has no volume.
    let with_volume = disks
        .into_iter()
        .filter(|(name, _)| guest.volume(name).is_some());
    with_volume
        .map(|(name, target)| VolumeStatus {
            persistent_volume_claim_info: claims.info(&name).cloned(),
            name,
            target,
            ..VolumeStatus::default()
        })
        .collect()
}

/// The disks on claims of a pod that a guest moves to.
fn claim_disks(
    guest: &Supported<'_>,
    pod: &Pod,
    targets: &[(String, String)],
) -> Result<Vec<ClaimDisk>, PrepareError> {
    let annotated = pod.metadata.annotations.as_ref();
    let Some(moves) = annotated.and_then(|all| all.get(annotations::MIGRATED_VOLUMES)) else {
        return Ok(Vec::new());
    };
    // Without them a disk would count as shared that has to be copied.
    let moves = model::moves_of_pod(moves).ok_or(PrepareError::MalformedMoves)?;
    let of_claims = targets.iter().filter_map(|(volume, target)| {
        let source = guest.volume(volume)?.source;
        let is_on_claim = matches!(source.storage(), Storage::Claim(_));
        is_on_claim.then(|| ClaimDisk {
            target: target.clone(),
            is_new: moves.contains_key(volume),
        })
    });
    Ok(of_claims.collect())
}

fn starts_paused(vmi: &VirtualMachineInstance) -> bool {
    let strategy = vmi.spec.start_strategy.as_ref();
    strategy.is_some_and(|strategy| strategy.as_str() == "Paused")
}

/// The directory with the saved state from which the guest goes on.
fn restored_from(guest: &Supported<'_>) -> Option<String> {
    let volume = guest.volume(SAVED_STATE_VOLUME)?;
    let is_saved = matches!(volume.source, VolumeSource::SavedState(_));
    is_saved.then(|| paths::disk_directory(volume.name))
}

/// The interfaces whose binding has the guest ask for its address again in another pod.
fn refreshed_links(guest: &Supported<'_>, plugins: &BindingPlugins) -> Vec<String> {
    let interfaces = guest.plugged_interfaces();
    let refreshed = interfaces.filter(|interface| match interface.binding {
        Binding::Plugin(used) => {
            let plugin = plugins.get(&used.name);
            interface.link == LinkState::Up && plugin.is_some_and(|plugin| plugin.refreshes_link)
        }
        _ => false,
    });
    refreshed
        .map(|interface| interface.name().to_owned())
        .collect()
}

/// What the guest agent sets; the rest is in the seed.
fn agent_credentials(guest: &Supported<'_>) -> Vec<Credential> {
    let credential = |one: model::Credential<'_>| match one.propagation {
        Propagation::Seed(_) => None,
        Propagation::AgentKeys(users) => Some(Credential::Keys {
            directory: one.directory(),
            users: users.to_vec(),
        }),
        Propagation::AgentPasswords => Some(Credential::Passwords {
            directory: one.directory(),
        }),
    };
    guest.credentials().filter_map(credential).collect()
}

/// Gives the processes of the pod the rights that this guest needs and others do not have.
fn grant_rights(guest: &Supported<'_>, peer: &Peer) -> Result<(), PrepareError> {
    let rights = [
        (guest.locks_memory(), Right::LockMemory),
        (guest.is_realtime(), Right::Realtime),
    ];
    for (is_needed, right) in rights {
        if is_needed {
            peer.grant(right).map_err(PrepareError::Rights)?;
        }
    }
    Ok(())
}

/// The pod's own CPUs and the host's NUMA cells, if the guest depends on them.
fn host_cpus(
    guest: &Supported<'_>,
    peer: &Peer,
) -> Result<(Vec<HostCpu>, Vec<HostCell>), PrepareError> {
    if !guest.has_dedicated_cpus() {
        return Ok((Vec::new(), Vec::new()));
    }
    let system = Path::new(host_cpus::SYSTEM);
    let cpus = host_cpus::cpus(&peer.allowed_cpus()?, system)?;
    let cpus = cpus.into_iter().map(|cpu| HostCpu {
        id: cpu.id,
        core: cpu.core,
        cell: cpu.cell,
    });
    let cells = host_cpus::cells(system)?;
    let cells = cells.into_iter().map(|cell| HostCell {
        id: cell.id,
        distances: cell.distances,
    });
    Ok((cpus.collect(), cells.collect()))
}

/// The NUMA cells of the pod's PCI devices, for a guest that has a use for them.
fn device_cells(
    guest: &Supported<'_>,
    allocated: &AllocatedDevices,
    virtual_functions: &BTreeMap<String, PciAddress>,
) -> BTreeMap<PciAddress, u32> {
    if !guest.has_dedicated_cpus() {
        return BTreeMap::new();
    }
    let devices = allocated.pci().chain(virtual_functions.values().copied());
    devices::numa_cells(devices, Path::new(devices::SYS))
}

/// Observes the pod's interfaces, plans its network and applies the plan, in the pod's namespace.
async fn plumb(
    guest: &Supported<'_>,
    primary: &str,
    plugins: BindingPlugins,
    peer: &Peer,
) -> Result<net_plan::Plan, PrepareError> {
    if guest.interfaces.is_empty() {
        return Ok(net_plan::Plan::default());
    }
    let namespace = NetworkNamespace::of(peer.network_namespace()?, guest.name());
    let resolv_conf = peer.resolv_conf()?;
    let names = net_plan::pod_interfaces(guest, primary);
    let candidates = net_plan::tap_candidates(guest, primary);
    let observe = move |net: &mut host_net::Net| {
        let interfaces = observe_interfaces(net, &names)?;
        Ok::<_, NetError>((interfaces, existing_taps(net, candidates)?))
    };
    let (interfaces, taps) = host_net::in_namespace(namespace.clone(), observe).await?;
    let observed = Observed {
        primary: primary.to_owned(),
        interfaces,
        taps,
        plugins,
        resolv_conf,
    };
    let plan = net_plan::plan(guest, &observed)?;
    let plumbing = plan.plumbing.clone();
    host_net::in_namespace(namespace, move |net| host_net::plumb(net, &plumbing)).await?;
    Ok(plan)
}

/// Those of the named interfaces that exist.
fn observe_interfaces(
    net: &mut host_net::Net,
    names: &[String],
) -> Result<Vec<PodInterface>, NetError> {
    let mut found = Vec::new();
    for name in names {
        match host_net::observe_interface(net, name) {
            Ok(interface) => found.push(interface),
            Err(NetError::NoSuchLink { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Those of the named links that QEMU can open.
fn existing_taps(
    net: &mut host_net::Net,
    names: Vec<String>,
) -> Result<BTreeSet<String>, NetError> {
    let mut found = BTreeSet::new();
    for name in names {
        let kind = net.link(&name)?.map(|link| link.kind);
        let is_tap = kind.is_some_and(|kind| kind == LinkKind::Tun || kind.as_str() == MACVTAP);
        if is_tap {
            found.insert(name);
        }
    }
    Ok(found)
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

/// The block size of the pod's own files.
fn block_size(pods_dir: &PodsDir, pod: &PodUid) -> u32 {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = pods_dir.empty_dir(pod, "ephemeral-disks");
    let opened = rustix::fs::open(directory, flags, Mode::empty()).ok();
    opened.map_or(volumes::blocks::USUAL, |directory| {
        volumes::blocks::of_files(&directory).logical
    })
}

/// Whether the pod's ephemeral disk files support `O_DIRECT`.
fn direct_io(pods_dir: &PodsDir, pod: &PodUid) -> DirectIo {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let dir = pods_dir.empty_dir(pod, "ephemeral-disks");
    match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(_file) => DirectIo::Supported,
        Err(_) => DirectIo::Unsupported,
    }
}
