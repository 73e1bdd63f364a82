//! Watches and background tasks, observed through the router and through `kube`.

use std::time::Duration;

use crate::support::*;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::watcher,
};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn owned(name: &str, owner: &Value) -> Value {
    let mut object = config_map(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": true,
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }]);
    object
}

fn labelled(name: &str, tier: &str) -> Value {
    let mut object = config_map(name);
    object["metadata"]["labels"] = json!({"tier": tier});
    object
}

#[tokio::test]
async fn watch_sends_current_objects_and_changes() {
    let api = start().await;
    api.create(MAPS, labelled("a", "x")).await;
    let mut all = api
        .watch(&format!("{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"))
        .await;
    let mut some = api
        .watch(&format!("{MAPS}?watch=1&labelSelector=tier%3Dx"))
        .await;
    assert_eq!(all.next_brief().await, "ADDED a");
    let mark = all.next().await;
    assert_eq!(mark["type"], "BOOKMARK");
    assert_eq!(
        mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(some.next_brief().await, "ADDED a");
    let at = format!("{MAPS}/a");
    let merge = "application/merge-patch+json";
    api.patch(&at, merge, json!({"metadata": {"labels": {"tier": "y"}}}))
        .await;
    assert_eq!(all.next_brief().await, "MODIFIED a");
    assert_eq!(some.next_brief().await, "DELETED a");
    api.patch(&at, merge, json!({"metadata": {"labels": {"tier": "x"}}}))
        .await;
    assert_eq!(all.next_brief().await, "MODIFIED a");
    assert_eq!(some.next_brief().await, "ADDED a");
    api.delete(&at).await;
    assert_eq!(all.next_brief().await, "DELETED a");
    assert_eq!(some.next_brief().await, "DELETED a");
}

#[tokio::test]
async fn watch_replays_from_a_version_and_times_out() {
    let api = start().await;
    let made = api.create(MAPS, config_map("a")).await;
    let version = made["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .to_owned();
    api.create(MAPS, config_map("b")).await;
    api.delete(&format!("{MAPS}/a")).await;
    let uri =
        format!("{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=1&allowWatchBookmarks=1");
    let mut events = api.watch(&uri).await;
    assert_eq!(events.next_brief().await, "ADDED b");
    assert_eq!(events.next_brief().await, "DELETED a");
    tokio::time::pause();
    assert_eq!(events.next().await["type"], "BOOKMARK");
    assert!(events.ended().await);
}

/// Also if the old state of the object is not in the log any more.
#[tokio::test]
async fn object_that_leaves_a_selection_is_deleted_for_its_watch() {
    let api = start().await;
    let mut old = config_map("old");
    old["metadata"]["labels"] = json!({"app": "a"});
    let made = api.create(MAPS, old).await;
    api.create(MAPS, config_map("other")).await;
    for round in 0..2100 {
        let change = json!({"data": {"a": round.to_string()}});
        api.patch(
            &format!("{MAPS}/other"),
            "application/merge-patch+json",
            change,
        )
        .await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(2)).await;
    tokio::time::resume();
    let version = &made["metadata"]["resourceVersion"];
    let too_old = format!(
        "{MAPS}?watch=1&resourceVersion={}",
        version.as_str().unwrap()
    );
    while api.watch(&too_old).await.next().await["type"] != "ERROR" {}
    let (_, list) = api.call(Method::GET, MAPS, Value::Null).await;
    let latest = list["metadata"]["resourceVersion"].as_str().unwrap();
    let change = json!({"metadata": {"labels": null}});
    api.patch(
        &format!("{MAPS}/old"),
        "application/merge-patch+json",
        change,
    )
    .await;
    let uri = format!("{MAPS}?watch=1&labelSelector=app%3Da&resourceVersion={latest}");
    assert_eq!(api.watch(&uri).await.next_brief().await, "DELETED old");
}

#[tokio::test]
async fn watch_may_ask_for_any_number_of_seconds() {
    let api = start().await;
    api.create(MAPS, config_map("a")).await;
    let uri = format!("{MAPS}?watch=1&timeoutSeconds={}", i64::MAX);
    let mut events = api.watch(&uri).await;
    assert_eq!(events.next_brief().await, "ADDED a");
}

#[tokio::test]
async fn watch_from_a_compacted_version_gets_410() {
    let api = start().await;
    let made = api.create(MAPS, config_map("a")).await;
    let version: u64 = made["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    for round in 0..2100 {
        let change = json!({"data": {"a": round.to_string()}});
        api.patch(&format!("{MAPS}/a"), "application/merge-patch+json", change)
            .await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(2)).await;
    loop {
        let mut events = api
            .watch(&format!("{MAPS}?watch=1&resourceVersion={version}"))
            .await;
        let event = events.next().await;
        if event["type"] == "ERROR" {
            assert_eq!(
                (&event["object"]["code"], &event["object"]["reason"]),
                (&json!(410), &json!("Expired"))
            );
            return;
        }
        tokio::time::advance(Duration::from_mins(1)).await;
    }
}

/// Such a revision is of another history, for example before a copy of the database was restored.
#[tokio::test]
async fn watch_from_a_future_version_gets_410() {
    let api = start().await;
    let made = api.create(MAPS, config_map("a")).await;
    let version: u64 = made["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let mut events = api
        .watch(&format!(
            "{MAPS}?watch=1&resourceVersion={}",
            version + 1000
        ))
        .await;
    let event = events.next().await;
    assert_eq!(event["type"], "ERROR");
    let status = &event["object"];
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(410), &json!("Expired")),
        "{status}"
    );
    assert!(events.ended().await);
}

#[tokio::test]
async fn dependents_are_deleted_with_their_owner() {
    let api = start().await;
    let owner = api.create(MAPS, config_map("owner")).await;
    let child = api.create(MAPS, owned("child", &owner)).await;
    api.create(MAPS, owned("grandchild", &child)).await;
    api.delete(&format!("{MAPS}/owner")).await;
    api.until_deleted(&format!("{MAPS}/child")).await;
    api.until_deleted(&format!("{MAPS}/grandchild")).await;
    // A dependent of an owner that never existed is deleted as well.
    api.create(MAPS, owned("late", &owner)).await;
    api.until_deleted(&format!("{MAPS}/late")).await;
}

#[tokio::test]
async fn foreground_owner_is_deleted_last_and_orphans_stay() {
    let api = start().await;
    let owner = api.create(MAPS, config_map("owner")).await;
    let mut held = owned("child", &owner);
    held["metadata"]["finalizers"] = json!(["x/y"]);
    api.create(MAPS, held).await;
    let at = format!("{MAPS}/owner");
    api.call(
        Method::DELETE,
        &at,
        json!({"propagationPolicy": "Foreground"}),
    )
    .await;
    let mut child = api
        .watch(&format!(
            "{MAPS}?watch=1&fieldSelector=metadata.name%3Dchild"
        ))
        .await;
    while child.next().await["object"]["metadata"]["deletionTimestamp"].is_null() {}
    assert_eq!(api.get(&at).await.0, StatusCode::OK);
    let free = json!({"metadata": {"finalizers": null}});
    api.patch(
        &format!("{MAPS}/child"),
        "application/merge-patch+json",
        free,
    )
    .await;
    api.until_deleted(&at).await;

    let owner = api.create(MAPS, config_map("owner")).await;
    api.create(MAPS, owned("child", &owner)).await;
    api.call(Method::DELETE, &at, json!({"propagationPolicy": "Orphan"}))
        .await;
    api.until_deleted(&at).await;
    let (code, child) = api.get(&format!("{MAPS}/child")).await;
    assert_eq!(
        (code, &child["metadata"]["ownerReferences"]),
        (StatusCode::OK, &Value::Null)
    );
}

#[tokio::test]
async fn namespace_is_deleted_with_its_contents() {
    let api = start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    api.create("/api/v1/namespaces", namespace).await;
    let mut held = config_map("a");
    held["metadata"]["finalizers"] = json!(["x/y"]);
    let maps = "/api/v1/namespaces/n/configmaps";
    api.create(maps, held).await;
    let (_, terminating) = api.delete("/api/v1/namespaces/n").await;
    assert_eq!(terminating["status"]["phase"], "Terminating");
    let (code, refused) = api.call(Method::POST, maps, config_map("b")).await;
    assert_eq!(code, StatusCode::FORBIDDEN, "{refused}");
    let free = json!({"metadata": {"finalizers": null}});
    api.patch(&format!("{maps}/a"), "application/merge-patch+json", free)
        .await;
    api.until_deleted("/api/v1/namespaces/n").await;
}

#[tokio::test]
async fn events_expire_after_an_hour() {
    let api = start_with_moving_clock().await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
                       "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"}});
    api.create("/api/v1/namespaces/default/events", event).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_mins(65)).await;
    api.until_deleted("/api/v1/namespaces/default/events/e")
        .await;
}

