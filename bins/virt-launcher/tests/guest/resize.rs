//! Processors and memory that a running guest gets.

use launcher_channel::{
    DomainState, GuestPlan, GuestSize, MemoryPlan, MigrationStage, Reply, Request, ResizePlan,
};

use crate::handler::Handler;
use crate::migration::{self, COUNTING_GUEST};
use crate::{acpi_plan, bundle, disk_plan, pod, single, wait_for_boot, with_devices};

const MIB: u64 = 1 << 20;

/// The same guest with room for more.
fn growing(plan: GuestPlan) -> GuestPlan {
    let mut plan = with_devices(
        plan,
        "<controller type='pci' index='0' model='pcie-root'/>
         <controller type='pci' model='pcie-root-port'/>
         <controller type='pci' model='pcie-root-port'/>
         <controller type='pci' model='pcie-root-port'/>",
    );
    let parts = [
        (
            "<memory unit='MiB'>32</memory>",
            "<maxMemory unit='MiB' slots='0'>4096</maxMemory><memory unit='MiB'>1024</memory>",
        ),
        (
            "<vcpu>1</vcpu>",
            "<vcpu placement='static'>4</vcpu><vcpus>
             <vcpu id='0' enabled='yes' hotpluggable='no'/>
             <vcpu id='1' enabled='no' hotpluggable='yes'/>
             <vcpu id='2' enabled='no' hotpluggable='yes'/>
             <vcpu id='3' enabled='no' hotpluggable='yes'/></vcpus>",
        ),
        (
            "<devices>",
            "<cpu><topology sockets='4' cores='1' threads='1'/><numa>
             <cell id='0' cpus='0-3' memory='1048576' unit='KiB'/></numa></cpu><devices>",
        ),
    ];
    for (from, to) in parts {
        assert!(plan.domain_xml.contains(from), "{from}");
        plan.domain_xml = plan.domain_xml.replacen(from, to, 1);
    }
    plan
}

/// As virt-handler renders it.
fn device(requested: u64) -> String {
    format!(
        "<memory model='virtio-mem'><target><size unit='b'>{}</size><node>0</node>
         <block unit='b'>{}</block><requested unit='b'>{requested}</requested></target></memory>",
        3072 * MIB,
        2 * MIB
    )
}

fn resize(vcpus: u32, requested: u64) -> Request {
    Request::Resize(ResizePlan {
        vcpus,
        memory: Some(MemoryPlan {
            requested,
            device: device(requested),
        }),
    })
}

fn size(vcpus: u32, requested_memory: u64) -> GuestSize {
    GuestSize {
        vcpus,
        requested_memory,
        // The boot program has no driver.
        plugged_memory: 0,
    }
}

#[tokio::test]
async fn guest_gets_processors_and_memory_and_survives_the_launcher() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    let plan = growing(acpi_plan(&pod));
    let sync = || Request::Sync(Box::new(plan.clone()));
    let state = handler.done(sync()).await;
    assert_eq!(state.size, Some(size(1, 0)));
    wait_for_boot(&pod);
    // A repeated request changes nothing.
    for _ in 0..2 {
        let state = handler.done(resize(2, 256 * MIB)).await;
        assert_eq!(state.size, Some(size(2, 256 * MIB)), "{state:?}");
    }
    let state = handler.done(resize(1, 128 * MIB)).await;
    assert_eq!(
        state.size,
        Some(size(2, 128 * MIB)),
        "never fewer processors"
    );
    let launcher = single(&pod.pids("virt-launcher"));
    bundle::kill(launcher, "KILL");
    let mut handler = Handler::connect_past(&pod, Some(launcher));
    let state = handler.done(sync()).await;
    assert_eq!(state.size, Some(size(2, 128 * MIB)));
    let state = handler.done(resize(4, 0)).await;
    assert_eq!(state.size, Some(size(4, 0)));
    // More than the guest has room for.
    let reply = handler.call(resize(9, 0)).await;
    let Reply::Refused { reason, .. } = reply else {
        panic!("{reply:?}");
    };
    assert_eq!(reason, "GuestResizeFailed");
    handler.done(Request::Destroy).await;
}

/// Between two changes it moves, with what it has got before.
// The proxies run while the test waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grown_guest_moves_and_grows_there() {
    let (source, target) = (pod(), pod());
    let plan = growing(disk_plan(&source, COUNTING_GUEST));
    let target_plan = growing(disk_plan(&target, COUNTING_GUEST));
    let mut old = Handler::connect(&source);
    old.done(Request::Sync(Box::new(plan))).await;
    migration::wait_for_letters(&source, 60);
    old.done(resize(2, 256 * MIB)).await;
    let mut new = Handler::connect(&target);
    new.done(migration::receive(&target_plan)).await;
    let _proxies = migration::connect(&source, &target);
    old.done(migration::migrate()).await;
    assert_eq!(migration::ends(&mut new).await, MigrationStage::Done);
    new.reports(DomainState::Running).await;
    let state = new.done(Request::State).await;
    assert_eq!(state.size, Some(size(2, 256 * MIB)));
    let state = new.done(resize(3, 512 * MIB)).await;
    assert_eq!(state.size, Some(size(3, 512 * MIB)));
    new.done(Request::Destroy).await;
}
