//! Flags of all commands: how to reach the cluster.

use std::path::{Path, PathBuf};

use clap::Args;
use secrecy::{ExposeSecret, SecretString};

use crate::requests::{self, RequestTimeout};

/// How to reach the cluster; the same flags as kubectl's.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub struct Connection {
    /// Path to the kubeconfig file; without it the files that `KUBECONFIG` lists
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig to use
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// Cluster of the kubeconfig to use
    #[arg(long, global = true)]
    pub cluster: Option<String>,
    /// User of the kubeconfig to use
    #[arg(long, global = true)]
    pub user: Option<String>,
    /// Namespace of the virtual machine
    #[arg(long, short, global = true)]
    pub namespace: Option<String>,
    /// Address of the API server
    #[arg(long, short, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// Proxy for all requests: http://, https:// or socks5:// and HOST:PORT [default: that of the
    /// kubeconfig or of `HTTPS_PROXY`]
    #[arg(long, global = true, value_name = "URL")]
    pub proxy_url: Option<String>,
    /// File with the certificate of the server's authority
    #[arg(long, global = true, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// File with the client certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub client_certificate: Option<PathBuf>,
    /// File with the key of the client certificate
    #[arg(long, global = true, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// Bearer token
    #[arg(long, global = true)]
    pub token: Option<String>,
    /// User of basic authentication
    #[arg(long, global = true, value_name = "NAME")]
    pub username: Option<String>,
    /// Password of basic authentication
    #[arg(long, global = true)]
    pub password: Option<SecretString>,
    /// Name to expect in the server's certificate
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Do not check the server's certificate
    #[arg(long, global = true)]
    pub insecure_skip_tls_verify: bool,
    /// Limit for the server to answer a request, such as 30 or 1m30s; 0 for none. Streams that are open
    /// have no limit
    #[arg(long, global = true, value_name = "TIME", default_value = "0",
          value_parser = requests::parse_limit)]
    pub request_timeout: RequestTimeout,
    /// Level of messages about the work of the command; from 6 on each request is printed
    #[arg(
        long = "v",
        short = 'v',
        global = true,
        value_name = "LEVEL",
        default_value_t = 2
    )]
    pub verbosity: u8,
    /// User to act as
    #[arg(long = "as", global = true, value_name = "USER")]
    pub impersonate: Option<String>,
    /// Group to act as; may be repeated
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub impersonate_groups: Vec<String>,
    /// Uid to act as
    #[arg(
        long = "as-uid",
        global = true,
        value_name = "UID",
        requires = "impersonate"
    )]
    pub impersonate_uid: Option<String>,
    /// Has no effect: responses are never compressed
    #[arg(long, global = true, hide = true)]
    pub disable_compression: bool,
}

impl Connection {
    /// The flags that were given, for a further run of this program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let file =
            |file: &Option<PathBuf>| file.as_deref().map(Path::display).map(|it| it.to_string());
        let values = [
            ("--kubeconfig", file(&self.kubeconfig)),
            ("--context", self.context.clone()),
            ("--cluster", self.cluster.clone()),
            ("--user", self.user.clone()),
            ("--server", self.server.clone()),
            ("--proxy-url", self.proxy_url.clone()),
            ("--certificate-authority", file(&self.certificate_authority)),
            ("--client-certificate", file(&self.client_certificate)),
            ("--client-key", file(&self.client_key)),
            ("--token", self.token.clone()),
            ("--username", self.username.clone()),
            (
                "--password",
                self.password
                    .as_ref()
                    .map(|it| it.expose_secret().to_owned()),
            ),
            ("--tls-server-name", self.tls_server_name.clone()),
            ("--as", self.impersonate.clone()),
            ("--as-uid", self.impersonate_uid.clone()),
        ];
        let groups = self.impersonate_groups.iter();
        let groups = groups.map(|group| ("--as-group", Some(group.clone())));
        let given = values.into_iter().chain(groups);
        let given = given.filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
        let mut arguments: Vec<_> = given.flatten().collect();
        if self.insecure_skip_tls_verify {
            arguments.push("--insecure-skip-tls-verify".to_owned());
        }
        arguments
    }
}
