//! Uploads of disks: the request for a token (`upload.cdi.kubevirt.io`), and where the pod of an upload
//! receives its file.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::tolerant::null_as_default;

pub const GROUP: &str = "upload.cdi.kubevirt.io";
pub const VERSION: &str = "v1beta1";
pub const KIND: &str = "UploadTokenRequest";
pub const PLURAL: &str = "uploadtokenrequests";

/// The name of the pod that receives the upload for a claim: this, and the UID of the claim.
pub const POD_PREFIX: &str = "upload-";
/// The `emptyDir` of that pod with the socket.
pub const POD_VOLUME: &str = "upload";
/// The socket in the volume, on which the pod serves HTTP.
pub const POD_SOCKET: &str = "socket";

/// A request for a token that permits to send a disk for one claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UploadTokenRequest {
    pub api_version: String,
    pub kind: String,
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: ObjectMeta,
    #[serde(deserialize_with = "null_as_default")]
    pub spec: UploadTokenRequestSpec,
    #[serde(deserialize_with = "null_as_default")]
    pub status: UploadTokenRequestStatus,
}

/// The claim to upload into.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UploadTokenRequestSpec {
    /// Its name; it is in the namespace of the request.
    #[serde(deserialize_with = "null_as_default")]
    pub pvc_name: String,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UploadTokenRequestStatus {
    /// For the upload proxy; valid for a few minutes.
    #[serde(
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub token: String,
}
