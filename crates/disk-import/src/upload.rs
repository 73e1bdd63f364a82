//! A file that a client sends: HTTP on a unix socket, which only this pod and its node can reach.
//!
//! `PUT /` with the file is answered when the disk is complete, or with what is wrong with the file. After a
//! failure the next request may send the file again; after a success the program ends.
//!
//! **Invariants**: one file at a time fills the disk; a file that is cut is never taken for the whole.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use error_chain::error_chain;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time;
use tokio_util::task::TaskTracker;

use crate::ImportError;
use crate::error::io_failed;
use crate::fetch::Sink as _;
use crate::pipeline::{Import, Pipeline};
use crate::progress::log;

/// A client that sends nothing for that long is gone.
const SILENCE: Duration = Duration::from_mins(1);
/// How long a client waits for the end of another upload, which may be its own that was cut.
const TURN: Duration = Duration::from_secs(10);
/// How long the rest of a refused file is read: a client that still sends may miss an earlier answer.
const DRAIN: Duration = Duration::from_secs(20);
/// Time limit for the last answer to reach its client.
const GOODBYE: Duration = Duration::from_secs(5);
/// Connections that wait in the queue of the kernel at most.
const CONNECTIONS: usize = 16;

/// What is answered.
type Answer = (StatusCode, String);

/// A file that arrives.
struct Upload {
    body: Incoming,
    answer: oneshot::Sender<Answer>,
    /// Held until the answer is known.
    _turn: OwnedSemaphorePermit,
}

/// Fills the disk with the first file that is complete and usable, and returns the disk's size.
pub(crate) fn receive(socket: &Path, import: &Import) -> Result<u64, ImportError> {
    // Connections are read by the other thread while this one writes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(io_failed("start the runtime"))?;
    runtime.block_on(async {
        let listener = listen(socket).map_err(io_failed("listen for an upload"))?;
        log(format_args!("ready for an upload"));
        serve(listener, import).await
    })
}

/// A socket that an earlier run of the container left is replaced.
fn listen(socket: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(socket) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    UnixListener::bind(socket)
}

async fn serve(listener: UnixListener, import: &Import) -> Result<u64, ImportError> {
    // Those who have the turn send; there is one.
    let (sender, mut uploads) = mpsc::channel(1);
    let turn = Arc::new(Semaphore::new(1));
    let connections = TaskTracker::new();
    // In a task of its own: `filling` blocks its thread while an image is converted.
    let acceptor = TaskTracker::new();
    let mut accepting = acceptor.spawn(accept(listener, sender, turn, connections.clone()));
    let filling = async {
        while let Some(upload) = uploads.recv().await {
            if let Some(size) = answer(upload, import).await {
                return Ok(size);
            }
        }
        Err(io_failed("accept an upload")(
            io::ErrorKind::BrokenPipe.into(),
        ))
    };
    let size = tokio::select! {
        size = filling => size?,
        ended = &mut accepting => {
            return Err(io_failed("accept an upload")(ended.unwrap_or_else(Into::into)));
        }
    };
    accepting.abort();
    acceptor.close();
    acceptor.wait().await;
    // A client whose upload comes after that of another one gets an error, not silence.
    drop(uploads);
    connections.close();
    if time::timeout(GOODBYE, connections.wait()).await.is_err() {
        log(format_args!("a client did not take its answer"));
    }
    Ok(size)
}

/// Accepts connections until that fails.
async fn accept(
    listener: UnixListener,
    uploads: mpsc::Sender<Upload>,
    turn: Arc<Semaphore>,
    connections: TaskTracker,
) -> io::Error {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return io::ErrorKind::BrokenPipe.into();
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => return error,
        };
        let (uploads, turn) = (uploads.clone(), Arc::clone(&turn));
        connections.spawn(async move {
            connection(stream, uploads, turn).await;
            drop(slot);
        });
    }
}

