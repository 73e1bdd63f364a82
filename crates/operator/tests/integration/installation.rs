//! The `KubeVirt` object and its status.

use cluster_view::Configuration;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::world::{Health, NAMESPACE, World, conditions, kubevirt};

const READY: &str =
    "Synchronized=True Created=True Available=True Progressing=False Degraded=False";

fn is_ready(object: &Value) -> bool {
    conditions(object) == READY
}

#[tokio::test(start_paused = true)]
async fn object_is_created_and_becomes_available() {
    let world = World::new().await;
    let waiting = world
        .wait(&kubevirt(), |found| !conditions(found).is_empty())
        .await;
    assert_eq!(
        conditions(&waiting),
        "Created=True Available=False Progressing=True Degraded=False"
    );
    assert_eq!(waiting["status"]["phase"], "Deploying");
    world.report(Health::Up, Health::Up).await;
    let ready = world.wait(&kubevirt(), is_ready).await;
    let status = &ready["status"];
    for (field, expected) in [
        ("phase", json!("Deployed")),
        ("operatorVersion", json!("v1.9.0")),
        ("targetKubeVirtVersion", json!("v1.9.0")),
        ("observedKubeVirtVersion", json!("v1.9.0")),
        (
            "targetKubeVirtRegistry",
            json!("registry.example/ferrovirt"),
        ),
        (
            "observedKubeVirtRegistry",
            json!("registry.example/ferrovirt"),
        ),
        (
            "observedGeneration",
            ready["metadata"]["generation"].clone(),
        ),
        ("observedDeploymentID", status["targetDeploymentID"].clone()),
        (
            "observedDeploymentConfig",
            status["targetDeploymentConfig"].clone(),
        ),
    ] {
        assert!(!expected.is_null(), "{field}");
        assert_eq!(status[field], expected, "{field}");
    }
    assert_eq!(status["conditions"][2]["reason"], "AllComponentsReady");
    let own = concat!("v", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        ready["metadata"]["annotations"]["ferrovirt.io/version"],
        own
    );
    let gates = &ready["spec"]["configuration"]["developerConfiguration"]["featureGates"];
    assert_eq!(
        *gates,
        json!(["IncrementalBackup", "SuspendToClaim"]),
        "a JSON patch can add to the list"
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn status_follows_the_components() {
    let world = World::new().await;
    world.report(Health::Up, Health::Up).await;
    world.wait(&kubevirt(), is_ready).await;
    for (handler, api, message) in [
        (Health::Down, Health::Up, "virt-handler: 0 of 1 are ready"),
        (Health::Up, Health::Down, "virt-api: 0 of 1 are ready"),
    ] {
        world.report(handler, api).await;
        let impaired = world
            .wait(&kubevirt(), |found| {
                found["status"]["conditions"][1]["message"] == message
            })
            .await;
        assert_eq!(
            conditions(&impaired),
            "Created=True Available=False Progressing=False Degraded=True"
        );
        assert_eq!(
            impaired["status"]["conditions"][1]["reason"],
            "ComponentsNotReady"
        );
        assert_eq!(impaired["status"]["phase"], "Deployed");
        world.report(Health::Up, Health::Up).await;
        world.wait(&kubevirt(), is_ready).await;
    }
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_administrator_survive_a_restart() {
    let mut world = World::new().await;
    world.report(Health::Up, Health::Up).await;
    let first = world.wait(&kubevirt(), is_ready).await;
    let change = json!({"spec": {
        "imagePullPolicy": null,
        "configuration": {"developerConfiguration": {"featureGates": ["HostDisk"]}},
    }});
    world.patch(&kubevirt(), None, &change).await;
    let changed = world
        .wait(&kubevirt(), |found| {
            found["status"]["observedGeneration"] == found["metadata"]["generation"]
        })
        .await;
    assert_ne!(
        changed["metadata"]["generation"],
        first["metadata"]["generation"]
    );
    world.stop().await;
    world.report(Health::Down, Health::Up).await;
    world.start();
    let again = world.wait(&kubevirt(), |found| !is_ready(found)).await;
    assert_eq!(again["spec"], changed["spec"]);
    assert_eq!(again["metadata"]["uid"], first["metadata"]["uid"]);
    let parameters = DeleteParams::default();
    let deleted = world.of(&kubevirt()).delete("kubevirt", &parameters).await;
    deleted.unwrap();
    let created = world
        .wait(&kubevirt(), |found| {
            !found.is_null() && found["metadata"]["uid"] != first["metadata"]["uid"]
        })
        .await;
    let configuration = &created["spec"]["configuration"];
    assert_eq!(
        configuration["developerConfiguration"]["featureGates"],
        json!(["IncrementalBackup", "SuspendToClaim"])
    );
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn second_object_is_marked_as_not_in_effect() {
    let world = World::new().await;
    world.report(Health::Up, Health::Up).await;
    world.wait(&kubevirt(), is_ready).await;
    // Creation times have seconds.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let mut others = [kubevirt(), kubevirt()];
    others[0]["metadata"]["namespace"] = "other".into();
    others[1]["metadata"]["name"] = "another".into();
    for other in others {
        world.api.create(other.clone()).await.unwrap();
        let refused = world
            .wait(&other, |found| !conditions(found).is_empty())
            .await;
        assert_eq!(conditions(&refused), "Synchronized=False");
        let condition = &refused["status"]["conditions"][0];
        assert_eq!(condition["reason"], "ExistingDeployment");
        let message = condition["message"].as_str().unwrap();
        assert!(message.contains("kubevirt/kubevirt"), "{message}");
        assert_eq!(refused["status"]["phase"], Value::Null);
    }
    assert!(is_ready(&world.get(&kubevirt()).await));
    world.end().await;
}

#[tokio::test(start_paused = true)]
async fn configuration_in_effect_is_reported_by_its_resource_version() {
    let world = World::new().await;
    world.report(Health::Up, Health::Up).await;
    world.wait(&kubevirt(), is_ready).await;
    let configuration = Configuration::new(NAMESPACE);
    let client = &world.api.client;
    configuration.follow(client, &world.api.tasks, &world.api.stop);
    configuration.ready().await;
    let change = json!({"spec": {
        "configuration": {"developerConfiguration": {"featureGates": ["HostDisk"]}},
    }});
    world.patch(&kubevirt(), None, &change).await;
    let changed = world.get(&kubevirt()).await;
    let version: u64 = changed["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let reached = async || {
        let health = cluster_view::health(client, &[Configuration::new(NAMESPACE)]).await;
        assert_eq!(health.body["config-resource-version"], "0");
        let health = cluster_view::health(client, std::slice::from_ref(&configuration)).await;
        assert!(health.is_healthy, "{:#}", health.body);
        let found = health.body["config-resource-version"].as_str().unwrap();
        found.parse::<u64>().unwrap() >= version
    };
    while !reached().await {
        assert!(!configuration.now().has_gate("HostDisk") || reached().await);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert!(configuration.now().has_gate("HostDisk"));
    world.end().await;
}
