//! Pictures of the guest's first screen.

use libvirt::{Connection, Domain};

use super::content::Content;

/// Moves the pointer one step there and back: a guest that has blanked its screen shows it again.
const POINTER_MOVES: [&str; 2] = [
    r#"{"execute":"input-send-event","arguments":{"events":[{"type":"rel","data":{"axis":"x","value":1}}]}}"#,
    r#"{"execute":"input-send-event","arguments":{"events":[{"type":"rel","data":{"axis":"x","value":-1}}]}}"#,
];

pub(super) async fn take(
    connection: Connection,
    domain: Domain,
    move_cursor: bool,
) -> Result<Content, libvirt::Error> {
    if move_cursor {
        for command in POINTER_MOVES {
            connection.monitor(&domain, command).await?;
        }
    }
    let picture = connection.screenshot(&domain, 0).await?;
    Ok(Content {
        media_type: picture.mime_type.unwrap_or_default(),
        data: picture.bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_returns_to_where_it_was() {
        let step = |command: &str| {
            let command: serde_json::Value = serde_json::from_str(command).unwrap();
            assert_eq!(command["execute"], "input-send-event");
            command["arguments"]["events"][0]["data"]["value"]
                .as_i64()
                .unwrap()
        };
        let sum: i64 = POINTER_MOVES.into_iter().map(step).sum();
        assert_eq!(sum, 0);
    }
}