#[tokio::test]
async fn kube_client_works() {
    let api = start().await;
    let maps: Api<ConfigMap> = Api::default_namespaced(api.client());
    let events = watcher(maps.clone(), watcher::Config::default().streaming_lists());
    let mut events = events.boxed();
    let fragment = config_map("a");
    let params = PatchParams::apply("test").force();
    maps.patch("a", &params, &Patch::Apply(&fragment))
        .await
        .unwrap();
    loop {
        match events.try_next().await.unwrap().unwrap() {
            watcher::Event::Apply(map) | watcher::Event::InitApply(map) => {
                assert_eq!(map.metadata.name.as_deref(), Some("a"));
                break;
            }
            _ => {}
        }
    }
    let mut found = maps.get("a").await.unwrap();
    found
        .data
        .get_or_insert_default()
        .insert("x".into(), "y".into());
    maps.replace("a", &PostParams::default(), &found)
        .await
        .unwrap();
    assert_eq!(
        maps.list(&ListParams::default()).await.unwrap().items.len(),
        1
    );
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt("a").await.unwrap().is_none());

    let pods: Api<Pod> = Api::default_namespaced(api.client());
    let wanted: Pod = serde_json::from_value(pod("p")).unwrap();
    let made = pods.create(&PostParams::default(), &wanted).await.unwrap();
    assert_eq!(made.status.unwrap().phase.as_deref(), Some("Pending"));
    let version = api.client().apiserver_version().await.unwrap();
    assert_eq!(version.minor, "33");
    let groups = kube::discovery::Discovery::new(api.client())
        .run_aggregated()
        .await
        .unwrap();
    assert!(groups.has_group("apiextensions.k8s.io"));
    let groups = kube::discovery::Discovery::new(api.client())
        .run()
        .await
        .unwrap();
    assert!(groups.has_group("coordination.k8s.io"));
}

#[tokio::test]
async fn stop_ends_watches_and_tasks() {
    let api = start().await;
    let mut events = api.watch(&format!("{MAPS}?watch=1")).await;
    api.stop.cancel();
    api.tasks.close();
    api.tasks.wait().await;
    assert!(events.ended().await);
}
