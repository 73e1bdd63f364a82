//! The input of the checks of a changed VMI.

use cluster_config::ClusterConfig;
use kubevirt_api::VirtualMachineInstance;
use validation::Violation;

use crate::checks::Requester;

/// Input of a check: the change of a VMI.
#[derive(Clone, Copy, Debug)]
pub struct Update<'a> {
    pub old: &'a VirtualMachineInstance,
    pub new: &'a VirtualMachineInstance,
    pub config: &'a ClusterConfig,
    pub caller: Caller<'a>,
}

/// The sender of the request.
#[derive(Clone, Copy, Debug)]
pub enum Caller<'a> {
    User,
    Component,
    /// virt-handler, with the node of its credentials.
    Handler(Identity<'a>),
}

/// How virt-handler proves which node it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity<'a> {
    /// By a certificate, which does not name a node.
    Certificate,
    /// By a service account token; `None` if the token is not bound to a node.
    Token(Option<&'a str>),
}

impl Caller<'_> {
    pub fn requester(self) -> Requester {
        match self {
            Self::User => Requester::User,
            Self::Component | Self::Handler(_) => Requester::Component,
        }
    }
}

pub type Check = fn(&Update<'_>) -> Vec<Violation>;

pub(super) fn is_by_user(update: &Update<'_>) -> bool {
    update.caller.requester() == Requester::User
}
