//! virt-api, with its webhooks registered.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster_config::ClusterConfig;
use jiff::{SignedDuration, Timestamp};
use reconcile::Clock;
use serde_json::json;
use serving::{Authority, ClientCertificates, HttpsClient, Leaf, Target, TlsSource, Validity};
use test_cluster::TestApi;
use tokio::net::TcpListener;
use virt_api::{Configuration, FrontProxy, MUTATE, Settings, VALIDATE, Webhook, WebhookCallers};

use super::console::CONTROLLER;

/// How to send requests to virt-api as the API server does.
#[derive(Clone)]
pub(super) struct Webhooks {
    pub(super) front_proxy: HttpsClient,
    pub(super) target: Target,
}

impl Webhooks {
    pub(super) async fn serve(api: &TestApi) -> Self {
        let validity = Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let authority = Authority::create("test", validity).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let leaf = authority
            .issue(&Leaf::server("localhost", validity))
            .unwrap();
        let proxy = authority
            .issue(&Leaf::user("front-proxy", &[], validity))
            .unwrap();
        let client =
            |identity| HttpsClient::new(&authority.trust(), identity, api.tasks.clone()).unwrap();
        let trust = ClientCertificates::Optional(authority.trust());
        let config = ClusterConfig {
            component_users: vec![format!("*{CONTROLLER}"), CONTROLLER.to_owned()],
            ..ClusterConfig::default()
        };
        let settings = Settings {
            client: api.client.clone(),
            listener,
            tls: TlsSource::fixed(&leaf, &trust).unwrap(),
            front_proxy: FrontProxy {
                names: vec!["front-proxy".to_owned()],
            },
            webhook_callers: WebhookCallers::FrontProxy,
            nodes: client(None),
            cluster: Configuration::with_initial(config, "kubevirt"),
            neighbours: Vec::new(),
            clock: Clock::system(),
            uploads: None,
            metrics: Vec::new(),
        };
        api.tasks.spawn(virt_api::run(settings, api.stop.clone()));
        let bundle = STANDARD.encode(authority.trust().pem());
        for (kind, list) in [
            ("MutatingWebhookConfiguration", MUTATE),
            ("ValidatingWebhookConfiguration", VALIDATE),
        ] {
            let one = |webhook: &Webhook| {
                json!({
                    "name": webhook.name,
                    "clientConfig": {
                        "url": format!("https://localhost:{}{}", address.port(), webhook.path),
                        "caBundle": bundle,
                    },
                    "rules": [{
                        "apiGroups": [webhook.group], "apiVersions": webhook.versions,
                        "operations": webhook.operations, "resources": webhook.resources,
                    }],
                    "sideEffects": if webhook.side_effects { "NoneOnDryRun" } else { "None" },
                    "admissionReviewVersions": ["v1"],
                })
            };
            let configuration = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": "virt-api"},
                "webhooks": list.iter().map(one).collect::<Vec<_>>(),
            });
            api.create(configuration).await.unwrap();
        }
        Self {
            front_proxy: client(Some(&proxy)),
            target: Target::at(address, "localhost"),
        }
    }
}
