//! Whatever would change a device, its instances or its limits: refused, whatever asks and as what. The
//! kernel would refuse most of it too; here the answer does not depend on what a container was given.
//! Binding the calling thread to the processors near a device changes no device and is left alone.

use crate::{Code, NO_PERMISSION};

macro_rules! refuse {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> Code {
            NO_PERMISSION
        }
    };
}

refuse!(nvmlComputeInstanceDestroy);
refuse!(nvmlDeviceClearAccountingPids);
refuse!(nvmlDeviceClearEccErrorCounts);
refuse!(nvmlDeviceClearFieldValues);
refuse!(nvmlDeviceCreateGpuInstance);
refuse!(nvmlDeviceCreateGpuInstanceWithPlacement);
refuse!(nvmlDeviceDiscoverGpus);
refuse!(nvmlDeviceFreezeNvLinkUtilizationCounter);
refuse!(nvmlDeviceLockNvlinkRemapTable_v1);
refuse!(nvmlDeviceModifyDrainState);
refuse!(nvmlDevicePowerSmoothingActivatePresetProfile);
refuse!(nvmlDevicePowerSmoothingSetState);
refuse!(nvmlDevicePowerSmoothingUpdatePresetProfileParam);
refuse!(nvmlDeviceReadWritePRM_v1);
refuse!(nvmlDeviceRemoveGpu);
refuse!(nvmlDeviceRemoveGpu_v2);
refuse!(nvmlDeviceResetApplicationsClocks);
refuse!(nvmlDeviceResetGpuLockedClocks);
refuse!(nvmlDeviceResetMemoryLockedClocks);
refuse!(nvmlDeviceResetNvLinkErrorCounters);
refuse!(nvmlDeviceResetNvLinkUtilizationCounter);
refuse!(nvmlDeviceSetAPIRestriction);
refuse!(nvmlDeviceSetAccountingMode);
refuse!(nvmlDeviceSetAdaptiveTgpMode_v1);
refuse!(nvmlDeviceSetApplicationsClocks);
refuse!(nvmlDeviceSetAutoBoostedClocksEnabled);
refuse!(nvmlDeviceSetClockOffsets);
refuse!(nvmlDeviceSetComputeMode);
refuse!(nvmlDeviceSetConfComputeUnprotectedMemSize);
refuse!(nvmlDeviceSetDefaultAutoBoostedClocksEnabled);
refuse!(nvmlDeviceSetDefaultFanSpeed_v2);
refuse!(nvmlDeviceSetDramEncryptionMode);
refuse!(nvmlDeviceSetDriverModel);
refuse!(nvmlDeviceSetEccMode);
refuse!(nvmlDeviceSetFanControlPolicy);
refuse!(nvmlDeviceSetFanSpeed_v2);
refuse!(nvmlDeviceSetGpcClkVfOffset);
refuse!(nvmlDeviceSetGpuLockedClocks);
refuse!(nvmlDeviceSetGpuOperationMode);
refuse!(nvmlDeviceSetHostname_v1);
refuse!(nvmlDeviceSetMemClkVfOffset);
refuse!(nvmlDeviceSetMemoryLimits_v1);
refuse!(nvmlDeviceSetMemoryLockedClocks);
refuse!(nvmlDeviceSetMigMode);
refuse!(nvmlDeviceSetNvLinkDeviceLowPowerThreshold);
refuse!(nvmlDeviceSetNvLinkUtilizationControl);
refuse!(nvmlDeviceSetNvlinkBwMode);
refuse!(nvmlDeviceSetNvlinkBwModeAsync_v1);
refuse!(nvmlDeviceSetNvlinkNvleReady_v1);
refuse!(nvmlDeviceSetPersistenceMode);
refuse!(nvmlDeviceSetPowerManagementLimit);
refuse!(nvmlDeviceSetPowerManagementLimit_v2);
refuse!(nvmlDeviceSetPowerMizerMode_v1);
refuse!(nvmlDeviceSetRusdSettings_v1);
refuse!(nvmlDeviceSetTemperatureThreshold);
refuse!(nvmlDeviceSetVgpuCapabilities);
refuse!(nvmlDeviceSetVgpuHeterogeneousMode);
refuse!(nvmlDeviceSetVgpuSchedulerState);
refuse!(nvmlDeviceSetVgpuSchedulerState_v2);
refuse!(nvmlDeviceSetVirtualizationMode);
refuse!(nvmlDeviceSetupNvlinkNvleEncryptionKey_v1);
refuse!(nvmlDeviceVgpuForceGspUnload);
refuse!(nvmlDeviceWorkloadPowerProfileClearRequestedProfiles);
refuse!(nvmlDeviceWorkloadPowerProfileSetRequestedProfiles);
refuse!(nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1);
refuse!(nvmlGpmSetStreamingEnabled);
refuse!(nvmlGpuInstanceCreateComputeInstance);
refuse!(nvmlGpuInstanceCreateComputeInstanceWithPlacement);
refuse!(nvmlGpuInstanceDestroy);
refuse!(nvmlGpuInstanceSetVgpuHeterogeneousMode);
refuse!(nvmlGpuInstanceSetVgpuSchedulerState);
refuse!(nvmlGpuInstanceSetVgpuSchedulerState_v2);
refuse!(nvmlSetVgpuVersion);
refuse!(nvmlSystemSetConfComputeGpusReadyState);
refuse!(nvmlSystemSetConfComputeKeyRotationThresholdInfo);
refuse!(nvmlSystemSetNvlinkBwMode);
refuse!(nvmlUnitSetLedState);
refuse!(nvmlVgpuInstanceClearAccountingPids);
refuse!(nvmlVgpuInstanceSetEncoderCapacity);
