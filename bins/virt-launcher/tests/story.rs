//! The pod of a guest, with real libvirtd and QEMU: the test plays the handler, and kills.

#![cfg(test)]

#[path = "../../../crates/libvirt/tests/bundle/mod.rs"]
mod bundle;
#[path = "story/places.rs"]
mod places;

use std::path::{Path, PathBuf};
use std::time::Duration;

use bundle::{Bundle, Setup, kill};
use launcher_channel::{
    Backing, DomainState, FromLauncher, GuestPlan, GuestState, MAX_FROM_LAUNCHER, Prepare, Reply,
    Request, StopReason, ToLauncher, read_frame, write_frame,
};
use tokio::net::UnixStream;

const UID: &str = "0b7cb5a7-ac01-4f3e-8d2b-e5b3a1d9a001";
const PROGRAM: &str = env!("CARGO_BIN_EXE_virt-launcher");
const QEMU: &str = "qemu-system-x86";

/// A boot sector that says `G` on the serial line, then waits for the power button and switches
/// the machine off.
const POLITE_GUEST: &[u8] = &[
    0xfb, 0xba, 0xf8, 0x03, 0xb0, b'G', 0xee, // sti; out 0x3f8, 'G'
    0xba, 0x02, 0x06, 0xb8, 0x00, 0x01, 0xef, // enable the button: out 0x602, 0x100
    0xf4, 0xba, 0x00, 0x06, 0xed, 0xf6, 0xc4, 0x01, 0x74, 0xf6, // hlt until it is pressed
    0xba, 0x04, 0x06, 0xb8, 0x00, 0x20, 0xef, // off: out 0x604, 0x2000
    0xf4, 0xeb, 0xfd,
];

fn xml(disk: &str) -> String {
    format!(
        "<domain type='qemu'><name>ns_guest</name><uuid>69a61d3f-50cc-4611-b6e2-e53205a02bad</uuid>
        <memory unit='MiB'>32</memory><vcpu>1</vcpu>
        <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
        <on_poweroff>destroy</on_poweroff><on_crash>destroy</on_crash>
        <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
          <controller type='usb' model='none'/><memballoon model='none'/>{disk}
          <serial type='unix'><source mode='bind' path='/var/run/private/serial0'/>
            <log file='/var/run/private/serial.log' append='on'/></serial>
        </devices></domain>"
    )
}

fn plan() -> GuestPlan {
    GuestPlan {
        vmi_uid: UID.to_owned(),
        domain_name: "ns_guest".to_owned(),
        domain_uuid: "69a61d3f-50cc-4611-b6e2-e53205a02bad".to_owned(),
        domain_xml: xml(""),
        prepare: Vec::new(),
        dhcp: Vec::new(),
        start_paused: false,
        grace_seconds: 1,
        console_to_log: false,
    }
}

/// A guest that boots from a container disk and obeys the power button.
fn polite_plan(pod: &Bundle) -> GuestPlan {
    let image = pod.run_dir().join("kubevirt-image-volume/disk_0/disk");
    std::fs::create_dir_all(&image).unwrap();
    let mut disk = POLITE_GUEST.to_vec();
    disk.resize(510, 0);
    disk.extend_from_slice(&[0x55, 0xaa]);
    // Firmware does not boot from a disk of a single sector.
    disk.resize(1 << 20, 0);
    std::fs::write(image.join("boot.img"), disk).unwrap();
    let path = "/var/run/private/disks/root/disk.qcow2".to_owned();
    let root = "/var/run/kubevirt-image-volume/disk_0".to_owned();
    let disk = format!(
        "<disk type='file' device='disk'><driver name='qemu' type='qcow2'/>
         <source file='{path}'/><target dev='vda' bus='virtio'/></disk>"
    );
    let backing = Backing::ImageRoot { root, path: None };
    GuestPlan {
        domain_xml: xml(&disk),
        prepare: vec![Prepare::Overlay { path, backing }],
        ..plan()
    }
}

fn pod() -> Bundle {
    pod_with("VIRT_LAUNCHER_LOG=debug")
}

fn pod_with(environment: &str) -> Bundle {
    let program = Path::new(PROGRAM);
    let programs = [
        ("virt-launcher", program),
        ("virt-launcher-monitor", program),
    ];
    let setup = Setup {
        programs: &programs,
        environment,
        kvm: false,
    };
    Bundle::start(
        &setup,
        &[
            "/run/bin/virt-launcher-monitor",
            "--name=guest",
            "--uid",
            UID,
        ],
    )
}

/// The handler's end of the channel.
struct Handler<'a> {
    pod: &'a Bundle,
    stream: UnixStream,
    next: u64,
    state: Option<GuestState>,
}

