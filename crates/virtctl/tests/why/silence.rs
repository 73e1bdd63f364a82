//! Components that stop reporting.

use serde_json::json;

use crate::{Environment, NODE, START};

/// virt-handler reported once, and virt-controller notices that it does not do so again.
#[tokio::test(start_paused = true)]
async fn silent_handler_is_noticed_by_the_controller() {
    let environment = Environment::new().await;
    let beat = json!({"metadata": {"annotations": {"kubevirt.io/heartbeat": START}}});
    environment.patch("Node", NODE, beat).await;
    environment.create_vm("tiny", "Always", json!({})).await;
    environment.run("tiny").await;
    let cause = environment.until_cause("tiny", "handler-silent").await;
    assert_eq!(cause.evidence[0].object, format!("node/{NODE}"));
    assert!(
        cause.next.contains("-l kubevirt.io=virt-handler"),
        "{cause:?}"
    );
    let nodes = environment.of_kind("Node");
    environment
        .until("the node takes no guests", async || {
            let node = nodes.get(NODE).await.unwrap();
            let labels = node.metadata.labels.unwrap_or_default();
            (labels.get("kubevirt.io/schedulable")? == "false").then_some(())
        })
        .await;
    environment.end().await;
}
