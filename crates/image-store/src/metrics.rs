//! The metrics of this crate.

metrics::table! {
    pub METRICS of "image-store":
    counter DOWNLOADS["result"] "ferrovirt_image_store_layer_downloads_total"
        "Downloads of layers from registries by result: done or failed.";
    counter DOWNLOADED_BYTES[] "ferrovirt_image_store_downloaded_bytes_total"
        "Bytes of layers received from registries.";
}
