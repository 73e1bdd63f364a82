//! The client against a simulated server: order, loss, pings, events, streams.

use std::time::Duration;

use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::task::TaskTracker;

use crate::frame::{Frame, Header, Kind, Status};
use crate::xdr::Encoder;
use crate::{Connection, Domain, DomainUuid, Error, Event, Events, Lifecycle, procedure, socket};

/// The server's side of a socket pair.
struct Server {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
}

impl Server {
    async fn receive(&mut self) -> Frame {
        socket::read_frame(&mut self.read).await.unwrap()
    }

    async fn send(&mut self, header: Header, body: Encoder) {
        let bytes = Frame {
            header,
            body: body.finish(),
        }
        .encode()
        .unwrap();
        socket::write_frame(&mut self.write, &bytes).await.unwrap();
    }

    async fn reply(&mut self, to: &Frame, body: Encoder) {
        self.send(
            Header {
                kind: Kind::Reply,
                ..to.header
            },
            body,
        )
        .await;
    }
}

fn pair() -> (Connection, Events, Server, TaskTracker) {
    let (near, far) = UnixStream::pair().unwrap();
    let (read, write) = far.into_split();
    let (connection, driver, events) = crate::attach(near);
    let tasks = TaskTracker::new();
    tasks.spawn(driver.run());
    (connection, events, Server { read, write }, tasks)
}

fn guest() -> Domain {
    Domain {
        name: "guest".to_owned(),
        uuid: DomainUuid([7; 16]),
        id: Some(3),
    }
}

fn message(program: u32, procedure: i32) -> Header {
    Header {
        program,
        procedure,
        kind: Kind::Message,
        serial: 0,
        status: Status::Ok,
    }
}

#[tokio::test]
async fn replies_out_of_order_reach_their_callers() {
    let (connection, _events, mut server, _tasks) = pair();
    let serve = async {
        let first = server.receive().await;
        let second = server.receive().await;
        server.reply(&second, Encoder::new().u32(0).u32(22)).await;
        server.reply(&first, Encoder::new().u32(0).u32(11)).await;
    };
    let (first, second, ()) =
        tokio::join!(connection.lib_version(), connection.lib_version(), serve);
    assert_eq!((first.unwrap(), second.unwrap()), (11, 22));
}

#[tokio::test(start_paused = true)]
async fn call_times_out_and_its_late_reply_is_dropped() {
    let (connection, _events, mut server, _tasks) = pair();
    let limited = connection.with_limit(Duration::from_millis(20));
    assert!(matches!(
        limited.lib_version().await,
        Err(Error::TimedOut { .. })
    ));
    let serve = async {
        let late = server.receive().await;
        server.reply(&late, Encoder::new().u32(0).u32(1)).await;
        let timely = server.receive().await;
        server.reply(&timely, Encoder::new().u32(0).u32(2)).await;
    };
    let (version, ()) = tokio::join!(connection.lib_version(), serve);
    assert_eq!(version.unwrap(), 2);
}

#[tokio::test]
async fn calls_and_events_end_with_the_server() {
    let (connection, mut events, mut server, _tasks) = pair();
    let serve = async {
        server.receive().await;
        drop(server);
    };
    let (version, ()) = tokio::join!(connection.lib_version(), serve);
    assert!(matches!(version, Err(Error::Closed)), "{version:?}");
    assert!(!connection.is_open());
    assert!(matches!(connection.lib_version().await, Err(Error::Closed)));
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn ping_gets_a_pong() {
    let (_connection, _events, mut server, _tasks) = pair();
    server
        .send(
            message(procedure::KEEPALIVE, procedure::KEEPALIVE_PING),
            Encoder::new(),
        )
        .await;
    let pong = server.receive().await;
    assert_eq!(
        pong.header,
        message(procedure::KEEPALIVE, procedure::KEEPALIVE_PONG)
    );
}

#[tokio::test]
async fn events_are_ordered_and_unknown_ones_are_skipped() {
    let (_connection, mut events, mut server, _tasks) = pair();
    let lifecycle = message(
        procedure::REMOTE,
        procedure::DOMAIN_EVENT_CALLBACK_LIFECYCLE,
    );
    server
        .send(message(procedure::REMOTE, 320), Encoder::new().u32(9))
        .await;
    for (event, detail) in [(4, 0), (2, 0)] {
        let body = guest().encode(Encoder::new().i32(0)).i32(event).i32(detail);
        server.send(lifecycle, body).await;
    }
    for change in [Lifecycle::Resumed(0), Lifecycle::Started(0)] {
        assert_eq!(
            events.next().await,
            Some(Event::Lifecycle {
                domain: guest(),
                change
            })
        );
    }
}

#[tokio::test]
async fn too_many_unread_events_end_the_connection() {
    let (connection, _events, mut server, tasks) = pair();
    let reboot = message(procedure::REMOTE, procedure::DOMAIN_EVENT_CALLBACK_REBOOT);
    let bytes = Frame {
        header: reboot,
        body: guest().encode(Encoder::new().i32(0)).finish(),
    }
    .encode()
    .unwrap();
    for _ in 0..300 {
        if socket::write_frame(&mut server.write, &bytes)
            .await
            .is_err()
        {
            break;
        }
    }
    tasks.close();
    tasks.wait().await;
    assert!(!connection.is_open());
}

#[tokio::test]
async fn stream_is_read_to_its_end_and_finished() {
    let (connection, _events, mut server, _tasks) = pair();
    let serve = async {
        let call = server.receive().await;
        let part = |status| Header {
            kind: Kind::Stream,
            status,
            ..call.header
        };
        server
            .reply(&call, Encoder::new().optional_string(Some("image/png")))
            .await;
        server
            .send(part(Status::Continue), Encoder::new().u32(1))
            .await;
        server
            .send(part(Status::Continue), Encoder::new().u32(2))
            .await;
        server.send(part(Status::Continue), Encoder::new()).await;
        let end = server.receive().await;
        assert_eq!(end.header, part(Status::Ok));
        server.send(part(Status::Ok), Encoder::new()).await;
    };
    let guest = guest();
    let (screenshot, ()) = tokio::join!(connection.screenshot(&guest, 0), serve);
    let screenshot = screenshot.unwrap();
    assert_eq!(screenshot.mime_type.as_deref(), Some("image/png"));
    assert_eq!(screenshot.bytes, [0, 0, 0, 1, 0, 0, 0, 2]);
}

#[tokio::test]
async fn remote_error_has_the_servers_message() {
    let (connection, _events, mut server, _tasks) = pair();
    let serve = async {
        let call = server.receive().await;
        let body = Encoder::new()
            .i32(42)
            .i32(10)
            .optional_string(Some("no such domain"))
            .i32(2)
            .u32(0)
            .u32(0)
            .u32(0)
            .u32(0)
            .i32(-1)
            .i32(-1)
            .u32(0);
        server
            .send(
                Header {
                    kind: Kind::Reply,
                    status: Status::Error,
                    ..call.header
                },
                body,
            )
            .await;
    };
    let (defined, ()) = tokio::join!(connection.define("<domain/>"), serve);
    assert_eq!(defined.unwrap_err().to_string(), "no such domain");
}