impl<'a> Handler<'a> {
    fn connect(pod: &'a Bundle) -> Self {
        Self::connect_past(pod, None)
    }

    /// Connects to another launcher than the one with this process number.
    fn connect_past(pod: &'a Bundle, gone: Option<i32>) -> Self {
        let path = pod.run_dir().join("kubevirt/sockets/launcher-sock");
        let found = pod.wait("launcher", || {
            let stream = std::os::unix::net::UnixStream::connect(&path).ok()?;
            pod.pids("virt-launcher")
                .iter()
                .any(|pid| Some(*pid) != gone)
                .then_some(stream)
        });
        found.set_nonblocking(true).unwrap();
        let stream = UnixStream::from_std(found).unwrap();
        Self {
            pod,
            stream,
            next: 1,
            state: None,
        }
    }

    async fn read(&mut self) -> FromLauncher {
        let read = read_frame(&mut self.stream, MAX_FROM_LAUNCHER);
        let message = tokio::time::timeout(Duration::from_secs(30), read).await;
        let log = || self.pod.log();
        let message = message.unwrap_or_else(|_| panic!("no word; the log:\n{}", log()));
        let message = message.unwrap_or_else(|err| panic!("{err}; the log:\n{}", log()));
        let message = message.unwrap_or_else(|| panic!("it hung up; the log:\n{}", log()));
        if let FromLauncher::State(state) = &message {
            self.state = Some(state.clone());
        }
        message
    }

    /// Nothing if the launcher is gone before it has answered.
    async fn try_ask(&mut self, request: Request) -> Option<Reply> {
        let id = self.next;
        self.next += 1;
        write_frame(&mut self.stream, &ToLauncher { id, request })
            .await
            .ok()?;
        loop {
            let read = read_frame(&mut self.stream, MAX_FROM_LAUNCHER);
            let message = tokio::time::timeout(Duration::from_mins(1), read).await;
            let log = || self.pod.log();
            let message = message.unwrap_or_else(|_| panic!("no word; the log:\n{}", log()));
            if let FromLauncher::Reply { reply, .. } = message.ok()?? {
                return Some(reply);
            }
        }
    }

    async fn ask(&mut self, request: Request) -> Reply {
        let id = self.next;
        self.next += 1;
        write_frame(&mut self.stream, &ToLauncher { id, request })
            .await
            .unwrap();
        loop {
            if let FromLauncher::Reply {
                id: answered,
                reply,
            } = self.read().await
            {
                assert_eq!(answered, id);
                return reply;
            }
        }
    }

    async fn done(&mut self, request: Request) -> GuestState {
        match self.ask(request).await {
            Reply::Done(state) => state,
            refused => panic!("{refused:?}; the log:\n{}", self.pod.log()),
        }
    }

    async fn refused(&mut self, request: Request) -> String {
        match self.ask(request).await {
            Reply::Refused {
                reason, message, ..
            } => {
                assert!(
                    message.starts_with("Could not ") && message.ends_with('.'),
                    "{message}"
                );
                reason
            }
            other => panic!("{other:?}"),
        }
    }

    async fn told(&mut self, domain: DomainState) {
        while self.state.as_ref().and_then(|state| state.domain) != Some(domain) {
            self.read().await;
        }
    }
}

fn only(pids: &[i32]) -> i32 {
    assert_eq!(pids.len(), 1, "{pids:?}");
    pids[0]
}

