//! A response body that holds something until it was sent or its client is gone.
//!
//! Invariant: it is handed out in parts, which hold nothing of the rest. HTTP libraries ask for the next part when
//! they have room for it, and drop the body with its last part, so at most a few parts are unsent when the guard is
//! dropped. A body that panics ends with an error.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// The largest part.
const PART: usize = 64 << 10;

struct Held<G> {
    body: Body,
    /// The rest of a frame that was larger than a part.
    rest: Bytes,
    _guard: G,
}

/// Drops the guard with the body.
pub fn hold<G: Send + Unpin + 'static>(body: Body, guard: G) -> Body {
    Body::new(Held {
        body,
        rest: Bytes::new(),
        _guard: guard,
    })
}

impl<G> Held<G> {
    /// The next part of the rest, as a copy: a client that reads nothing keeps the library's last parts in memory,
    /// and a slice would keep all of the frame. None without a rest.
    fn next_part(&mut self) -> Option<Frame<Bytes>> {
        let size = self.rest.len().min(PART);
        (size > 0).then(|| Frame::data(Bytes::copy_from_slice(&self.rest.split_to(size))))
    }
}

impl<G: Unpin> HttpBody for Held<G> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(part) = self.next_part() {
            return Poll::Ready(Some(Ok(part)));
        }
        let body = &mut self.body;
        let polled = panics::catch(|| Pin::new(&mut *body).poll_frame(context));
        let polled = polled.unwrap_or_else(|panicked| {
            let rest = std::mem::take(body);
            panics::catch(|| drop(rest)).ok();
            Poll::Ready(Some(Err(axum::Error::new(panicked))))
        });
        let frame = std::task::ready!(polled);
        let frame = match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) if data.len() > PART => {
                self.rest = data;
                self.next_part().map(Ok)
            }
            Some(Ok(Ok(data))) => Some(Ok(Frame::data(data))),
            Some(Ok(Err(other))) => Some(Ok(other)),
            Some(Err(error)) => Some(Err(error)),
            None => None,
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    /// Known sizes stay known, so that responses have their `Content-Length`.
    fn size_hint(&self) -> SizeHint {
        let mut size = self.body.size_hint();
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        if let Some(upper) = size.upper() {
            size.set_upper(upper.saturating_add(rest));
        }
        size.set_lower(size.lower().saturating_add(rest));
        size
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Full, StreamBody};

    use super::*;

    /// The sizes of the parts, and the sizes that the body declared before and after each.
    async fn parts(mut body: Body) -> Vec<usize> {
        let mut sizes = Vec::new();
        let mut left = body.size_hint().exact();
        while let Some(part) = body.frame().await {
            let size = part.unwrap().into_data().unwrap().len();
            left = left.map(|left| left - u64::try_from(size).unwrap());
            assert_eq!(body.size_hint().exact(), left, "after part {}", sizes.len());
            sizes.push(size);
        }
        sizes
    }

    #[tokio::test]
    async fn body_is_handed_out_in_parts_of_bounded_size() {
        let part = 64 << 10;
        for (size, expected) in [
            (0, vec![]),
            (1, vec![1]),
            (part, vec![part]),
            (part + 1, vec![part, 1]),
            (3 * part, vec![part; 3]),
        ] {
            let data = vec![b'a'; size];
            assert_eq!(parts(hold(Body::from(data), ())).await, expected, "{size}");
        }
        let frames = [vec![b'a'; part + 1], vec![b'a'; 2]];
        let frames = frames.map(|data| Ok::<_, axum::Error>(Frame::data(Bytes::from(data))));
        let streamed = Body::new(StreamBody::new(futures::stream::iter(frames)));
        assert_eq!(parts(hold(streamed, ())).await, [part, 1, 2]);
    }

    #[tokio::test]
    async fn part_keeps_no_memory_but_its_own() {
        struct Large {
            bytes: Vec<u8>,
            _counted: std::sync::Arc<()>,
        }
        impl AsRef<[u8]> for Large {
            fn as_ref(&self) -> &[u8] {
                &self.bytes
            }
        }
        let counted = std::sync::Arc::new(());
        let data = Large {
            bytes: vec![b'a'; 3 * PART],
            _counted: std::sync::Arc::clone(&counted),
        };
        let mut body = hold(Body::from(Bytes::from_owner(data)), ());
        let part = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(part.len(), PART);
        drop(body);
        assert_eq!(std::sync::Arc::strong_count(&counted), 1);
    }

    #[tokio::test]
    async fn guard_is_held_until_the_last_part() {
        let guard = std::sync::Arc::new(());
        let data = Full::new(Bytes::from(vec![b'a'; 1 << 20]));
        let mut body = hold(Body::new(data), std::sync::Arc::clone(&guard));
        let mut parts = 0;
        while !body.is_end_stream() {
            assert_eq!(std::sync::Arc::strong_count(&guard), 2);
            body.frame().await.unwrap().unwrap();
            parts += 1;
        }
        assert_eq!(parts, 16);
        drop(body);
        assert_eq!(std::sync::Arc::strong_count(&guard), 1);
    }
}
