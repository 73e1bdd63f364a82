//! Every call of the crate against the real libvirtd of the launcher image, with an emulated guest.

#![cfg(test)]

mod bundle;

use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use bundle::{Bundle, Setup};
use libvirt::{
    Connection, Domain, DomainCapabilitiesQuery, DomainState, DomainUuid, Error, ErrorCode, Event,
    EventKind, Events, Lifecycle, PausedReason, ShutoffReason, StartMode,
};
use tokio::net::UnixStream;
use tokio_util::task::TaskTracker;

const UUID: &str = "69a61d3f-50cc-4611-b6e2-e53205a02bad";
const XML: &str = "<domain type='qemu'><name>contract</name>
    <uuid>69a61d3f-50cc-4611-b6e2-e53205a02bad</uuid>
    <memory unit='MiB'>32</memory><vcpu>1</vcpu>
    <os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>
    <devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
      <controller type='usb' model='none'/><memballoon model='none'/>
      <serial type='pty'/><console type='pty'/>
      <graphics type='vnc'><listen type='none'/></graphics>
      <video><model type='vga'/></video>
    </devices></domain>";
const LIBVIRTD_CONF: &str = "log_outputs=\"3:stderr\"\nauth_unix_rw=\"none\"\nunix_sock_rw_perms=\"0700\"\n\
    min_workers=1\nmax_workers=4\nprio_workers=1\nadmin_min_workers=1\nadmin_max_workers=1\n\
    max_clients=8\nmax_anonymous_clients=8\nmax_client_requests=5\nkeepalive_interval=1\nkeepalive_count=2\n";
const QEMU_CONF: &str = "stdio_handler=\"file\"\nsecurity_driver=\"none\"\ncgroup_controllers=[]\n\
    namespaces=[]\nremember_owner=0\ndynamic_ownership=0\n";

struct Daemon {
    bundle: Bundle,
    tasks: TaskTracker,
}

impl Daemon {
    fn start() -> Self {
        // The shell is process 1 because QEMU has to be reaped.
        let script = "mkdir -p /run/private/libvirt && printf '%s' \"$1\" > /run/private/libvirt/libvirtd.conf && \
             printf '%s' \"$2\" > /run/private/libvirt/qemu.conf && /usr/sbin/libvirtd & wait; exec sleep infinity";
        let bundle = Bundle::start(
            &Setup::default(),
            &["/bin/sh", "-c", script, "sh", LIBVIRTD_CONF, QEMU_CONF],
        );
        Self {
            bundle,
            tasks: TaskTracker::new(),
        }
    }

    async fn connect(&self) -> (Connection, Events) {
        let path = self.bundle.run_dir().join("libvirt/libvirt-sock");
        let socket = self
            .bundle
            .wait("libvirtd", || StdStream::connect(&path).ok());
        socket.set_nonblocking(true).expect("switch a socket");
        let socket = UnixStream::from_std(socket).expect("register a socket");
        let (connection, driver, events) = libvirt::attach(socket);
        self.tasks.spawn(driver.run());
        if let Err(error) = connection.open("qemu:///session").await {
            panic!("open: {error}; the log:\n{}", self.bundle.log());
        }
        (connection, events)
    }
}

async fn next_changes(events: &mut Events, last: Lifecycle) -> Vec<Lifecycle> {
    let mut changes = Vec::new();
    while changes.last() != Some(&last) {
        let event = tokio::time::timeout(Duration::from_mins(1), events.next()).await;
        match event.unwrap_or_else(|_| panic!("no {last:?} in {changes:?}")) {
            Some(Event::Lifecycle { change, domain }) => {
                assert_eq!(domain.name, "contract");
                changes.push(change);
            }
            other => assert!(other.is_some(), "the connection ended"),
        }
    }
    changes
}

