//! The messages on the wire, and the names of services and hooks. The numbers are `KubeVirt`'s.

use prost::Message;

pub(super) const INFO: &str = "/kubevirt.hooks.info.Info/Info";

/// The hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    OnDefineDomain,
    PreCloudInitIso,
    Shutdown,
}

impl Point {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OnDefineDomain => "OnDefineDomain",
            Self::PreCloudInitIso => "PreCloudInitIso",
            Self::Shutdown => "Shutdown",
        }
    }

    /// The first version that has it.
    fn since(self) -> Version {
        match self {
            Self::OnDefineDomain => Version::V1Alpha1,
            Self::PreCloudInitIso => Version::V1Alpha2,
            Self::Shutdown => Version::V1Alpha3,
        }
    }
}

/// The versions of the callbacks, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    V1Alpha1,
    V1Alpha2,
    V1Alpha3,
}

impl Version {
    pub(super) const ALL: [Self; 3] = [Self::V1Alpha1, Self::V1Alpha2, Self::V1Alpha3];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1Alpha2 => "v1alpha2",
            Self::V1Alpha3 => "v1alpha3",
        }
    }

    pub(super) fn has(self, point: Point) -> bool {
        self >= point.since()
    }

    /// The method of a hook.
    pub(super) fn method(self, point: Point) -> String {
        format!("/kubevirt.hooks.{}.Callbacks/{}", self.name(), point.name())
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Info {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) hook_points: Vec<HookPoint>,
    #[prost(string, repeated, tag = "4")]
    pub(super) versions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HookPoint {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(int32, tag = "2")]
    pub(super) priority: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DefineDomain {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) domain_xml: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) vmi: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DefinedDomain {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) domain_xml: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CloudInit {
    /// What sidecars read before there was the third field.
    #[prost(bytes = "vec", tag = "1")]
    pub(super) no_cloud_source: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) vmi: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) data: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ChangedCloudInit {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) no_cloud_source: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) data: Vec<u8>,
}
