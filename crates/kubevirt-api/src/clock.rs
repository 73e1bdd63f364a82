//! The guest's clock and its timers.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum::open_enum;

/// The guest's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-preserve-unknown-fields" = true)))]
pub struct Clock {
    /// Clock in UTC, with an offset if wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc: Option<ClockOffsetUtc>,
    /// Clock in a time zone, such as Europe/Rome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    /// Timers by kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<Timer>,
}

/// What a clock shows; stands inside [`Clock`] with its members at the same level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClockOffset {
    /// Clock in UTC, with an offset if wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc: Option<ClockOffsetUtc>,
    /// Clock in a time zone, such as Europe/Rome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
}

/// `utc` of [`Clock`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ClockOffsetUtc {
    /// Seconds that the guest's clock differs from UTC at its start; 0 when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_seconds: Option<i64>,
}

/// `timer` of [`Clock`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Timer {
    /// High precision event timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpet: Option<HpetTimer>,
    /// Clock source of KVM, for Linux guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm: Option<KvmTimer>,
    /// Programmable interval timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pit: Option<PitTimer>,
    /// Real time clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtc: Option<RtcTimer>,
    /// Reference counter of Hyper-V, for Windows guests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperv: Option<HypervTimer>,
}

/// `hpet` of [`Timer`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HpetTimer {
    /// What happens to ticks that were missed: delay, catchup, merge or discard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<HpetTickPolicy>,
    /// False takes the timer away from the guest; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// `kvm` of [`Timer`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct KvmTimer {
    /// False takes the clock source away from the guest; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// `pit` of [`Timer`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct PitTimer {
    /// What happens to ticks that were missed: delay, catchup or discard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<PitTickPolicy>,
    /// False takes the timer away from the guest; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// `rtc` of [`Timer`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct RtcTimer {
    /// What happens to ticks that were missed: delay or catchup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<RtcTickPolicy>,
    /// False takes the clock away from the guest; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// Whether the clock follows the guest's time or the host's wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track: Option<RtcTimerTrack>,
}

/// `hyperv` of [`Timer`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct HypervTimer {
    /// False takes the counter away from the guest; true when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

open_enum! {
    /// Values of `tickPolicy`.
    HpetTickPolicy {
        Delay = "delay",
        Catchup = "catchup",
        Merge = "merge",
        Discard = "discard",
    }
}

open_enum! {
    /// Values of `tickPolicy`.
    PitTickPolicy {
        Delay = "delay",
        Catchup = "catchup",
        Discard = "discard",
    }
}

open_enum! {
    /// Values of `tickPolicy`.
    RtcTickPolicy {
        Delay = "delay",
        Catchup = "catchup",
    }
}

open_enum! {
    /// Values of `track`.
    RtcTimerTrack {
        Guest = "guest",
        Wall = "wall",
    }
}
