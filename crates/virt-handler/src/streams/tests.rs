use std::{io, sync::Arc, time::Duration};

use axum::{
    extract::{Path, Query, State},
    http::StatusCode,
};
use reconcile::{Key, Reconciler as _};
use tokio::sync::watch;

use super::{
    response::device_error,
    router::StreamsState,
    verbs::{FreezeOptions, freeze},
};
use crate::guest::fixture::Fixture;

#[test]
fn missing_device_of_a_starting_or_ending_guest_is_a_bad_request() {
    for (kind, code) in [
        (io::ErrorKind::NotFound, StatusCode::BAD_REQUEST),
        (io::ErrorKind::ConnectionRefused, StatusCode::BAD_REQUEST),
        (
            io::ErrorKind::InvalidData,
            StatusCode::INTERNAL_SERVER_ERROR,
        ),
    ] {
        let response = device_error("console", &kind.into());
        assert_eq!(response.status(), code, "{kind}");
    }
}

#[tokio::test]
async fn failed_freeze_is_published_on_the_vmi() {
    let fixture = Fixture::new().await;
    let vmi = fixture.create_guest().await;
    let guests = fixture.guests().await;
    let key = Key::new("default", "a");
    guests.reconcile(&key).await.unwrap();

    let path = || Path(("default".to_owned(), "a".to_owned()));
    let options = FreezeOptions {
        thaw_after_seconds: None,
    };
    let state = StreamsState::new(Arc::new(guests), watch::Sender::new(None).subscribe());
    let response = freeze(State(state), path(), Query(options)).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);

    let event = tokio::time::timeout(Duration::from_mins(1), fixture.next_event());
    let event = event.await.unwrap();
    assert_eq!(event.reason.as_deref(), Some("FreezeError"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(event.involved_object.uid, vmi.metadata.uid);
    let message = event.message.unwrap();
    assert!(message.contains("not connected"), "{message}");
    fixture.stop().await;
}
