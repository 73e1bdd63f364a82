//! `spec.configuration` of the `KubeVirt` object: settings for the whole cluster.

mod architecture;
mod components;
mod configuration;
mod developer;
mod guests;
mod host_devices;
mod migrations;
mod network;
mod security;
mod templates;

pub use architecture::{ArchConfiguration, ArchSpecificConfiguration, SmBiosConfiguration};
pub use components::{
    RateLimiter, ReloadableComponentConfiguration, ResourceRequirementsWithoutClaims,
    RestClientConfiguration, SupportContainerResources, SupportContainerType, TlsConfiguration,
    TlsProtocolVersion, TokenBucketRateLimiter,
};
pub use configuration::{KubeVirtConfiguration, RoleAggregationStrategy, VmRolloutStrategy};
pub use developer::{DeveloperConfiguration, DiskVerification, LogVerbosity};
pub use guests::{
    ChangedBlockTrackingSelectors, DisableFreePageReporting, DisableSerialConsoleLog,
    HypervisorConfiguration, KsmConfiguration, LiveUpdateConfiguration,
    PersistentReservationConfiguration, VirtualMachineOptions,
};
pub use host_devices::{
    MediatedDevicesConfiguration, MediatedHostDevice, NodeMediatedDeviceTypesConfig, PciHostDevice,
    PermittedHostDevices, UsbHostDevice, UsbSelector,
};
pub use migrations::MigrationConfiguration;
pub use network::{
    DEFAULT_INTERFACES, DomainAttachmentType, InterfaceBindingMigration, InterfaceBindingPlugin,
    MigrationMethod, NetworkBindingDownwardApiType, NetworkConfiguration,
};
pub use security::{
    ConfidentialComputeConfiguration, CustomProfile, SeccompConfiguration,
    TdxAttestationConfiguration, TdxConfiguration, VirtualMachineInstanceProfile,
};
pub use templates::{
    CommonInstancetypesDeployment, InstancetypeConfiguration, InstancetypeReferencePolicy,
    VirtTemplateDeployment,
};
