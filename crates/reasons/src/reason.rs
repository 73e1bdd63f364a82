//! The methods and conversions of a [`Reason`].

use std::{fmt, str::FromStr};

use crate::{Reason, Retry, Subject};

/// A string that is not the name of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReason;

impl Reason {
    /// Why a container that waits does not start, as kubelets report it, and the node of a single host of its
    /// pod's networks.
    pub const CONTAINER_WAITS: [Self; 16] = [
        Self::ErrImagePull,
        Self::ImagePullBackOff,
        Self::ErrImageNeverPull,
        Self::InvalidImageName,
        Self::ImageInspectError,
        Self::SignatureValidationFailed,
        Self::RegistryUnavailable,
        Self::CreateContainerConfigError,
        Self::CreateContainerError,
        Self::RunContainerError,
        Self::PostStartHookError,
        Self::CrashLoopBackOff,
        Self::NetworkDefinitionMissing,
        Self::NetworkDefinitionInvalid,
        Self::NetworkDefinitionNotSupported,
        Self::NetworkNotJoined,
    ];

    /// The name, as conditions and events show it.
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }

    pub const fn subject(self) -> Subject {
        self.row().subject
    }

    pub const fn retry(self) -> Retry {
        self.row().retry
    }

    /// What happened, in one sentence.
    pub const fn meaning(self) -> &'static str {
        self.row().meaning
    }

    /// What to do about it; empty if there is nothing to do.
    pub const fn remedy(self) -> &'static str {
        self.row().remedy
    }

    /// The message of a condition: what happened, then the remedy.
    pub fn advise(self, message: &str) -> String {
        match (self.remedy(), message) {
            ("", message) => message.to_owned(),
            (remedy, "") => remedy.to_owned(),
            (remedy, message) => format!("{}. {remedy}", message.trim_end_matches('.')),
        }
    }

    /// The message of a condition without the remedy that [`Self::advise`] added.
    pub fn without_advice(self, message: &str) -> &str {
        match self.remedy() {
            "" => message,
            remedy => message.strip_suffix(remedy).unwrap_or(message).trim_end(),
        }
    }

    /// Whether a VMI with this reason is over.
    pub fn is_permanent(self) -> bool {
        self.retry() == Retry::Permanent
    }
}

/// [`Reason::advise`] for the name of a reason; without a change if it is unknown.
pub fn advise(reason: &str, message: &str) -> String {
    let known = reason.parse::<Reason>();
    known.map_or_else(|_| message.to_owned(), |known| known.advise(message))
}

/// [`Reason::without_advice`] for the name of a reason.
pub fn without_advice<'a>(reason: &str, message: &'a str) -> &'a str {
    let known = reason.parse::<Reason>();
    known.map_or(message, |known| known.without_advice(message))
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(name: &str) -> Result<Self, UnknownReason> {
        let found = Self::ALL.iter().find(|reason| reason.as_str() == name);
        found.copied().ok_or(UnknownReason)
    }
}

impl From<Reason> for &str {
    fn from(reason: Reason) -> Self {
        reason.as_str()
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.as_str().to_owned()
    }
}

impl PartialEq<str> for Reason {
    fn eq(&self, name: &str) -> bool {
        self.as_str() == name
    }
}

impl PartialEq<&str> for Reason {
    fn eq(&self, name: &&str) -> bool {
        self.as_str() == *name
    }
}

impl PartialEq<Reason> for str {
    fn eq(&self, reason: &Reason) -> bool {
        self == reason.as_str()
    }
}

impl PartialEq<Reason> for &str {
    fn eq(&self, reason: &Reason) -> bool {
        *self == reason.as_str()
    }
}

impl fmt::Display for UnknownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the name of a reason")
    }
}

impl std::error::Error for UnknownReason {}
