//! `virtctl why` about situations that are made for real: every component is the one that users have, and
//! only the fault is made.
//!
//! `../../causes.tsv` names the test of each cause; `list` checks that it is complete. The causes of a
//! single host are made on one host, in groups that run side by side:
//! - `objects`: claims and other objects that are missing or unusable;
//! - `images`: images and registries;
//! - `refusals`: requests that the API server rejects;
//! - `scheduling`: pods that get no node;
//! - `pods`: pods that a webhook breaks (`faults`);
//! - `starts`: guests that cannot start;
//! - `guests`: guests that run, are paused, stop or end.

mod faults;
mod guests;
mod images;
mod list;
mod objects;
mod pods;
mod refusals;
mod scheduling;
mod starts;

use std::{cell::RefCell, ops::Deref, sync::Arc, time::Duration};

use e2e::{Answer, Host};

use self::faults::Webhook;
use crate::TestNamespace;

/// How long a situation may take to arise; one that never does is reported with all others.
const PATIENCE: Duration = Duration::from_mins(3);

/// The namespace of all situations, and the answers that differ.
struct Situations<'a> {
    test: &'a TestNamespace,
    failures: RefCell<Vec<String>>,
}

impl Situations<'_> {
    async fn check(&self, name: &str, expected: Answer<'_>) {
        let answered = self.why_answers_within(PATIENCE, name, expected).await;
        self.record(answered);
    }

    fn record(&self, answered: Result<(), String>) {
        if let Err(difference) = answered {
            println!("{difference}");
            self.failures.borrow_mut().push(difference);
        }
    }
}

impl Deref for Situations<'_> {
    type Target = TestNamespace;

    fn deref(&self) -> &TestNamespace {
        self.test
    }
}

#[tokio::test]
async fn causes_of_a_single_host_are_explained() {
    let test = TestNamespace::on(Arc::new(Host::up().await)).await;
    let webhook = Webhook::register(&test).await;
    let situations = Situations {
        test: &test,
        failures: RefCell::default(),
    };
    let all = &situations;
    tokio::join!(
        Box::pin(guests::hang_while_they_stop(all)),
        Box::pin(guests::run_and_end(all)),
        Box::pin(async {
            objects::are_missing(all).await;
            images::cannot_be_pulled(all).await;
            refusals::by_the_api_server(all).await;
            scheduling::finds_no_node(all).await;
        }),
        Box::pin(async {
            starts::are_refused(all).await;
            pods::are_broken(all).await;
        }),
    );
    // These change the node or the cluster's settings, so no other situation may be there.
    scheduling::node_is_cordoned(all).await;
    starts::disk_is_not_copied(all).await;
    webhook.end().await;
    let failures = situations.failures.into_inner();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
