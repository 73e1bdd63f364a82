//! A version of a file on a server.

use http::{HeaderValue, Response, header};

/// A version of a file, as the first response describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entity {
    pub(super) total: Option<u64>,
    /// A strong `ETag`, else `Last-Modified`.
    pub(super) validator: Option<HeaderValue>,
}

impl Entity {
    /// Of a response with the whole file.
    pub(super) fn whole<B>(response: &Response<B>) -> Self {
        let length = response.headers().get(header::CONTENT_LENGTH);
        Self {
            total: length.and_then(|value| value.to_str().ok()?.parse().ok()),
            validator: validator(response),
        }
    }

    pub(super) fn is_resumable(&self) -> bool {
        self.validator.is_some()
    }

    /// Whether a part continues this version at `offset`. Learns the length if it was unknown.
    pub(super) fn continues(&mut self, part: &Part, offset: u64) -> bool {
        let same = part.start == offset
            && part.validator == self.validator
            && (part.total.is_none() || self.total.is_none() || part.total == self.total);
        if same {
            self.total = self.total.or(part.total);
        }
        same
    }
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    start: u64,
    total: Option<u64>,
    validator: Option<HeaderValue>,
}

impl Part {
    /// None if the response does not say which part it is.
    pub(super) fn of<B>(response: &Response<B>) -> Option<Self> {
        let range = response.headers().get(header::CONTENT_RANGE)?;
        let range = range.to_str().ok()?.trim().strip_prefix("bytes ")?;
        let (bounds, total) = range.split_once('/')?;
        let (start, end) = bounds.split_once('-')?;
        let (start, end): (u64, u64) = (start.trim().parse().ok()?, end.trim().parse().ok()?);
        let total = match total.trim() {
            "*" => None,
            total => Some(total.parse::<u64>().ok()?),
        };
        // A part that ends early is completed by another request.
        let possible = start <= end && total.is_none_or(|total| end < total);
        possible.then(|| Self {
            start,
            total,
            validator: validator(response),
        })
    }
}

fn validator<B>(response: &Response<B>) -> Option<HeaderValue> {
    let tag = response.headers().get(header::ETAG);
    let strong = tag.filter(|tag| tag.as_bytes().starts_with(b"\""));
    let date = response.headers().get(header::LAST_MODIFIED);
    strong.or(date).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(headers: &[(&str, &str)]) -> Response<()> {
        let mut response = Response::builder();
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap()
    }

    #[test]
    fn only_the_same_version_continues() {
        let first = [("content-length", "100"), ("etag", "\"a\"")];
        let check = |headers: &[(&str, &str)], expected: bool| {
            let mut entity = Entity::whole(&response(&first));
            let found = Part::of(&response(headers)).is_some_and(|part| entity.continues(&part, 7));
            assert_eq!(found, expected, "{headers:?}");
        };
        let tag = ("etag", "\"a\"");
        check(&[("content-range", "bytes 7-99/100"), tag], true);
        check(&[("content-range", "bytes 7-50/*"), tag], true);
        check(&[("content-range", "bytes 6-99/100"), tag], false);
        check(&[("content-range", "bytes 7-100/100"), tag], false);
        check(&[("content-range", "bytes 7-99/101"), tag], false);
        check(&[("content-range", "bytes 99-7/100"), tag], false);
        check(
            &[("content-range", "bytes 7-99/100"), ("etag", "\"b\"")],
            false,
        );
        check(&[("content-range", "bytes 7-99/100")], false);
        check(&[("content-range", "7-99/100"), tag], false);
        check(&[tag], false);
    }

    #[test]
    fn weak_tag_is_no_validator() {
        let check = |headers: &[(&str, &str)], expected: Option<&str>| {
            let found = Entity::whole(&response(headers)).validator;
            let found = found.as_ref().map(|value| value.to_str().unwrap());
            assert_eq!(found, expected, "{headers:?}");
        };
        check(&[("etag", "\"a\""), ("last-modified", "x")], Some("\"a\""));
        check(&[("etag", "W/\"a\""), ("last-modified", "x")], Some("x"));
        check(&[("etag", "W/\"a\"")], None);
        check(&[], None);
    }
}
