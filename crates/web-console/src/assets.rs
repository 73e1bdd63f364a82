//! The files of the page, as they are under `static/`.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// The path in URLs.
    pub path: &'static str,
    pub media_type: &'static str,
    pub content: &'static [u8],
}

macro_rules! assets {
    ($($name:literal: $kind:ident),* $(,)?) => {
        &[$(Asset {
            path: concat!("/console/", $name),
            media_type: $kind,
            content: include_bytes!(concat!("../static/", $name)),
        }),*]
    };
}

const PAGE: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";
/// The page itself has the path of the folder.
const INDEX: &str = "/console/index.html";

/// All files. A test compares them with the folder.
pub const ALL: &[Asset] = assets![
    "index.html": PAGE,
    "icon.svg": PICTURE,
    "css/colours.css": STYLE,
    "css/layout.css": STYLE,
    "css/parts.css": STYLE,
    "css/terminal.css": STYLE,
    "js/api.js": SCRIPT,
    "js/copies.js": SCRIPT,
    "js/credentials.js": SCRIPT,
    "js/dom.js": SCRIPT,
    "js/exports.js": SCRIPT,
    "js/live.js": SCRIPT,
    "js/main.js": SCRIPT,
    "js/migrations.js": SCRIPT,
    "js/names.js": SCRIPT,
    "js/networks.js": SCRIPT,
    "js/objects.js": SCRIPT,
    "js/rights.js": SCRIPT,
    "js/routes.js": SCRIPT,
    "js/session.js": SCRIPT,
    "js/stream.js": SCRIPT,
    "js/theme.js": SCRIPT,
    "js/upload.js": SCRIPT,
    "js/usage.js": SCRIPT,
    "js/watch.js": SCRIPT,
    "js/create/controls.js": SCRIPT,
    "js/create/examples.js": SCRIPT,
    "js/create/fields.js": SCRIPT,
    "js/create/object.js": SCRIPT,
    "js/create/place.js": SCRIPT,
    "js/create/sizes.js": SCRIPT,
    "js/create/source.js": SCRIPT,
    "js/create/yaml.js": SCRIPT,
    "js/parts/account.js": SCRIPT,
    "js/parts/actions.js": SCRIPT,
    "js/parts/age.js": SCRIPT,
    "js/parts/conditions.js": SCRIPT,
    "js/parts/delete.js": SCRIPT,
    "js/parts/dialog.js": SCRIPT,
    "js/parts/events.js": SCRIPT,
    "js/parts/exporting.js": SCRIPT,
    "js/parts/guard.js": SCRIPT,
    "js/parts/interfaces.js": SCRIPT,
    "js/parts/listing.js": SCRIPT,
    "js/parts/migrations.js": SCRIPT,
    "js/parts/namespace.js": SCRIPT,
    "js/parts/notice.js": SCRIPT,
    "js/parts/scope.js": SCRIPT,
    "js/parts/status.js": SCRIPT,
    "js/parts/summary.js": SCRIPT,
    "js/parts/table.js": SCRIPT,
    "js/parts/usage.js": SCRIPT,
    "js/parts/verbs.js": SCRIPT,
    "js/parts/volumes.js": SCRIPT,
    "js/parts/why.js": SCRIPT,
    "js/parts/yaml.js": SCRIPT,
    "js/rfb/bytes.js": SCRIPT,
    "js/rfb/client.js": SCRIPT,
    "js/rfb/handshake.js": SCRIPT,
    "js/rfb/hextile.js": SCRIPT,
    "js/rfb/input.js": SCRIPT,
    "js/rfb/keysyms.js": SCRIPT,
    "js/rfb/messages.js": SCRIPT,
    "js/rfb/update.js": SCRIPT,
    "js/terminal/grid.js": SCRIPT,
    "js/terminal/keys.js": SCRIPT,
    "js/terminal/parser.js": SCRIPT,
    "js/terminal/screen.js": SCRIPT,
    "js/terminal/style.js": SCRIPT,
    "js/terminal/view.js": SCRIPT,
    "js/views/console.js": SCRIPT,
    "js/views/copies.js": SCRIPT,
    "js/views/create.js": SCRIPT,
    "js/views/detail.js": SCRIPT,
    "js/views/edit.js": SCRIPT,
    "js/views/exports.js": SCRIPT,
    "js/views/list.js": SCRIPT,
    "js/views/networks.js": SCRIPT,
    "js/views/screen.js": SCRIPT,
    "js/views/signin.js": SCRIPT,
    "js/views/upload.js": SCRIPT,
];

/// The file of a path. Paths are compared as a whole, so there is nothing to traverse.
pub(crate) fn find(path: &str) -> Option<Asset> {
    let path = if path == "/console/" { INDEX } else { path };
    ALL.iter().find(|asset| asset.path == path).copied()
}
