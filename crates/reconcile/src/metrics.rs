//! The metrics of this crate.

metrics::table! {
    pub METRICS of "reconcile":
    gauge QUEUE_DEPTH["controller"] "ferrovirt_reconcile_queue_depth"
        "Objects that wait for a reconcile, now or at a later time.";
    gauge QUEUE_LONGEST_WAIT["controller"] "ferrovirt_reconcile_queue_longest_wait_seconds"
        "How long the first object of the queue had been waiting for a free worker when the queue last changed.";
    histogram QUEUE_WAIT_SECONDS["controller"] "ferrovirt_reconcile_queue_wait_duration_seconds"
        "How long objects waited for a free worker.";
    gauge RUNNING["controller"] "ferrovirt_reconcile_running"
        "Reconciles that run now.";
    counter RECONCILES["controller", "result"] "ferrovirt_reconcile_reconciles_total"
        "Finished reconciles by result: done, requeued, failed (to be repeated), rejected (not to be repeated) or panicked.";
    counter FAILURES["controller", "reason"] "ferrovirt_reconcile_failures_total"
        "Failed reconciles by reason.";
    histogram RECONCILE_SECONDS["controller"] "ferrovirt_reconcile_reconcile_duration_seconds"
        "Duration of a reconcile.";
    gauge BACKOFFS["controller"] "ferrovirt_reconcile_backoffs_pending"
        "Objects whose last reconcile failed and will be repeated.";
    counter WATCH_RESTARTS["kind"] "ferrovirt_reconcile_watch_restarts_total"
        "Watches that failed and were started again.";
    gauge STORE_OBJECTS["kind"] "ferrovirt_reconcile_store_objects"
        "Objects in the stores of all watches.";
    counter EVENTS["component", "result"] "ferrovirt_reconcile_events_total"
        "Events about objects by result: written, failed, or dropped because the queue was full.";
    counter WRITE_ERRORS["reason"] "ferrovirt_reconcile_write_errors_total"
        "Writes that the API server refused or did not answer, by reason.";
    counter REJECTED_WRITES["kind"] "ferrovirt_reconcile_rejected_writes_total"
        "Statuses and node labels that the API server rejected, by kind of object; a warning event is on the object.";
}
