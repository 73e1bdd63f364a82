//! Calls in flight, matched to their replies, and the task that reads and writes the socket.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

use crate::event::{self, Event, Events};
use crate::frame::{Frame, Header, Kind, Status};
use crate::stream::Sink;
use crate::xdr::Encoder;
use crate::{Error, ProtocolError, RemoteError, Stream, procedure, socket};

/// Frames waiting for the socket. Callers wait when it is full, so it only smooths bursts.
const OUTGOING: usize = 16;
/// Unread events. A guest causes a few a second at most, and the owner reads them between calls.
const EVENTS: usize = 256;
/// The default time limit of a call.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Takes over a connected socket. Nothing is sent or received until [`Driver::run`] is polled.
pub fn attach(stream: UnixStream) -> (Connection, Driver, Events) {
    let (out, outgoing) = mpsc::channel(OUTGOING);
    let (events, received) = mpsc::channel(EVENTS);
    let shared = Arc::new(Shared {
        serial: AtomicU32::new(1),
        waiting: Mutex::new(Some(Waiting::default())),
    });
    let (read, write) = stream.into_split();
    let reader = Reader {
        read,
        out: out.downgrade(),
        shared: Arc::clone(&shared),
        events,
    };
    let driver = Driver {
        reader,
        writer: Writer { write, outgoing },
    };
    (
        Connection {
            shared,
            out,
            limit: CALL_LIMIT,
        },
        driver,
        Events(received),
    )
}

/// Makes calls. Clones share the socket, which closes when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    out: mpsc::Sender<Bytes>,
    limit: Duration,
}

#[derive(Debug)]
struct Shared {
    serial: AtomicU32,
    /// `None` once the connection has ended: no call can start to wait.
    waiting: Mutex<Option<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    calls: HashMap<u32, oneshot::Sender<Reply>>,
    streams: HashMap<u32, Sink>,
}

/// An encoded frame.
type Bytes = Vec<u8>;

/// The reply to a call.
#[derive(Debug)]
pub(crate) struct Reply {
    status: Status,
    pub(crate) body: Vec<u8>,
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) program: u32,
    pub(crate) procedure: i32,
    pub(crate) arguments: Encoder,
}

impl Call {
    pub(crate) fn new(procedure: i32, arguments: Encoder) -> Self {
        Self {
            program: procedure::REMOTE,
            procedure,
            arguments,
        }
    }

    fn encode(self, serial: u32) -> Result<Bytes, ProtocolError> {
        let body = self.arguments.finish();
        let header = Header {
            program: self.program,
            procedure: self.procedure,
            kind: Kind::Call,
            serial,
            status: Status::Ok,
        };
        Frame { header, body }.encode()
    }

    fn name(&self) -> &'static str {
        if self.program == procedure::REMOTE {
            procedure::name(self.procedure)
        } else {
            "QEMU call"
        }
    }
}

impl Connection {
    /// The same connection with another time limit for its calls.
    #[must_use]
    pub fn with_limit(&self, limit: Duration) -> Self {
        Self {
            limit,
            ..self.clone()
        }
    }

    /// Whether calls can still be made.
    pub fn is_open(&self) -> bool {
        self.shared.waiting.lock().is_some()
    }

    /// Makes a call and waits for its reply.
    pub(crate) async fn call(&self, call: Call) -> Result<Reply, Error> {
        let serial = self.shared.next_serial();
        self.call_numbered(call, serial).await
    }

    /// Makes a call that opens a stream. The stream is registered before its first byte can arrive.
    pub(crate) async fn call_with_stream(&self, call: Call) -> Result<(Reply, Stream), Error> {
        let serial = self.shared.next_serial();
        let (sink, chunks) = Sink::new();
        self.shared
            .with(|waiting| waiting.streams.insert(serial, sink))?;
        let stream = Stream::new(self.clone(), call.procedure, serial, chunks);
        match self.call_numbered(call, serial).await {
            Ok(reply) => Ok((reply, stream)),
            Err(error) => {
                stream.discard_unopened();
                Err(error)
            }
        }
    }

    async fn call_numbered(&self, call: Call, serial: u32) -> Result<Reply, Error> {
        let name = call.name();
        let frame = call.encode(serial)?;
        let (sender, reply) = oneshot::channel();
        self.shared
            .with(|waiting| waiting.calls.insert(serial, sender))?;
        let _forget = Forget {
            shared: &self.shared,
            serial,
        };
        let exchange = async {
            self.out.send(frame).await.map_err(|_| Error::Closed)?;
            reply.await.map_err(|_| Error::Closed)
        };
        let reply = tokio::time::timeout(self.limit, exchange)
            .await
            .map_err(|_| Error::TimedOut {
                procedure: name,
                limit: self.limit,
            })??;
        match reply.status {
            Status::Ok => Ok(reply),
            Status::Error => Err(Box::new(RemoteError::decode(&reply.body)?).into()),
            Status::Continue => Err(ProtocolError::Malformed("a reply that continues").into()),
        }
    }

    /// Notifies the server that the stream is complete.
    pub(crate) async fn finish_stream(&self, procedure: i32, serial: u32) -> Result<(), Error> {
        self.out
            .send(stream_end(procedure, serial, Status::Ok)?)
            .await
            .map_err(|_| Error::Closed)
    }

