//! The metrics of this crate.

metrics::table! {
    pub METRICS of "embedded-node":
    gauge PODS["phase"] "ferrovirt_embedded_node_pods"
        "Pods of this node by phase, as last written to the API server.";
    counter IMAGES["result"] "ferrovirt_embedded_node_images_total"
        "Images that containers and volumes needed, by result: present, pulled or failed.";
    counter CONTAINER_STARTS["kind"] "ferrovirt_embedded_node_container_starts_total"
        "Started containers: first, or restart.";
    counter SUPERVISOR_STARTS[] "ferrovirt_embedded_node_supervisor_starts_total"
        "Pod supervisors that were started.";
    gauge SUPERVISORS[] "ferrovirt_embedded_node_supervisors_connected"
        "Pod supervisors, child processes of this or an earlier process, that are connected.";
}
