//! Interfaces that a running guest gets and loses.

use std::fs;
use std::time::Duration;

use launcher_channel::{
    DomainState, GuestPlan, GuestState, HotInterface, InterfacePlan, Reply, Request,
};

use crate::bundle::{self, Bundle};
use crate::failpoints::{armed_pod, call};
use crate::handler::Handler;
use crate::{disk_plan, pod, wait_for_boot, with_devices};

const ROUNDS: usize = 5;

/// A boot sector that prints `G` on the serial line, then releases every device that QEMU asks it to release: at each
/// tick of the timer, for the first 16 buses with slots, it selects the bus (port 0xcd0), reads which devices are to go
/// (0xcc4) and ejects them (0xcc8), as the ACPI code of an operating system does.
const RELEASING_GUEST: &[u8] = &[
    0xfb, 0xba, 0xf8, 0x03, 0xb0, b'G', 0xee, // sti; out 0x3f8, 'G'
    0xf4, 0x66, 0x31, 0xc9, // hlt; ecx = 0
    0x66, 0x89, 0xc8, 0xba, 0xd0, 0x0c, 0x66, 0xef, // out 0xcd0, ecx
    0xba, 0xc4, 0x0c, 0x66, 0xed, // in eax, 0xcc4
    0xba, 0xc8, 0x0c, 0x66, 0xef, // out 0xcc8, eax
    0x41, 0x83, 0xf9, 0x10, 0x72, 0xe8, // the next bus
    0xeb, 0xe2,
];

/// One that prints `G` and then releases nothing.
const KEEPING_GUEST: &[u8] = &[
    0xba, 0xf8, 0x03, 0xb0, b'G', 0xee, // out 0x3f8, 'G'
    0xf4, 0xeb, 0xfd, // hlt, for ever
];

/// A guest with a free port. Its interface is the user's own network of QEMU: a tap needs rights that this test does not
/// have.
fn plan(pod: &Bundle, boot_sector: &[u8]) -> GuestPlan {
    with_devices(
        disk_plan(pod, boot_sector),
        "<controller type='pci' index='0' model='pcie-root'/>
         <controller type='pci' model='pcie-root-port'/>
         <controller type='pci' model='pcie-root-port'/>
         <controller type='pci' model='pcie-root-port'/>
         <interface type='user'><mac address='02:00:00:00:00:0a'/><model type='virtio'/>
           <rom enabled='no'/><alias name='ua-default'/></interface>",
    )
}

fn interface(name: &str) -> HotInterface {
    HotInterface {
        name: name.to_owned(),
        xml: format!(
            "<interface type='user'><mac address='02:00:00:00:00:0b'/><model type='virtio'/>
             <rom enabled='no'/><alias name='ua-{name}'/></interface>"
        ),
    }
}

fn request(attach: &[&str], remove: &[&str]) -> Request {
    Request::Interfaces(Box::new(InterfacePlan {
        attach: attach.iter().map(|name| interface(name)).collect(),
        remove: remove.iter().map(ToString::to_string).collect(),
        ..InterfacePlan::default()
    }))
}

fn names(state: &GuestState) -> Vec<&str> {
    state.links.keys().map(String::as_str).collect()
}

/// Reads states until the guest has these interfaces.
async fn reports(handler: &mut Handler<'_>, mut state: GuestState, wanted: &[&str]) -> GuestState {
    while names(&state) != wanted {
        assert!(state.interface_failures.is_empty(), "{state:?}");
        handler.next_state().await;
        state = handler.state.clone().unwrap_or_default();
    }
    state
}

#[tokio::test]
async fn interface_comes_and_goes_and_survives_the_launcher() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    handler
        .done(Request::Sync(Box::new(plan(&pod, RELEASING_GUEST))))
        .await;
    wait_for_boot(&pod);
    for _ in 0..ROUNDS {
        // A repeated request changes nothing.
        for _ in 0..2 {
            let state = handler.done(request(&["lan"], &[])).await;
            assert!(state.takes_interfaces);
            assert_eq!(names(&state), ["default", "lan"], "{state:?}");
        }
        // One that the request does not name stays.
        let state = handler.done(request(&[], &["lan"])).await;
        reports(&mut handler, state, &["default"]).await;
    }
    handler.done(request(&["lan"], &[])).await;
    // The next launcher finds the interface.
    let launcher = crate::single(&pod.pids("virt-launcher"));
    bundle::kill(launcher, "KILL");
    let mut next = Handler::connect_past(&pod, Some(launcher));
    let state = next.done(Request::State).await;
    let state = reports(&mut next, state, &["default", "lan"]).await;
    assert_eq!(state.domain, Some(DomainState::Running));
}

/// The second request comes before QEMU lets the guest be asked again.
#[tokio::test]
async fn guest_that_keeps_an_interface_may_be_asked_again() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    let plan = plan(&pod, KEEPING_GUEST);
    handler.done(Request::Sync(Box::new(plan))).await;
    wait_for_boot(&pod);
    handler.done(request(&["lan"], &[])).await;
    for _ in 0..2 {
        let state = handler.done(request(&[], &["lan"])).await;
        assert_eq!(names(&state), ["default", "lan"]);
        assert!(state.interface_failures.is_empty(), "{state:?}");
    }
}

#[tokio::test]
async fn interface_without_a_free_port_is_a_failure_and_does_not_hold_up_others() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    handler
        .done(Request::Sync(Box::new(plan(&pod, RELEASING_GUEST))))
        .await;
    wait_for_boot(&pod);
    let broken = HotInterface {
        xml: interface("broken")
            .xml
            .replace("<rom", "<address type='pci' bus='0x1f' slot='0'/><rom"),
        ..interface("broken")
    };
    let plan = InterfacePlan {
        attach: vec![broken, interface("lan")],
        ..InterfacePlan::default()
    };
    let state = handler.done(Request::Interfaces(Box::new(plan))).await;
    assert_eq!(names(&state), ["default", "lan"], "{state:?}");
    let failed: Vec<_> = state.interface_failures.keys().collect();
    assert_eq!(failed, ["broken"]);
}

#[tokio::test]
async fn interfaces_are_right_after_a_kill_at_every_failpoint() {
    let (pod, file) = armed_pod("virt-launcher/interfaces/", 3);
    call(&pod, &Request::Sync(Box::new(plan(&pod, RELEASING_GUEST)))).await;
    wait_for_boot(&pod);
    for (wanted, expected) in [
        (request(&["lan"], &[]), &["default", "lan"][..]),
        (request(&[], &["lan"]), &["default"]),
    ] {
        let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
        loop {
            let reply = call(&pod, &wanted).await;
            if matches!(&reply, Reply::Done(state) if names(state) == expected) {
                break;
            }
            let late = tokio::time::Instant::now() > deadline;
            assert!(!late, "{reply:?}; the log:\n{}", pod.log());
        }
    }
    let unreached = fs::read_to_string(&file).unwrap();
    assert_eq!(unreached, "", "failpoints that were not reached");
}