#[tokio::test]
async fn every_call_works_with_libvirtd() {
    let daemon = Daemon::start();
    let (pinged, _pinged_events) = daemon.connect().await;
    assert!(pinged.supports_feature(10).await.unwrap());
    let (connection, mut events) = daemon.connect().await;
    check_host_calls(&connection).await;
    let started = check_domain_calls(&connection, &mut events).await;
    eprintln!("start took {started:?}");
    // The server pings this client every second, and disconnects it after three missing pongs.
    tokio::time::timeout(Duration::from_secs(4), async {
        while pinged.is_open() {
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await
    .expect_err("a client that replies to pings stays connected");
    pinged.lib_version().await.unwrap();
    connection.close().await.unwrap();
}

async fn check_host_calls(connection: &Connection) {
    assert!(connection.lib_version().await.unwrap() >= 11_000_000);
    assert!(connection.capabilities().await.unwrap().contains("pc-q35-"));
    let query = DomainCapabilitiesQuery {
        virt_type: Some("qemu"),
        machine: Some("q35"),
        ..Default::default()
    };
    assert!(
        connection
            .domain_capabilities(query)
            .await
            .unwrap()
            .contains("<domainCapabilities>")
    );
    assert!(connection.hypervisor_version().await.unwrap() >= 10_000_000);
    let unknown = Domain {
        name: "none".to_owned(),
        uuid: DomainUuid([9; 16]),
        id: None,
    };
    let missing = connection.state(&unknown).await.unwrap_err();
    assert_eq!(missing.code(), Some(ErrorCode::NO_DOMAIN), "{missing}");
    let broken = connection.define("<domain").await.unwrap_err();
    assert!(matches!(broken, Error::Remote(_)), "{broken}");
}

async fn check_domain_calls(connection: &Connection, events: &mut Events) -> Duration {
    for kind in [
        EventKind::Lifecycle,
        EventKind::Reboot,
        EventKind::IoError,
        EventKind::ControlError,
    ] {
        connection.subscribe(kind).await.unwrap();
    }
    let defined = connection.define(XML).await.unwrap();
    assert_eq!(
        (defined.uuid, defined.id),
        (DomainUuid::parse(UUID).unwrap(), None)
    );
    let before = connection.state(&defined).await.unwrap();
    assert_eq!(before, DomainState::Shutoff(ShutoffReason::Unknown));
    let clock = std::time::Instant::now();
    let domain = connection.start(&defined, StartMode::Paused).await.unwrap();
    let started = clock.elapsed();
    assert!(domain.id.is_some());
    assert_eq!(
        connection.state(&domain).await.unwrap(),
        DomainState::Paused(PausedReason::User)
    );
    connection.resume(&domain).await.unwrap();
    let resumed = connection.state(&domain).await.unwrap();
    assert!(matches!(resumed, DomainState::Running(_)), "{resumed:?}");
    assert!(connection.xml(&domain).await.unwrap().contains("pc-q35-"));
    assert!(!connection.memory_stats(&domain).await.unwrap().is_empty());

    let screenshot = connection.screenshot(&domain, 0).await.unwrap();
    assert!(screenshot.bytes.len() > 1000, "{:?}", screenshot.mime_type);
    connection.suspend(&domain).await.unwrap();
    connection.resume(&domain).await.unwrap();
    connection.reset(&domain).await.unwrap();
    connection.press_power_button(&domain).await.unwrap();
    connection.destroy(&domain).await.unwrap();
    let changes = next_changes(events, Lifecycle::Stopped(1)).await;
    let expected = [
        Lifecycle::Defined(0),
        Lifecycle::Started(0),
        Lifecycle::Suspended(0),
        Lifecycle::Resumed(0),
    ];
    let all = expected.iter().all(|change| changes.contains(change));
    assert!(all, "{changes:?}");
    let after = connection.state(&defined).await.unwrap();
    assert_eq!(after, DomainState::Shutoff(ShutoffReason::Destroyed));
    started
}
