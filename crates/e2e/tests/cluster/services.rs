//! Guests behind services.

use e2e::{tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::test_namespace;

#[tokio::test]
async fn pod_reaches_guest_through_service() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("web")).await;
    let mut console = test.shell("web").await;
    let serve = "mkdir -p /www && echo served >/www/index.html && httpd -p 80 -h /www && echo up";
    assert_eq!(console.shell(serve).await, "up");
    test
        .apply_object(&json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"kubevirt.io/vm": "web"}, "ports": [{"port": 8080, "targetPort": 80}]},
        }))
        .await;
    let services = test.objects("", "v1", "Service");
    let has = |service: &Value| service["spec"]["clusterIP"].is_string();
    let service = wait_for(&services, "web", "given an address", has).await;
    let address = service["spec"]["clusterIP"].as_str().expect("an address");
    // Endpoints follow the service with a delay.
    let ask = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} 8080");
    let script = format!("until {ask} | grep served; do sleep 1; done");
    test.apply_object(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "client"},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "client", "image": "docker.io/ferrovirt/busybox:devel",
                "command": ["sh", "-c", script],
            }],
        },
    }))
    .await;
    let ended = |pod: &Value| pod["status"]["phase"] == "Succeeded";
    wait_for(&test.pods(), "client", "answered", ended).await;
    assert_eq!(
        test.kubectl(&["logs", "client"]).await.success().trim(),
        "served"
    );
}
