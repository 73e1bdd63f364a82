//! The arguments of `ssh` and `scp` that name a guest or a file.

use std::str::FromStr;

use crate::ports::ForwardTarget;

/// `[USER@]vm/NAME[/NAMESPACE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    pub user: Option<String>,
    pub guest: ForwardTarget,
}

impl FromStr for SshTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (user, guest) = match text.rsplit_once('@') {
            Some((user, guest)) => (Some(user), guest),
            None => (None, text),
        };
        // The SSH client would read it as an option.
        if let Some(user) = user
            && (user.is_empty() || user.starts_with('-'))
        {
            return Err(format!("user {user:?}: write USER@vm/NAME"));
        }
        Ok(Self {
            user: user.map(ToOwned::to_owned),
            guest: guest.parse()?,
        })
    }
}

/// An argument of `scp`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Local(String),
    Remote { target: SshTarget, path: String },
}

impl FromStr for Location {
    type Err = String;

    /// A location with a slash before its first colon is in a guest; `C:\file` and `a:b` are files.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((target, path)) if target.contains('/') => Ok(Self::Remote {
                target: target.parse()?,
                path: path.to_owned(),
            }),
            _ => Ok(Self::Local(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_parse() {
        let target: SshTarget = "me@vm/a/n".parse().unwrap();
        assert_eq!(target.user.as_deref(), Some("me"));
        assert_eq!(target.guest.namespace.as_deref(), Some("n"));
        assert_eq!("vmi/a".parse::<SshTarget>().unwrap().user, None);
        let target: SshTarget = "me@domain@vm/a".parse().unwrap();
        assert_eq!(target.user.as_deref(), Some("me@domain"));
        for wrong in ["a", "@vm/a", "-oProxyCommand=x@vm/a", "me@pod/a", "vm/"] {
            wrong.parse::<SshTarget>().unwrap_err();
        }
    }

    #[test]
    fn locations_parse() {
        for local in ["a", "./a", "C:\\a", "a:b", "vm/a"] {
            assert_eq!(local.parse(), Ok(Location::Local(local.to_owned())));
        }
        let Ok(Location::Remote { target, path }) = "me@vm/a:/b:c".parse() else {
            panic!("not remote");
        };
        assert_eq!((&*target.guest.name, &*path), ("a", "/b:c"));
        assert!("/tmp/x:y".parse::<Location>().is_err());
    }
}
