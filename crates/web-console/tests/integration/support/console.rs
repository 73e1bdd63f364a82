//! A running console of one user.

use std::{net::SocketAddr, sync::Arc};

use embedded_api::Identity;
use kube::{
    Client, Config,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use test_cluster::{NAMESPACE, TestApi};
use tokio::net::TcpListener;
use web_console::{Access, Console, Hosts, Sessions, TicketKey, router, serve};

use super::{
    upstream::{self, Log, Users},
    webhooks::Webhooks,
};

/// Its writes pass the webhooks as those of our controllers.
pub(super) const CONTROLLER: &str = "kubevirt-controller";

pub(crate) struct Environment {
    pub(crate) api: TestApi,
    pub(crate) address: SocketAddr,
    /// Of a second server with the same key, if users sign in with tokens.
    pub(crate) replica: SocketAddr,
    pub(crate) sessions: Arc<Sessions>,
    /// Those of a server that users sign in to with tokens.
    pub(crate) users: Users,
    /// The requests that reached the API server.
    pub(crate) log: Log,
}

impl Environment {
    /// A console with the rights of this user, as `virtctl ui` serves it.
    pub(crate) async fn start(user: Identity) -> Self {
        Self::start_for(Users::one(user)).await
    }

    /// A console for all users, as virt-api serves it.
    pub(crate) async fn start_for_tokens() -> Self {
        Self::start_for(Users::default()).await
    }

    async fn start_for(users: Users) -> Self {
        let api = TestApi::start(Identity::component(CONTROLLER)).await;
        let webhooks = Webhooks::serve(&api).await;
        let log = Log::default();
        let server = upstream::serve(&api, webhooks, users.clone(), log.clone()).await;
        let mut config = Config::new(format!("http://{server}").parse().unwrap());
        config.read_timeout = None;
        let client = Client::try_from(config).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let sessions = Arc::new(Sessions::default());
        let access = if users.are_many() {
            Access::Tokens { client }
        } else {
            Access::Links {
                client,
                sessions: Arc::clone(&sessions),
                namespace: NAMESPACE.to_owned(),
            }
        };
        let console = Console {
            access,
            now: test_cluster::start,
            tickets: users.are_many().then(|| TicketKey::of("secret")),
            tasks: api.tasks.clone(),
            stop: api.stop.clone(),
        };
        let mut replica = address;
        if users.are_many() {
            let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
            replica = other.local_addr().unwrap();
            for listener in [listener, other] {
                let (console, stop) = (console.clone(), api.stop.clone());
                api.tasks.spawn(async move {
                    let served = axum::serve(listener, router(console, Hosts::any()));
                    let served =
                        served.with_graceful_shutdown(async move { stop.cancelled().await });
                    served.await.unwrap();
                });
            }
        } else {
            api.tasks.spawn(async move {
                serve(listener, console).await.unwrap();
            });
        }
        Self {
            api,
            address,
            replica,
            sessions,
            users,
            log,
        }
    }

    /// A link that signs in one tab.
    pub(crate) fn link(&self) -> String {
        let link = self.sessions.issue_link().unwrap();
        format!("http://{}/console/#link={}", self.address, link.secret())
    }

    /// The page of a server that users sign in to with tokens.
    pub(crate) fn page(&self) -> String {
        format!("http://{}/console/", self.address)
    }

    /// Creates the definition of a secondary network.
    pub(crate) async fn create_network(&self, namespace: &str, name: &str, config: Value) {
        let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
        let resource = ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.api.client.clone(), namespace, &resource);
        let object = DynamicObject::new(name, &resource)
            .data(json!({"spec": {"config": config.to_string()}}));
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) async fn create(&self, object: Value) -> DynamicObject {
        self.api.create(object).await.unwrap()
    }

    /// Creates a VMI with its status, which the webhooks leave out of new ones.
    pub(crate) async fn create_guest(&self, vmi: Value) {
        self.create(vmi.clone()).await;
        self.merge(&vmi, json!({"status": vmi["status"]})).await;
    }

    /// The present form of an object; `None` if it does not exist.
    pub(crate) async fn object(&self, object: &Value) -> Option<DynamicObject> {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.objects(object).get_opt(name).await.unwrap()
    }

    /// Merges a patch into an object, as its controller would.
    pub(crate) async fn merge(&self, object: &Value, patch: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.objects(object)
            .patch(name, &params, &patch)
            .await
            .unwrap();
    }

    /// Merges a patch into the status of an object whose status is a subresource.
    pub(crate) async fn merge_status(&self, object: &Value, patch: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.objects(object)
            .patch_status(name, &params, &patch)
            .await
            .unwrap();
    }

    fn objects(&self, object: &Value) -> Api<DynamicObject> {
        self.api.api_for(object)
    }
}
