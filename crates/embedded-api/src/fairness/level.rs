//! Who shares a limit.

use crate::auth::Identity;

/// Accounts of these namespaces are components of the system.
const SYSTEM_NAMESPACES: [&str; 2] = ["kube-system", "kubevirt"];
/// Groups of administrators and nodes.
const SYSTEM_GROUPS: [&str; 2] = ["system:masters", "system:nodes"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Level {
    /// Without limits.
    System,
    /// One user, or all service accounts of a namespace: users create as many of them as they like.
    User(String),
}

impl Level {
    pub(crate) fn of(identity: &Identity) -> Self {
        let mut groups = identity.groups.iter();
        if groups.any(|group| SYSTEM_GROUPS.contains(&group.as_str())) {
            return Self::System;
        }
        match Identity::parse_service_account(&identity.user) {
            Some((namespace, _)) if SYSTEM_NAMESPACES.contains(&namespace) => Self::System,
            Some((namespace, _)) => Self::User(format!("system:serviceaccounts:{namespace}")),
            None => Self::User(identity.user.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_told_from_users() {
        let user = |name: &str| Level::User(name.to_owned());
        for (name, groups, expected) in [
            ("ann", &[][..], user("ann")),
            ("ann", &["team"], user("ann")),
            ("root", &["system:masters"], Level::System),
            ("system:node:n", &["system:nodes"], Level::System),
            (
                "system:serviceaccount:kubevirt:kubevirt-handler",
                &[],
                Level::System,
            ),
            (
                "system:serviceaccount:a:x",
                &[],
                user("system:serviceaccounts:a"),
            ),
            (
                "system:serviceaccount:a:y",
                &[],
                user("system:serviceaccounts:a"),
            ),
        ] {
            assert_eq!(Level::of(&Identity::new(name, groups)), expected, "{name}");
        }
    }
}