    /// Asks the server to abort the stream, unless the queue is full.
    pub(crate) fn abort_stream(&self, procedure: i32, serial: u32) {
        let sent = stream_end(procedure, serial, Status::Error)
            .map(|frame| self.out.try_send(frame).is_ok());
        tracing::debug!(serial, ?sent, "stream aborted");
    }

    pub(crate) fn forget_stream(&self, serial: u32) {
        if let Some(waiting) = self.shared.waiting.lock().as_mut() {
            waiting.streams.remove(&serial);
        }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }
}

/// The frame that ends a stream.
fn stream_end(procedure: i32, serial: u32, status: Status) -> Result<Bytes, ProtocolError> {
    let header = Header {
        program: procedure::REMOTE,
        procedure,
        kind: Kind::Stream,
        serial,
        status,
    };
    let body = Vec::new();
    Frame { header, body }.encode()
}

/// Removes a call from the table however its future ends.
struct Forget<'a> {
    shared: &'a Shared,
    serial: u32,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = self.shared.waiting.lock().as_mut() {
            waiting.calls.remove(&self.serial);
        }
    }
}

impl Shared {
    /// Serial 0 is reserved for the server's messages.
    fn next_serial(&self) -> u32 {
        loop {
            let serial = self.serial.fetch_add(1, Ordering::Relaxed);
            if serial != 0 {
                return serial;
            }
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Waiting) -> T) -> Result<T, Error> {
        self.waiting.lock().as_mut().map(act).ok_or(Error::Closed)
    }
}

/// Reads and writes the socket of one connection.
#[derive(Debug)]
pub struct Driver {
    reader: Reader,
    writer: Writer,
}

impl Driver {
    /// Runs until the connection ends and returns the reason; [`Error::Closed`] is an orderly end by
    /// either side. Every call in flight then fails with [`Error::Closed`].
    pub async fn run(mut self) -> Error {
        let shared = Arc::clone(&self.reader.shared);
        let _closes = Closes(&shared);
        tokio::select! {
            error = self.reader.run() => error,
            error = self.writer.run() => error,
        }
    }
}

/// Wakes every waiting call when the driver ends or is dropped.
struct Closes<'a>(&'a Shared);

impl Drop for Closes<'_> {
    fn drop(&mut self) {
        drop(self.0.waiting.lock().take());
    }
}

#[derive(Debug)]
struct Writer {
    write: OwnedWriteHalf,
    outgoing: mpsc::Receiver<Bytes>,
}

impl Writer {
    async fn run(&mut self) -> Error {
        while let Some(bytes) = self.outgoing.recv().await {
            if let Err(error) = socket::write_frame(&mut self.write, &bytes).await {
                return error;
            }
        }
        Error::Closed
    }
}

#[derive(Debug)]
struct Reader {
    read: OwnedReadHalf,
    /// Weak: replying to pings must not keep the connection open when all callers are gone.
    out: mpsc::WeakSender<Bytes>,
    shared: Arc<Shared>,
    events: mpsc::Sender<Event>,
}

impl Reader {
    async fn run(&mut self) -> Error {
        loop {
            let handled = match socket::read_frame(&mut self.read).await {
                Ok(frame) => self.handle(frame).await,
                Err(error) => Err(error),
            };
            if let Err(error) = handled {
                return error;
            }
        }
    }

    async fn handle(&mut self, frame: Frame) -> Result<(), Error> {
        let Frame { header, body } = frame;
        match header.kind {
            Kind::Reply => {
                let status = header.status;
                self.deliver(header.serial, Reply { status, body })
            }
            Kind::Message if header.program == procedure::KEEPALIVE => self.pong(header).await,
            Kind::Message if header.program == procedure::REMOTE => {
                self.event(header.procedure, &body)
            }
            Kind::Message => Ok(()),
            Kind::Stream => self.chunk(header, body),
            Kind::Call | Kind::CallWithFds | Kind::ReplyWithFds | Kind::StreamHole => {
                Err(ProtocolError::Malformed("an unexpected type of frame").into())
            }
        }
    }

    /// Hands a reply to its caller, unless the call has timed out.
    fn deliver(&self, serial: u32, reply: Reply) -> Result<(), Error> {
        let caller = self.shared.with(|waiting| waiting.calls.remove(&serial))?;
        if caller.and_then(|caller| caller.send(reply).err()).is_some() {
            tracing::debug!(serial, "late reply dropped");
        }
        Ok(())
    }

    async fn pong(&self, ping: Header) -> Result<(), Error> {
        if ping.procedure != procedure::KEEPALIVE_PING {
            return Ok(());
        }
        let out = self.out.upgrade().ok_or(Error::Closed)?;
        let header = Header {
            procedure: procedure::KEEPALIVE_PONG,
            serial: 0,
            ..ping
        };
        let bytes = Frame {
            header,
            body: Vec::new(),
        }
        .encode()?;
        out.send(bytes).await.map_err(|_| Error::Closed)
    }

    fn event(&self, number: i32, body: &[u8]) -> Result<(), Error> {
        let Some(event) = event::decode(number, body)? else {
            return Ok(());
        };
        match self.events.try_send(event) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => Err(ProtocolError::TooMany {
                count: EVENTS + 1,
                limit: EVENTS,
            }
            .into()),
        }
    }

    fn chunk(&self, header: Header, body: Vec<u8>) -> Result<(), Error> {
        self.shared.with(|waiting| {
            let Some(sink) = waiting.streams.get(&header.serial) else {
                return;
            };
            if sink.take(header.status, body).is_break() {
                waiting.streams.remove(&header.serial);
            }
        })
    }
}