/// One request.
async fn connection(stream: UnixStream, uploads: mpsc::Sender<Upload>, turn: Arc<Semaphore>) {
    let service = service_fn(move |request| {
        let (uploads, turn) = (uploads.clone(), Arc::clone(&turn));
        async move {
            let (status, text) = request_answer(request, uploads, turn).await;
            let mut response = Response::new(Full::new(Bytes::from(text)));
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENCE)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        log(format_args!("a connection ended: {}", error_chain(&error)));
    }
}

async fn request_answer(
    request: Request<Incoming>,
    uploads: mpsc::Sender<Upload>,
    turn: Arc<Semaphore>,
) -> Answer {
    if request.method() != Method::PUT {
        let text = "send the file by PUT".to_owned();
        return (StatusCode::METHOD_NOT_ALLOWED, text);
    }
    let Ok(Ok(turn)) = time::timeout(TURN, turn.acquire_owned()).await else {
        let text = "another upload to this volume is being received".to_owned();
        return (StatusCode::SERVICE_UNAVAILABLE, text);
    };
    let (answer, answered) = oneshot::channel();
    let upload = Upload {
        body: request.into_body(),
        answer,
        _turn: turn,
    };
    let is_late = uploads.send(upload).await.is_err();
    match answered.await {
        Ok(answer) if !is_late => answer,
        _ => {
            let text = "another upload has filled this volume".to_owned();
            (StatusCode::CONFLICT, text)
        }
    }
}

/// Receives one file; returns the size of the disk if it is complete.
async fn answer(mut upload: Upload, import: &Import) -> Option<u64> {
    let (size, answer) = match fill(&mut upload.body, import).await {
        Ok(size) => {
            let text = format!("the disk of {size} bytes is complete");
            (Some(size), (StatusCode::OK, text))
        }
        Err(error) => {
            log(format_args!("upload refused: {}", error_chain(&error)));
            let is_cut = matches!(error, ImportError::Cut { .. });
            if !is_cut && time::timeout(DRAIN, drain(&mut upload.body)).await.is_err() {
                log(format_args!("the client still sends the refused file"));
            }
            let status = if is_cut || !error.is_transient() {
                StatusCode::BAD_REQUEST
            } else {
                StatusCode::INTERNAL_SERVER_ERROR
            };
            (None, (status, error_chain(&error)))
        }
    };
    if upload.answer.send(answer).is_err() {
        log(format_args!("the client of the upload is gone"));
    }
    size
}

async fn fill(body: &mut Incoming, import: &Import) -> Result<u64, ImportError> {
    let mut pipeline = Pipeline::new(import.clone())?;
    let total = body.size_hint().exact();
    let mut received = 0;
    loop {
        let cut = |source| ImportError::Cut { received, source };
        let frame = time::timeout(SILENCE, body.frame()).await;
        let frame = frame.map_err(|late| cut(Some(late.into())))?;
        let Some(frame) = frame else {
            break;
        };
        let frame = frame.map_err(|error| cut(Some(error.into())))?;
        if let Ok(bytes) = frame.into_data() {
            received += bytes.len() as u64;
            pipeline.push(&bytes, total)?;
        }
    }
    if total.is_some_and(|total| total != received) {
        let source = None;
        return Err(ImportError::Cut { received, source });
    }
    pipeline.finish()
}

async fn drain(body: &mut Incoming) {
    while let Some(Ok(_)) = body.frame().await {}
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::PathBuf;
    use std::process::Command;

    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::convert::Converter;
    use crate::disk::Place;
    use crate::pipeline::Content;

    const MIB: usize = 1 << 20;
    const SIZE: u64 = 2 << 20;

    /// A volume of 2 MiB whose upload runs on a thread of its own.
    struct Receiver {
        dir: TempDir,
        thread: std::thread::JoinHandle<Result<u64, ImportError>>,
    }

    impl Receiver {
        fn start() -> Self {
            Self::start_with(tempfile::tempdir().unwrap(), Converter::direct())
        }

        fn start_with(dir: TempDir, converter: Converter) -> Self {
            let (claim, scratch) = (dir.path().join("claim"), dir.path().join("scratch"));
            fs::create_dir(&claim).unwrap();
            fs::create_dir(&scratch).unwrap();
            let import = Import {
                place: Place::Directory {
                    path: claim,
                    size: SIZE,
                },
                content: Content::Image,
                scratch,
                checksum: None,
                converter,
            };
            let socket = dir.path().join("socket");
            // As an earlier run of the container leaves it.
            drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
            let thread = std::thread::spawn(move || receive(&socket, &import));
            Self { dir, thread }
        }

        fn disk(&self) -> PathBuf {
            self.dir.path().join("claim/disk.img")
        }

        async fn connect(&self) -> UnixStream {
            let socket = self.dir.path().join("socket");
            loop {
                match UnixStream::connect(&socket).await {
                    Ok(stream) => return stream,
                    // The old socket, or none yet.
                    Err(_) => tokio::task::yield_now().await,
                }
                assert!(!self.thread.is_finished(), "the receiver has ended");
            }
        }

        /// Announces a length, sends the bytes, and returns the answer.
        async fn send(&self, announced: u64, bytes: &[u8]) -> String {
            let mut stream = self.connect().await;
            let head = format!("PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: {announced}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            if announced > bytes.len() as u64 {
                stream.shutdown().await.unwrap();
            }
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        }

        async fn send_all(&self, bytes: &[u8]) -> String {
            self.send(bytes.len() as u64, bytes).await
        }

        /// The answer to a request that sends no file.
        async fn ask(&self) -> String {
            let mut stream = self.connect().await;
            let head = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";
            stream.write_all(head).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        }

        fn end(self) -> (TempDir, u64) {
            let size = self.thread.join().unwrap();
            (self.dir, size.unwrap())
        }
    }

    /// The header of a qcow2 image of 1 MiB.
    fn image_with_backing_file(name: &str) -> Vec<u8> {
        let mut image = vec![0; 512];
        image[..8].copy_from_slice(b"QFI\xfb\0\0\0\x02");
        image[8..16].copy_from_slice(&256_u64.to_be_bytes());
        let length = u32::try_from(name.len()).unwrap();
        image[16..20].copy_from_slice(&length.to_be_bytes());
        image[20..24].copy_from_slice(&16_u32.to_be_bytes());
        image[24..32].copy_from_slice(&(1_u64 << 20).to_be_bytes());
        image[256..256 + name.len()].copy_from_slice(name.as_bytes());
        image
    }

    #[tokio::test]
    async fn raw_file_becomes_the_disk() {
        let receiver = Receiver::start();
        let answer = receiver.send_all(&vec![7; MIB + 3]).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let disk = receiver.disk();
        let (_dir, size) = receiver.end();
        assert_eq!(size, SIZE);
        let found = fs::read(disk).unwrap();
        assert!(found[..MIB + 3].iter().all(|byte| *byte == 7));
        assert_eq!(found.len() as u64, size);
    }

    #[tokio::test]
    async fn file_that_was_cut_can_be_sent_again() {
        let receiver = Receiver::start();
        let file = vec![7; 70_000];
        receiver.send(SIZE, &file).await;
        assert!(!receiver.disk().exists());
        let answer = receiver.send_all(&file).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        receiver.end();
    }

    #[tokio::test]
    async fn unusable_file_is_refused_with_a_reason_and_another_can_be_sent() {
        let receiver = Receiver::start();
        let large = vec![7; 3 * MIB];
        let cases = [
            (Vec::new(), "the file is empty"),
            (large, "larger than the volume"),
            (image_with_backing_file("/etc/passwd"), "/etc/passwd"),
        ];
        for (file, expected) in cases {
            let answer = receiver.send_all(&file).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
            assert!(answer.contains(expected), "{answer}");
            assert!(!receiver.disk().exists());
        }
        let answer = receiver.send_all(&[7; 512]).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        receiver.end();
    }

    #[tokio::test]
    async fn clients_are_answered_while_an_image_is_converted() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        // It reads the pipe until the test closes it, and then fails.
        let script = r#"cat "$0"; exit 1"#;
        let command = ["sh", "-c", script, pipe.to_str().unwrap()];
        let command = command.map(Into::into).to_vec();
        let receiver = Receiver::start_with(dir, Converter::through(command));
        let image = b"vhdxfile".repeat(64);
        let meanwhile = async {
            let opened = tokio::task::spawn_blocking(move || File::create(pipe));
            let converting = opened.await.unwrap().unwrap();
            let answer = time::timeout(SILENCE, receiver.ask()).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
            drop(converting);
        };
        let (refused, ()) = tokio::join!(receiver.send_all(&image), meanwhile);
        assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
        receiver.send_all(&[7; 512]).await;
        receiver.end();
    }

    #[tokio::test]
    async fn other_requests_change_nothing() {
        let receiver = Receiver::start();
        let answer = receiver.ask().await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
        receiver.send_all(&[7; 512]).await;
        receiver.end();
    }
}