#[tokio::test]
async fn a_guest_outlives_every_process_that_is_not_its_own() {
    let mut pod = pod();
    {
        let mut handler = Handler::connect(&pod);
        let wrong = GuestPlan {
            vmi_uid: "another".to_owned(),
            ..plan()
        };
        assert_eq!(
            handler.refused(Request::Sync(Box::new(wrong))).await,
            "WrongGuest"
        );
        assert_eq!(handler.done(Request::State).await.domain, None);
        assert_eq!(handler.refused(Request::Pause).await, "NotRunning");
        let state = handler.done(Request::Sync(Box::new(plan()))).await;
        assert_eq!(state.domain, Some(DomainState::Running));
        assert!(
            state
                .machine
                .is_some_and(|machine| machine.starts_with("pc-q35-"))
        );
        let qemu = only(&pod.pids(QEMU));

        assert_eq!(
            handler.done(Request::Pause).await.domain,
            Some(DomainState::PausedByUser)
        );
        handler.told(DomainState::PausedByUser).await;
        assert_eq!(
            handler.done(Request::Pause).await.domain,
            Some(DomainState::PausedByUser)
        );

        let launcher = only(&pod.pids("virt-launcher"));
        kill(launcher, "KILL");
        let mut handler = Handler::connect_past(&pod, Some(launcher));
        handler.told(DomainState::PausedByUser).await;
        assert_eq!(
            handler.done(Request::Unpause).await.domain,
            Some(DomainState::Running)
        );
        let again = handler.done(Request::Sync(Box::new(plan()))).await;
        assert_eq!(again.domain, Some(DomainState::Running));

        let libvirtd = only(&pod.pids("libvirtd"));
        kill(libvirtd, "KILL");
        assert_eq!(
            handler.done(Request::Pause).await.domain,
            Some(DomainState::PausedByUser)
        );
        assert_ne!(only(&pod.pids("libvirtd")), libvirtd);
        assert_eq!(
            handler.done(Request::Unpause).await.domain,
            Some(DomainState::Running)
        );
        assert_eq!(handler.refused(Request::Release).await, "StillRunning");
        assert_eq!(only(&pod.pids(QEMU)), qemu);

        // A second handler takes the first one's place.
        let mut second = Handler::connect(&pod);
        second.told(DomainState::Running).await;
        assert_eq!(read_to_end(handler).await, 0);

        // This guest is deaf to the power button.
        let state = second.done(Request::Shutdown { grace_seconds: 600 }).await;
        assert!(state.shutting_down);
        second.done(Request::Shutdown { grace_seconds: 1 }).await;
        second
            .told(DomainState::Stopped(StopReason::Destroyed))
            .await;
        let state = second.done(Request::Sync(Box::new(plan()))).await;
        assert_eq!(
            state.domain,
            Some(DomainState::Stopped(StopReason::Destroyed))
        );
        assert_eq!(pod.pids(QEMU), [0; 0]);
        second.done(Request::Release).await;
    }
    assert_eq!(end_of(&mut pod), 0);
}

async fn read_to_end(mut handler: Handler<'_>) -> usize {
    let mut left = 0;
    while read_frame::<FromLauncher>(&mut handler.stream, MAX_FROM_LAUNCHER)
        .await
        .unwrap()
        .is_some()
    {
        left += 1;
    }
    left
}

fn end_of(pod: &mut Bundle) -> i32 {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(code) = pod.exit_code() {
            return code;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "the pod does not end:\n{}",
            pod.log()
        );
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn a_killed_qemu_is_a_crash_that_no_restart_forgets() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    handler.done(Request::Sync(Box::new(plan()))).await;
    kill(only(&pod.pids(QEMU)), "KILL");
    handler
        .told(DomainState::Stopped(StopReason::Crashed))
        .await;

    let launcher = only(&pod.pids("virt-launcher"));
    kill(launcher, "KILL");
    kill(only(&pod.pids("libvirtd")), "KILL");
    let mut handler = Handler::connect_past(&pod, Some(launcher));
    handler
        .told(DomainState::Stopped(StopReason::Crashed))
        .await;
    let state = handler.done(Request::Sync(Box::new(plan()))).await;
    assert_eq!(
        state.domain,
        Some(DomainState::Stopped(StopReason::Crashed))
    );
    assert_eq!(pod.pids(QEMU), [0; 0]);
}

#[tokio::test]
async fn a_qemu_that_dies_while_libvirtd_is_dead_is_a_crash_too() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    let paused = GuestPlan {
        start_paused: true,
        ..plan()
    };
    let state = handler.done(Request::Sync(Box::new(paused))).await;
    assert_eq!(state.domain, Some(DomainState::PausedByUser));
    let qemu = only(&pod.pids(QEMU));
    kill(only(&pod.pids("libvirtd")), "KILL");
    kill(qemu, "KILL");
    handler
        .told(DomainState::Stopped(StopReason::Crashed))
        .await;
}

#[tokio::test]
async fn a_start_that_loses_its_libvirtd_is_made_again() {
    for moment in ["libvirt/qemu/run/ns_guest.pid", "private/serial.log"] {
        let pod = pod();
        let mut handler = Handler::connect(&pod);
        let ask = handler.done(Request::Sync(Box::new(plan())));
        let path = pod.run_dir().join(moment);
        let strike = async {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
            while !path.exists() && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            kill(only(&pod.pids("libvirtd")), "KILL");
        };
        let (state, ()) = tokio::join!(ask, strike);
        assert_eq!(
            state.domain,
            Some(DomainState::Running),
            "{moment}: {}",
            pod.log()
        );
        only(&pod.pids(QEMU));
        eprintln!(
            "{moment}: {} starts",
            pod.log().matches("phase=Starting").count()
        );
    }
}

