//! Every call of the crate against the real libvirtd of the launcher image, with a guest that
//! runs under emulation.

#![cfg(test)]

mod bundle;

use std::io::Read;
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use bundle::{Bundle, Setup};
use libvirt::{
    Connection, DomainCapabilitiesQuery, DomainState, DomainUuid, Error, ErrorCode, Event,
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
        // The shell is process 1 because something must reap QEMU.
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
        if let Err(err) = connection.open("qemu:///session").await {
            panic!("open: {err}; the log:\n{}", self.bundle.log());
        }
        (connection, events)
    }
}

async fn next_changes(events: &mut Events, last: Lifecycle) -> Vec<Lifecycle> {
    let mut seen = Vec::new();
    while seen.last() != Some(&last) {
        let event = tokio::time::timeout(Duration::from_secs(20), events.next()).await;
        match event.unwrap_or_else(|_| panic!("waited for {last:?}, saw {seen:?}")) {
            Some(Event::Lifecycle { change, domain }) => {
                assert_eq!(domain.name, "contract");
                seen.push(change);
            }
            other => assert!(other.is_some(), "the connection ended"),
        }
    }
    seen
}

#[tokio::test]
async fn every_call_means_to_libvirtd_what_it_means_here() {
    let daemon = Daemon::start();
    let (pinged, _pinged_events) = daemon.connect().await;
    assert!(pinged.supports_feature(10).await.unwrap());
    let (connection, mut events) = daemon.connect().await;
    about_the_host(&connection).await;
    let started = a_life(&connection, &mut events).await;
    eprintln!("start took {started:?}");
    transient_domains(&connection).await;
    // It has asked for pings every second; one that answered none is cut off after three.
    tokio::time::timeout(Duration::from_secs(4), async {
        while pinged.is_open() {
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await
    .expect_err("a client that answers pings stays connected");
    pinged.lib_version().await.unwrap();
    connection.close().await.unwrap();
}

async fn about_the_host(connection: &Connection) {
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
    assert_eq!(connection.domains().await.unwrap(), []);
    let missing = connection.domain_by_name("none").await.unwrap_err();
    assert_eq!(missing.code(), Some(ErrorCode::NO_DOMAIN), "{missing}");
    let broken = connection.define("<domain").await.unwrap_err();
    assert!(matches!(broken, Error::Remote(_)), "{broken}");
}

async fn a_life(connection: &Connection, events: &mut Events) -> Duration {
    let mut subscriptions = Vec::new();
    for kind in [
        EventKind::Lifecycle,
        EventKind::Reboot,
        EventKind::IoError,
        EventKind::ControlError,
    ] {
        subscriptions.push(connection.subscribe(kind).await.unwrap());
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
    assert_eq!(
        connection.state(&domain).await.unwrap(),
        DomainState::Running
    );
    assert_eq!(connection.domain_by_name("contract").await.unwrap(), domain);
    assert_eq!(
        connection.domain_by_uuid(domain.uuid).await.unwrap(),
        domain
    );
    assert_eq!(
        connection.domains().await.unwrap(),
        std::slice::from_ref(&domain)
    );
    assert!(connection.xml(&domain).await.unwrap().contains("pc-q35-"));
    assert!(!connection.memory_stats(&domain).await.unwrap().is_empty());

    let (status, text) = tokio::join!(
        connection.qmp(&domain, r#"{"execute":"query-status"}"#),
        connection.hmp(&domain, "info name")
    );
    assert!(status.unwrap().contains("running"));
    assert_eq!(text.unwrap().trim(), "contract");

    let screenshot = connection.screenshot(&domain, 0).await.unwrap();
    assert!(screenshot.bytes.len() > 1000, "{:?}", screenshot.mime_type);
    let mut vnc = StdStream::from(connection.open_graphics_fd(&domain, 0).await.unwrap());
    assert_eq!(greeting(&mut vnc), *b"RFB 003.");
    let (mut near, far) = StdStream::pair().unwrap();
    connection
        .open_graphics(&domain, 0, far.into())
        .await
        .unwrap();
    assert_eq!(greeting(&mut near), *b"RFB 003.");

    let console = connection.open_console(&domain, None).await.unwrap();
    console.send(b"hello").await.unwrap();
    console.finish().await.unwrap();

    connection.suspend(&domain).await.unwrap();
    connection.resume(&domain).await.unwrap();
    connection.reset(&domain).await.unwrap();
    connection.press_power_button(&domain).await.unwrap();
    connection.destroy(&domain).await.unwrap();
    let seen = next_changes(events, Lifecycle::Stopped(1)).await;
    let told = [
        Lifecycle::Defined(0),
        Lifecycle::Started(0),
        Lifecycle::Suspended(0),
        Lifecycle::Resumed(0),
    ];
    assert!(told.iter().all(|change| seen.contains(change)), "{seen:?}");
    let after = connection.state(&defined).await.unwrap();
    assert_eq!(after, DomainState::Shutoff(ShutoffReason::Destroyed));
    connection.undefine(&defined).await.unwrap();
    assert_eq!(
        connection.state(&defined).await.unwrap_err().code(),
        Some(ErrorCode::NO_DOMAIN)
    );
    for subscription in subscriptions {
        connection.unsubscribe(subscription).await.unwrap();
    }
    started
}

async fn transient_domains(connection: &Connection) {
    let domain = connection
        .create_xml(XML, StartMode::Running)
        .await
        .unwrap();
    assert_eq!(
        connection.state(&domain).await.unwrap(),
        DomainState::Running
    );
    connection.destroy(&domain).await.unwrap();
    assert_eq!(connection.domains().await.unwrap(), []);
}

fn greeting(from: &mut StdStream) -> [u8; 8] {
    from.set_nonblocking(false).expect("switch a socket");
    from.set_read_timeout(Some(Duration::from_secs(10)))
        .expect("bound a read");
    let mut greeting = [0; 8];
    from.read_exact(&mut greeting).expect("a greeting");
    greeting
}
