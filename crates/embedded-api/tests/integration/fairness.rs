//! Fairness: users who ask too much delay themselves, not others.

use axum::body::Body;
use embedded_api::Identity;
use futures::{FutureExt as _, StreamExt as _, future::join_all};
use http::{Request, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::support::*;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const EVENTS: &str = "/api/v1/namespaces/default/events";

/// Users who may do everything, by a role instead of a group.
pub(crate) async fn permit(api: &Running, users: &[&str]) {
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let subjects: Vec<Value> = users
        .iter()
        .map(|name| json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}))
        .collect();
    let binding = json!({
        "metadata": {"name": "all"}, "subjects": subjects,
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"},
    });
    api.create(bindings, binding).await;
}

/// The response to a GET, unread.
async fn get(api: &Running, user: &str, uri: &str) -> Response<Body> {
    let mut request = Request::get(uri).body(Body::empty()).expect(uri);
    request.extensions_mut().insert(Identity::new(user, &[]));
    api.request_as_it_is(request).await
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_user_queue_and_are_then_refused() {
    let api = start().await;
    permit(&api, &["ann", "bob"]).await;
    // A response that is not read keeps its seat.
    let held: Vec<_> = join_all((0..8).map(|_| get(&api, "ann", PODS))).await;
    let mut waiting: Vec<_> = (0..64).map(|_| Box::pin(get(&api, "ann", PODS))).collect();
    for one in &mut waiting {
        assert!(one.now_or_never().is_none());
    }
    let refused = get(&api, "ann", PODS).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(refused.headers()[header::RETRY_AFTER], "1");
    // Others, administrators and monitoring are served.
    assert_eq!(get(&api, "bob", PODS).await.status(), StatusCode::OK);
    assert_eq!(api.get(PODS).await.0, StatusCode::OK);
    assert_eq!(get(&api, "ann", "/livez").await.status(), StatusCode::OK);
    drop(held);
    for one in waiting {
        assert_eq!(one.await.status(), StatusCode::OK);
    }
}

/// The response to a GET in this encoding, unread.
async fn get_as(api: &Running, user: &str, media: &str, uri: &str) -> Response<Body> {
    let request = Request::get(uri).header(header::ACCEPT, media);
    let mut request = request.body(Body::empty()).expect(uri);
    request.extensions_mut().insert(Identity::new(user, &[]));
    api.request_as_it_is(request).await
}

#[tokio::test(start_paused = true)]
async fn seat_is_held_until_the_last_part_was_read_in_every_encoding() {
    let api = start().await;
    permit(&api, &["ann"]).await;
    let large = json!({"metadata": {"name": "large"}, "data": {"a": "x".repeat(300 << 10)}});
    api.create(MAPS, large).await;
    for media in [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
    ] {
        let mut held = Vec::new();
        for _ in 0..8 {
            let response = get_as(&api, "ann", media, MAPS).await;
            assert_eq!(response.headers()[header::CONTENT_TYPE], media);
            let mut parts = response.into_body().into_data_stream();
            let first = parts.next().await.expect(media).expect(media);
            assert!(first.len() <= 64 << 10, "{media}: {}", first.len());
            held.push(parts);
        }
        let mut waiting = Box::pin(get(&api, "ann", PODS));
        assert!((&mut waiting).now_or_never().is_none(), "{media}");
        while let Some(part) = held[7].next().await {
            part.expect(media);
        }
        held.pop();
        assert_eq!(waiting.await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn watches_of_a_user_are_counted_apart_and_limited() {
    let api = start().await;
    permit(&api, &["ann", "bob"]).await;
    let watch = format!("{PODS}?watch=1");
    let mut held = Vec::new();
    for _ in 0..256 {
        held.push(get(&api, "ann", &watch).await);
    }
    assert!(held.iter().all(|one| one.status() == StatusCode::OK));
    let refused = get(&api, "ann", &watch).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(get(&api, "ann", PODS).await.status(), StatusCode::OK);
    assert_eq!(get(&api, "bob", &watch).await.status(), StatusCode::OK);
    held.pop();
    assert_eq!(get(&api, "ann", &watch).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn flood_of_events_is_refused() {
    let api = start().await;
    permit(&api, &["ann", "bob"]).await;
    let event = |number: usize| {
        json!({"metadata": {"name": format!("e{number}"), "namespace": "default"},
               "involvedObject": {"namespace": "default"}, "reason": "Test", "message": "m"})
    };
    let ann = Identity::new("ann", &[]);
    let (mut made, mut refused) = (0, 0);
    for number in 0..1200 {
        let (code, answer) = api
            .as_user(&ann, http::Method::POST, EVENTS, event(number))
            .await;
        match code {
            StatusCode::CREATED => made += 1,
            StatusCode::TOO_MANY_REQUESTS => refused += 1,
            _ => panic!("{answer}"),
        }
    }
    assert!((1000..1100).contains(&made), "{made} of 1200");
    assert!(refused > 0);
    let bob = Identity::new("bob", &[]);
    let (code, _) = api
        .as_user(&bob, http::Method::POST, EVENTS, event(5000))
        .await;
    assert_eq!(code, StatusCode::CREATED);
}

#[tokio::test]
async fn slow_watches_of_large_objects_do_not_hold_up_others() {
    const WATCHES: usize = 200;
    const CHANGES: usize = 40;
    let api = start().await;
    permit(&api, &["ann", "bob"]).await;
    let list = api.get(MAPS).await.1;
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let uri = format!("{MAPS}?watch=1&resourceVersion={from}");
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let mut events = get(&api, "ann", &uri).await.into_body().into_data_stream();
        // Each is at the live end.
        assert!(events.next().now_or_never().is_none());
        watches.push(events);
    }
    api.create(MAPS, json!({"metadata": {"name": "large"}}))
        .await;
    for number in 0..CHANGES {
        let data = format!("{number:03}").repeat(330 << 10);
        let change = json!({"data": {"a": data}});
        let uri = format!("{MAPS}/large");
        let (code, answer) = api
            .patch(&uri, "application/merge-patch+json", change)
            .await;
        assert_eq!(code, StatusCode::OK, "{}", answer["message"]);
    }
    // Each watch reads what it may, and its client then stops to read.
    for events in &mut watches {
        let _unread = events.next().now_or_never();
    }
    assert_eq!(get(&api, "bob", PODS).await.status(), StatusCode::OK);
}