#[tokio::test]
async fn a_polite_guest_shuts_itself_down_within_its_grace() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    handler
        .done(Request::Sync(Box::new(polite_plan(&pod))))
        .await;
    wait_for_boot(&pod);
    let state = handler.done(Request::Shutdown { grace_seconds: 600 }).await;
    assert!(
        state.shutting_down || state.domain == Some(DomainState::Stopped(StopReason::Shutdown))
    );
    handler
        .told(DomainState::Stopped(StopReason::Shutdown))
        .await;
    assert!(handler.state.is_some_and(|state| !state.shutting_down));
}

fn wait_for_boot(pod: &Bundle) {
    let log: PathBuf = pod.run_dir().join("private/serial.log");
    pod.wait("greeting", || {
        std::fs::read(&log).ok()?.contains(&b'G').then_some(())
    });
}

#[tokio::test]
async fn the_end_of_the_pod_is_a_shutdown_first() {
    let mut pod = pod();
    {
        let mut handler = Handler::connect(&pod);
        let plan = GuestPlan {
            grace_seconds: 600,
            ..polite_plan(&pod)
        };
        handler.done(Request::Sync(Box::new(plan))).await;
        wait_for_boot(&pod);
        kill(pod.init().expect("the pod runs"), "TERM");
        handler
            .told(DomainState::Stopped(StopReason::Shutdown))
            .await;
    }
    assert_eq!(end_of(&mut pod), 0);
}

#[tokio::test]
async fn a_pod_without_a_guest_ends_at_once() {
    let mut pod = pod();
    drop(Handler::connect(&pod));
    kill(pod.init().expect("the pod runs"), "TERM");
    assert_eq!(end_of(&mut pod), 0);
}

#[tokio::test]
async fn plans_that_cannot_work_are_refused_with_their_reason() {
    let pod = pod();
    let mut handler = Handler::connect(&pod);
    let broken = GuestPlan {
        domain_xml: "<domain".to_owned(),
        ..plan()
    };
    assert_eq!(
        handler.refused(Request::Sync(Box::new(broken))).await,
        "DomainInvalid"
    );
    let backing = Backing::ImageRoot {
        root: "/run/kubevirt".to_owned(),
        path: Some("/none".to_owned()),
    };
    let missing = Prepare::Overlay {
        path: "/run/private/x".to_owned(),
        backing,
    };
    let missing = GuestPlan {
        prepare: vec![missing],
        ..plan()
    };
    assert_eq!(
        handler.refused(Request::Sync(Box::new(missing))).await,
        "PrepareFailed"
    );
    let no_kvm = GuestPlan {
        domain_xml: xml(
            "<disk type='file' device='disk'><source file='/none'/><target dev='vda'/></disk>",
        ),
        ..plan()
    };
    for _ in 0..3 {
        assert_eq!(
            handler
                .refused(Request::Sync(Box::new(no_kvm.clone())))
                .await,
            "StartFailed"
        );
    }
    handler
        .told(DomainState::Stopped(StopReason::StartFailed))
        .await;
    let state = handler.done(Request::Sync(Box::new(plan()))).await;
    assert_eq!(
        state.domain,
        Some(DomainState::Stopped(StopReason::StartFailed))
    );
}

#[tokio::test]
async fn a_node_is_probed_with_and_without_kvm() {
    let program = Path::new(PROGRAM);
    for kvm in [false, true] {
        let setup = Setup {
            programs: &[("virt-launcher", program)],
            kvm,
            ..Setup::default()
        };
        let mut pod = Bundle::start(
            &setup,
            &[
                "/run/bin/virt-launcher",
                "probe-node",
                "--output",
                "/run/private/o",
                "--image=i",
            ],
        );
        let code = end_of(&mut pod);
        assert_eq!(code, 0, "{}", pod.log());
        let output = pod.run_dir().join("private/o");
        let node: serde_json::Value =
            serde_json::from_slice(&std::fs::read(output.join("node.json")).unwrap()).unwrap();
        let machines = node["machineTypes"].as_array().unwrap();
        assert!(machines.iter().any(|machine| machine == "q35"), "{node}");
        assert!(!node["cpuModels"].as_array().unwrap().is_empty(), "{node}");
        assert_eq!(node["launcherImage"], "i");
        let cache = std::fs::read_to_string(output.join("capabilities.xml"));
        if node["repeatWithoutKvm"] == true {
            assert!(cache.is_err());
        } else {
            let cache = cache.unwrap();
            assert!(!cache.contains("cpu-unavailable-features"));
            let name = node["capabilitiesCacheFile"].as_str().unwrap();
            assert!(
                name.len() == 68 && Path::new(name).extension().is_some(),
                "{name}"
            );
        }
        let left: Vec<_> = std::fs::read_dir(&output).unwrap().collect();
        assert!(left.len() <= 2, "{left:?}");
        eprintln!("kvm={kvm}: {} {}", node["kvm"], node["kvmReason"]);
    }
}
