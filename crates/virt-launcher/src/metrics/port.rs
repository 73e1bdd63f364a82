//! The port: the guest writes a request that ends with an empty line, and reads the page and an empty line.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;

const REQUEST: &[u8] = b"GET /metrics/XML\n\n";
const END: &[u8] = b"\n\n";
const INVALID: &[u8] = b"INVALID REQUEST\n\n";
/// Bytes without an end of a request, after which they count as an invalid one.
const MAX_REQUEST: usize = 128;
/// Bytes that are read at once; what follows waits in QEMU.
const CHUNK: usize = 256;
/// Between two responses: a guest that asks without pause costs little.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Metrics,
    Invalid,
}

/// The bytes since the last request.
#[derive(Debug, Default)]
struct Incoming(Vec<u8>);

/// Answers until QEMU closes the socket.
pub(super) async fn answer(
    mut stream: UnixStream,
    pages: watch::Receiver<String>,
) -> io::Result<()> {
    let mut incoming = Incoming::default();
    let mut chunk = [0; CHUNK];
    loop {
        let read = stream.read(&mut chunk).await?;
        if read == 0 {
            return Ok(());
        }
        for request in incoming.requests(chunk.get(..read).unwrap_or_default()) {
            // Cloned, since a guest that does not read holds up the writing.
            let response = match request {
                Request::Metrics => format!("{}\n", *pages.borrow()).into_bytes(),
                Request::Invalid => INVALID.to_vec(),
            };
            stream.write_all(&response).await?;
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Incoming {
    fn requests(&mut self, bytes: &[u8]) -> Vec<Request> {
        let mut requests = Vec::new();
        for byte in bytes {
            self.0.push(*byte);
            let is_complete = self.0.ends_with(END);
            if !is_complete && self.0.len() < MAX_REQUEST {
                continue;
            }
            // A client that was interrupted may have left a part of its own request before it.
            requests.push(if self.0.ends_with(REQUEST) {
                Request::Metrics
            } else {
                Request::Invalid
            });
            self.0.clear();
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_in_the_bytes_of_the_guest() {
        use Request::{Invalid, Metrics};
        let request = "GET /metrics/XML\n\n";
        for (text, expected) in [
            (String::new(), vec![]),
            (request.to_owned(), vec![Metrics]),
            (request.repeat(3), vec![Metrics; 3]),
            (format!("GET /met{request}"), vec![Metrics]),
            ("GET /metrics/JSON\n\n".to_owned(), vec![Invalid]),
            (format!("\n\n{request}"), vec![Invalid, Metrics]),
            (format!("GET /\r\n\r\n{request}"), vec![Metrics]),
            ("x".repeat(MAX_REQUEST - 1), vec![]),
            ("x".repeat(3 * MAX_REQUEST), vec![Invalid; 3]),
        ] {
            let whole = Incoming::default().requests(text.as_bytes());
            assert_eq!(whole, expected, "{text:?}");
            let mut incoming = Incoming::default();
            let bytes = text.as_bytes().chunks(1);
            let single: Vec<_> = bytes.flat_map(|byte| incoming.requests(byte)).collect();
            assert_eq!(single, expected, "{text:?}");
        }
    }

    /// Everything that `port` sends in response to `sent`.
    async fn responses(sent: &[u8]) -> String {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (_pages, current) = watch::channel("<metrics>\n</metrics>\n".to_owned());
        let (mut reader, mut writer) = theirs.into_split();
        let exchange = async {
            writer.write_all(sent).await.unwrap();
            drop(writer);
            let mut received = String::new();
            reader.read_to_string(&mut received).await.unwrap();
            received
        };
        let (served, received) = tokio::join!(answer(ours, current), exchange);
        served.unwrap();
        received
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_gets_the_page_and_an_empty_line() {
        let page = "<metrics>\n</metrics>\n\n";
        let sent = [REQUEST, b"what?\n\n", REQUEST].concat();
        let expected = format!("{page}INVALID REQUEST\n\n{page}");
        assert_eq!(responses(&sent).await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn guest_that_asks_without_pause_gets_ten_responses_a_second() {
        let before = tokio::time::Instant::now();
        responses(&REQUEST.repeat(50)).await;
        assert!(before.elapsed() >= 50 * PAUSE, "{:?}", before.elapsed());
    }
}
