//! Lifecycle hooks of containers: run after the start and before the end.
//!
//! - [`run`] executes a hook.
//! - [`StartHook`] tracks the start hook of the current run of a container: pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler};

use crate::probes::{self, Target};

/// Returns why the hook failed. A response of any status to an HTTP request is a success.
pub(crate) async fn run(target: &Target, hook: &LifecycleHandler) -> Result<(), String> {
    if let Some(action) = &hook.exec {
        let args = action.command.clone().unwrap_or_default();
        return probes::command(target, args).await;
    }
    if let Some(action) = &hook.http_get {
        return probes::get(target, action).await.map(drop);
    }
    if let Some(action) = &hook.sleep {
        let seconds = u64::try_from(action.seconds).unwrap_or(0);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        return Ok(());
    }
    if hook.tcp_socket.is_some() {
        return Err(
            "a lifecycle hook cannot be a tcpSocket: use exec, httpGet or sleep".to_owned(),
        );
    }
    Err("the lifecycle hook has no action".to_owned())
}

/// The hook to run before the container ends.
pub(crate) fn before_stop(container: &Container) -> Option<&LifecycleHandler> {
    container.lifecycle.as_ref()?.pre_stop.as_ref()
}

/// Runs of a container that its start hook belongs to.
#[derive(Debug)]
pub(crate) struct StartHook {
    handler: Option<LifecycleHandler>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// Runs, or has failed, for that run of the container.
    Pending(u32),
    Done(u32),
}

impl StartHook {
    pub(crate) fn of(container: &Container) -> Self {
        let lifecycle = container.lifecycle.as_ref();
        Self {
            handler: lifecycle.and_then(|lifecycle| lifecycle.post_start.clone()),
            state: State::Idle,
        }
    }

    /// The container runs. Returns the hook to start now, if any. `reported` is whether the pod's status
    /// already shows this run: then an earlier node process has run the hook.
    pub(crate) fn begin(&mut self, attempt: u32, reported: Reported) -> Option<LifecycleHandler> {
        if matches!(self.state, State::Pending(one) | State::Done(one) if one == attempt) {
            return None;
        }
        if self.handler.is_none() || reported == Reported::Running {
            self.state = State::Done(attempt);
            return None;
        }
        self.state = State::Pending(attempt);
        self.handler.clone()
    }

    /// The hook has succeeded.
    pub(crate) fn succeed(&mut self, attempt: u32) {
        if self.state == State::Pending(attempt) {
            self.state = State::Done(attempt);
        }
    }

    /// Whether that run of the container waits for its hook.
    pub(crate) fn is_pending(&self, attempt: u32) -> bool {
        self.handler.is_some() && self.state != State::Done(attempt)
    }
}

/// The run of a container in the pod's status on the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reported {
    /// This run.
    Running,
    Otherwise,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::{io::AsyncWriteExt as _, net::TcpListener, time::Instant};

    use super::*;

    fn container(lifecycle: &Value) -> Container {
        serde_json::from_value(json!({"name": "c", "lifecycle": lifecycle})).unwrap()
    }

    fn hook(handler: &Value) -> StartHook {
        StartHook::of(&container(&json!({"postStart": handler})))
    }

    #[test]
    fn start_hook_runs_once_for_each_run() {
        let mut hook = hook(&json!({"sleep": {"seconds": 1}}));
        assert!(hook.is_pending(0));
        assert!(hook.begin(0, Reported::Otherwise).is_some());
        assert!(hook.begin(0, Reported::Otherwise).is_none());
        assert!(hook.is_pending(0));
        hook.succeed(0);
        assert!(!hook.is_pending(0));
        // A failed hook leaves its run pending until the container is ended.
        assert!(hook.begin(1, Reported::Otherwise).is_some());
        hook.succeed(0);
        assert!(hook.is_pending(1));
        assert!(hook.begin(2, Reported::Otherwise).is_some());
    }

    #[test]
    fn hook_of_an_earlier_node_process_is_not_repeated() {
        let mut hook = hook(&json!({"sleep": {"seconds": 1}}));
        assert!(hook.begin(3, Reported::Running).is_none());
        assert!(!hook.is_pending(3));
        let mut none = StartHook::of(&container(&json!({})));
        assert!(!none.is_pending(0));
        assert!(none.begin(0, Reported::Otherwise).is_none());
    }

    fn target() -> Target {
        Target {
            address: [127, 0, 0, 1].into(),
            container: container(&json!({})),
            pod_dir: "/nowhere".into(),
            supervisor: "/nowhere".into(),
        }
    }

    async fn run_hook(handler: Value) -> Result<(), String> {
        let handler = serde_json::from_value(handler).unwrap();
        run(&target(), &handler).await
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_takes_its_time() {
        let began = Instant::now();
        assert_eq!(run_hook(json!({"sleep": {"seconds": 5}})).await, Ok(()));
        assert_eq!(began.elapsed(), Duration::from_secs(5));
    }

    #[tokio::test]
    async fn every_http_response_is_a_success() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let response = b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(response).await.unwrap();
        };
        let get = json!({"httpGet": {"port": port}});
        let (got, ()) = tokio::join!(run_hook(get.clone()), serve);
        assert_eq!(got, Ok(()));
        drop(listener);
        assert!(run_hook(get).await.is_err());
        for refused in [json!({"tcpSocket": {"port": port}}), json!({})] {
            assert!(run_hook(refused).await.is_err());
        }
    }
}
