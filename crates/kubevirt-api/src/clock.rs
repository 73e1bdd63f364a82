//! The guest's clock and its timers.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

/// `Clock`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-preserve-unknown-fields" = true)))]
pub struct Clock {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc: Option<ClockOffsetUtc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<Timer>,
}

/// `ClockOffsetUTC`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClockOffsetUtc {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_seconds: Option<i64>,
}

/// `Timer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Timer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpet: Option<HpetTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm: Option<KvmTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pit: Option<PitTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtc: Option<RtcTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperv: Option<HypervTimer>,
}

/// `HPETTimer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HpetTimer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<HpetTickPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// `KVMTimer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KvmTimer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// `PITTimer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PitTimer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<PitTickPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// `RTCTimer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RtcTimer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<RtcTickPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track: Option<RtcTimerTrack>,
}

/// `HypervTimer`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HypervTimer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

open_enum! {
    /// Values of `HPETTickPolicy`.
    HpetTickPolicy {
        Delay = "delay",
        Catchup = "catchup",
        Merge = "merge",
        Discard = "discard",
    }
}

open_enum! {
    /// Values of `PITTickPolicy`.
    PitTickPolicy {
        Delay = "delay",
        Catchup = "catchup",
        Discard = "discard",
    }
}

open_enum! {
    /// Values of `RTCTickPolicy`.
    RtcTickPolicy {
        Delay = "delay",
        Catchup = "catchup",
    }
}

open_enum! {
    /// Values of `RTCTimerTrack`.
    RtcTimerTrack {
        Guest = "guest",
        Wall = "wall",
    }
}
