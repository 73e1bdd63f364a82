//! Forwards an uploaded file to the pod that receives it.
//!
//! `virt-api` names the pod; here it is made sure that the bytes go to a process of that pod and to nothing else
//! on the node.

use std::{io, pin::pin, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Path, Request, State},
    http::{self, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use error_chain::error_chain;
use http_body_util::{BodyExt as _, Limited};
use hyper_util::rt::TokioIo;
use kubevirt_api::upload;
use tokio::{
    net::UnixStream,
    time::{self, Instant},
};

use super::{response::error_response, router::StreamsState};
use crate::{
    launcher::check_peer,
    pods_dir::{PodUid, PodsDir},
};

/// How long a pod that is starting may need until it listens.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
/// The longest answer of the pod, in bytes.
const ANSWER: usize = 64 << 10;
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// `PUT /v1/pods/UID/upload`.
pub(super) async fn receive(
    State(state): State<StreamsState>,
    Path(uid): Path<String>,
    request: Request,
) -> Response {
    let pod = match PodUid::parse(&uid) {
        Ok(pod) => pod,
        Err(error) => {
            let message = error.to_string();
            return error_response(StatusCode::BAD_REQUEST, "BadRequest", &message);
        }
    };
    let stream = match connect(state.guests.pods_dir(), &pod).await {
        Ok(stream) => stream,
        Err(error) => {
            let message = format!(
                "the pod of the upload does not answer on its node: {}",
                error_chain(&error)
            );
            let code = StatusCode::SERVICE_UNAVAILABLE;
            return error_response(code, "ServiceUnavailable", &message);
        }
    };
    match exchange(stream, request.into_body()).await {
        Ok((code, text)) => (code, [(header::CONTENT_TYPE, TEXT)], text).into_response(),
        Err(error) => {
            let message = format!("the connection to the pod of the upload broke: {error}");
            error_response(StatusCode::BAD_GATEWAY, "InternalError", &message)
        }
    }
}

async fn connect(pods: &PodsDir, pod: &PodUid) -> io::Result<UnixStream> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let connected = match pods.open(pod, upload::POD_VOLUME) {
            Ok(volume) => volume.connect(upload::POD_SOCKET).await,
            Err(error) => Err(error),
        };
        match connected {
            Ok(stream) => {
                check_peer(&stream, pod).map_err(io::Error::other)?;
                return Ok(stream);
            }
            Err(error) if is_starting(&error) && Instant::now() < deadline => {
                time::sleep(POLL).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_starting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// Sends the file, and returns the pod's answer. There is no time limit: the pod ends a silent connection, and
/// converts an image before it answers.
async fn exchange(stream: UnixStream, file: Body) -> Result<(StatusCode, Bytes), String> {
    let failed = |error: hyper::Error| error_chain(&error);
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(failed)?;
    let request = http::Request::builder()
        .method(Method::PUT)
        .uri("/")
        .header(header::HOST, "upload")
        .body(file)
        .map_err(|error| error.to_string())?;
    let answered = async move {
        let response = sender.send_request(request).await.map_err(failed)?;
        let code = response.status();
        let body = Limited::new(response.into_body(), ANSWER).collect().await;
        let body = body.map_err(|error| error.to_string())?;
        Ok((code, body.to_bytes()))
    };
    let (mut answered, mut connection) = (pin!(answered), pin!(connection));
    // An answer may be complete before the file is, and the connection before its answer was read.
    tokio::select! {
        answer = &mut answered => answer,
        ended = &mut connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "the connection to the pod of an upload ended");
            }
            answered.await
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn answer_is_returned_even_before_the_whole_file_was_sent() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let pod = async move {
            let mut head = [0; 512];
            assert!(far.read(&mut head).await.unwrap() > 0);
            let answer = b"HTTP/1.1 400 x\r\ncontent-length: 3\r\nconnection: close\r\n\r\nbad";
            far.write_all(answer).await.unwrap();
            far
        };
        let file = futures::stream::pending::<Result<Bytes, std::convert::Infallible>>();
        let sent = exchange(near, Body::from_stream(file));
        let (answer, _far) = tokio::join!(sent, pod);
        let (code, text) = answer.unwrap();
        assert_eq!((code.as_u16(), &text[..]), (400, &b"bad"[..]));
    }

    #[tokio::test]
    async fn file_goes_to_the_pod_with_its_length() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let pod = async move {
            let mut text = String::new();
            let mut chunk = [0; 512];
            while !text.ends_with("the file") {
                let read = far.read(&mut chunk).await.unwrap();
                assert!(read > 0, "{text}");
                text.push_str(str::from_utf8(&chunk[..read]).unwrap());
            }
            let answer = b"HTTP/1.1 200 x\r\ncontent-length: 2\r\n\r\nok";
            far.write_all(answer).await.unwrap();
            text
        };
        let sent = exchange(near, Body::from("the file"));
        let (answer, text) = tokio::join!(sent, pod);
        assert_eq!(answer.unwrap().0, StatusCode::OK);
        assert!(text.starts_with("PUT / HTTP/1.1\r\n"), "{text}");
        assert!(text.contains("content-length: 8\r\n"), "{text}");
    }

    #[tokio::test]
    async fn process_outside_of_the_pod_gets_nothing() {
        let root = tempfile::tempdir().unwrap();
        let pods = PodsDir::new(root.path());
        let pod = PodUid::parse("2ab3").unwrap();
        let volume = pods.empty_dir(&pod, upload::POD_VOLUME);
        std::fs::create_dir_all(&volume).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(volume.join("socket")).unwrap();
        let error = connect(&pods, &pod).await.unwrap_err();
        assert!(error.to_string().contains("process"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn pod_that_never_listens_is_given_up() {
        let root = tempfile::tempdir().unwrap();
        let pods = PodsDir::new(root.path());
        let pod = PodUid::parse("2ab3").unwrap();
        let error = connect(&pods, &pod).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
