//! Calls in flight, matched to their answers, and the task that moves the bytes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
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
/// A guest makes a handful of events a second at worst, and the owner reads them between calls.
const EVENTS: usize = 256;
/// Unless a call says otherwise.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Takes over a connected socket. Nothing moves until [`Driver::run`] is polled.
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

/// Where calls are made. Clones share the socket; it closes when the last one is dropped.
#[derive(Debug, Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    out: mpsc::Sender<Outgoing>,
    limit: Duration,
}

#[derive(Debug)]
struct Shared {
    serial: AtomicU32,
    /// `None` once the connection has ended: nobody can start to wait any more.
    waiting: Mutex<Option<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    calls: HashMap<u32, oneshot::Sender<Answer>>,
    streams: HashMap<u32, Sink>,
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// The body of an answer and the descriptors that came with it.
#[derive(Debug)]
pub(crate) struct Answer {
    status: Status,
    pub(crate) body: Vec<u8>,
    pub(crate) fds: Vec<OwnedFd>,
}

/// A call to be made.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) program: u32,
    pub(crate) procedure: i32,
    pub(crate) arguments: Encoder,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Call {
    pub(crate) fn new(procedure: i32, arguments: Encoder) -> Self {
        Self {
            program: procedure::REMOTE,
            procedure,
            arguments,
            fds: Vec::new(),
        }
    }

    fn frame(self, serial: u32) -> Result<Outgoing, ProtocolError> {
        let mut body = self.arguments.finish();
        let mut kind = Kind::Call;
        if !self.fds.is_empty() {
            kind = Kind::CallWithFds;
            let count = u32::try_from(self.fds.len()).unwrap_or(u32::MAX);
            body.splice(0..0, count.to_be_bytes());
        }
        let header = Header {
            program: self.program,
            procedure: self.procedure,
            kind,
            serial,
            status: Status::Ok,
        };
        Ok(Outgoing {
            bytes: Frame { header, body }.encode()?,
            fds: self.fds,
        })
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
    /// The same connection, whose calls may take this long.
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

    /// Makes a call and waits for its answer.
    pub(crate) async fn call(&self, call: Call) -> Result<Answer, Error> {
        let serial = self.shared.next_serial();
        self.call_numbered(call, serial).await
    }

    /// Makes a call that opens a stream; the stream is known before the first byte of it can come.
    pub(crate) async fn call_with_stream(&self, call: Call) -> Result<(Answer, Stream), Error> {
        let serial = self.shared.next_serial();
        let (sink, chunks) = Sink::new();
        self.shared
            .with(|waiting| waiting.streams.insert(serial, sink))?;
        let stream = Stream::new(self.clone(), call.procedure, serial, chunks);
        match self.call_numbered(call, serial).await {
            Ok(answer) => Ok((answer, stream)),
            Err(err) => {
                stream.never_opened();
                Err(err)
            }
        }
    }

    async fn call_numbered(&self, call: Call, serial: u32) -> Result<Answer, Error> {
        let name = call.name();
        let frame = call.frame(serial)?;
        let (answer, answered) = oneshot::channel();
        self.shared
            .with(|waiting| waiting.calls.insert(serial, answer))?;
        let _forget = Forget {
            shared: &self.shared,
            serial,
        };
        let exchange = async {
            self.out.send(frame).await.map_err(|_| Error::Closed)?;
            answered.await.map_err(|_| Error::Closed)
        };
        let answer = tokio::time::timeout(self.limit, exchange)
            .await
            .map_err(|_| Error::TimedOut {
                procedure: name,
                limit: self.limit,
            })??;
        match answer.status {
            Status::Ok => Ok(answer),
            Status::Error => Err(Box::new(RemoteError::decode(&answer.body)?).into()),
            Status::Continue => Err(ProtocolError::Malformed("an answer that goes on").into()),
        }
    }

    pub(crate) async fn send_stream(
        &self,
        procedure: i32,
        serial: u32,
        part: (Status, &[u8]),
    ) -> Result<(), Error> {
        self.out
            .send(stream_frame(procedure, serial, part)?)
            .await
            .map_err(|_| Error::Closed)
    }

    /// Tells the server that nobody wants this stream any more, if there is room to tell it.
    pub(crate) fn abort_stream(&self, procedure: i32, serial: u32) {
        let told = stream_frame(procedure, serial, (Status::Error, &[]))
            .map(|frame| self.out.try_send(frame).is_ok());
        tracing::debug!(serial, ?told, "gave up a stream");
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

fn stream_frame(
    procedure: i32,
    serial: u32,
    (status, body): (Status, &[u8]),
) -> Result<Outgoing, ProtocolError> {
    let header = Header {
        program: procedure::REMOTE,
        procedure,
        kind: Kind::Stream,
        serial,
        status,
    };
    let frame = Frame {
        header,
        body: body.to_vec(),
    };
    Ok(Outgoing {
        bytes: frame.encode()?,
        fds: Vec::new(),
    })
}

/// Takes a call out of the table however its future ends.
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
    /// Serial 0 is the server's own, for messages.
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

/// Moves the bytes of one connection.
#[derive(Debug)]
pub struct Driver {
    reader: Reader,
    writer: Writer,
}

impl Driver {
    /// Runs until the connection ends and says why; [`Error::Closed`] is an orderly end by either
    /// side. Every call in flight then fails with [`Error::Closed`].
    pub async fn run(mut self) -> Error {
        let shared = Arc::clone(&self.reader.shared);
        let _closes = Closes(&shared);
        tokio::select! {
            err = self.reader.run() => err,
            err = self.writer.run() => err,
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
    outgoing: mpsc::Receiver<Outgoing>,
}

impl Writer {
    async fn run(&mut self) -> Error {
        while let Some(Outgoing { bytes, fds }) = self.outgoing.recv().await {
            if let Err(err) = socket::write_frame(&mut self.write, &bytes, &fds).await {
                return err;
            }
        }
        Error::Closed
    }
}

#[derive(Debug)]
struct Reader {
    read: OwnedReadHalf,
    /// Weak: answering pings must not keep the connection open when every caller is gone.
    out: mpsc::WeakSender<Outgoing>,
    shared: Arc<Shared>,
    events: mpsc::Sender<Event>,
}

impl Reader {
    async fn run(&mut self) -> Error {
        loop {
            let taken = match socket::read_frame(&mut self.read).await {
                Ok((frame, fds)) => self.take(frame, fds).await,
                Err(err) => Err(err),
            };
            if let Err(err) = taken {
                return err;
            }
        }
    }

    async fn take(&mut self, frame: Frame, fds: Vec<OwnedFd>) -> Result<(), Error> {
        let Frame { header, body } = frame;
        match header.kind {
            Kind::Reply | Kind::ReplyWithFds => self.answer(
                header.serial,
                Answer {
                    status: header.status,
                    body,
                    fds,
                },
            ),
            Kind::Message if header.program == procedure::KEEPALIVE => self.pong(header).await,
            Kind::Message if header.program == procedure::REMOTE => {
                self.event(header.procedure, &body)
            }
            Kind::Message => Ok(()),
            Kind::Stream => self.chunk(header, body),
            Kind::Call | Kind::CallWithFds | Kind::StreamHole => {
                Err(ProtocolError::Malformed("a frame that only a client may send").into())
            }
        }
    }

    /// An answer for nobody is one whose caller gave up.
    fn answer(&self, serial: u32, answer: Answer) -> Result<(), Error> {
        let caller = self.shared.with(|waiting| waiting.calls.remove(&serial))?;
        if caller
            .and_then(|caller| caller.send(answer).err())
            .is_some()
        {
            tracing::debug!(serial, "an answer came too late");
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
        out.send(Outgoing {
            bytes,
            fds: Vec::new(),
        })
        .await
        .map_err(|_| Error::Closed)
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
