//! The metrics of this crate.

metrics::table! {
    pub METRICS of "virt-handler":
    gauge GUESTS["phase"] "ferrovirt_virt_handler_guests"
        "VMIs of this node by phase, as of the last reconcile.";
    gauge LAUNCHERS[] "ferrovirt_virt_handler_launchers_connected"
        "Launchers that are connected.";
    gauge STREAMS["device"] "ferrovirt_virt_handler_streams_open"
        "Open streams by device: console, vnc, usbredir or portforward.";
    counter LAUNCHER_REQUESTS["result"] "ferrovirt_virt_handler_launcher_requests_total"
        "Requests to launchers by result: done, refused, timed_out, not_connected, unexpected_reply or too_large.";
}
