//! Binary content of a reply, such as an image, in parts that fit into frames.

use serde::{Deserialize, Serialize};

/// The largest part, so that its frame stays below [`crate::MAX_FROM_LAUNCHER`] in base64.
pub const MAX_PART: usize = 720 << 10;

/// A part of a reply's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Type of the content, such as `image/png`; the same in all parts.
    pub media_type: String,
    #[serde(with = "base64_text")]
    pub data: Vec<u8>,
    /// Further parts follow.
    #[serde(default)]
    pub more: bool,
}

impl Part {
    /// Splits content; there is at least one part.
    pub fn split<'a>(media_type: &'a str, content: &'a [u8]) -> impl Iterator<Item = Self> + 'a {
        let count = content.len().div_ceil(MAX_PART).max(1);
        let empty = content.is_empty().then_some(content);
        let chunks = empty.into_iter().chain(content.chunks(MAX_PART));
        chunks.enumerate().map(move |(index, data)| Self {
            media_type: media_type.to_owned(),
            data: data.to_vec(),
            more: index + 1 < count,
        })
    }
}

mod base64_text {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(data: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(data))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        STANDARD.decode(text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FromLauncher, MAX_FROM_LAUNCHER, Reply, write_frame};

    #[test]
    fn content_is_split_into_parts_and_read_back() {
        for (length, parts) in [
            (0, 1),
            (1, 1),
            (MAX_PART, 1),
            (MAX_PART + 1, 2),
            (3 * MAX_PART, 3),
        ] {
            let content: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
            let split: Vec<Part> = Part::split("image/png", &content).collect();
            assert_eq!(split.len(), parts, "{length}");
            let last = split.last().unwrap();
            assert!(!last.more && split[..parts - 1].iter().all(|part| part.more));
            let joined: Vec<u8> = split
                .iter()
                .map(|part| serde_json::to_string(part).unwrap())
                .flat_map(|text| serde_json::from_str::<Part>(&text).unwrap().data)
                .collect();
            assert_eq!(joined, content, "{length}");
        }
    }

    #[tokio::test]
    async fn largest_part_fits_into_a_frame_of_a_launcher() {
        let part = Part {
            media_type: "m".repeat(256),
            data: vec![0xff; MAX_PART],
            more: true,
        };
        let message = FromLauncher::Reply {
            id: u64::MAX,
            reply: Reply::Part(part),
        };
        let mut frame = Vec::new();
        write_frame(&mut frame, &message).await.unwrap();
        assert!(frame.len() - 4 <= MAX_FROM_LAUNCHER, "{}", frame.len());
    }
}
