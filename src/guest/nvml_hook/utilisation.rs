//! How busy the slice is: what the container's own processes use of the device, as a part of its share.
//! What others use of it is not shown here, so samples of the whole device are not told.

use core::sync::atomic::Ordering::SeqCst;

use crate::pages::SliceView;
use crate::{Code, DeviceHandle, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, OK, real};

#[repr(C)]
struct UtilisationRates {
    gpu: u32,
    memory: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ProcessSample {
    pid: u32,
    at: u64,
    sm: u32,
    memory: u32,
    encoder: u32,
    decoder: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct UsageReading {
    at: u64,
    pid: u32,
    sm: u32,
    memory: u32,
    encoder: u32,
    decoder: u32,
    jpeg: u32,
    optical: u32,
}

#[repr(C)]
struct Usages {
    version: u32,
    count: u32,
    since: u64,
    list: *mut UsageReading,
}

/// Processes of a card that are looked at for the rates.
const LOOKED_AT: usize = 256;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: DeviceHandle,
    out: *mut UtilisationRates,
) -> Code {
    let code =
        real!(nvmlDeviceGetUtilizationRates(device, out): fn(DeviceHandle, *mut UtilisationRates));
    // SAFETY: null, or what the library has just written.
    let Some(rates) = (unsafe { out.as_mut() }).filter(|_| code == OK) else {
        return code;
    };
    let Some(slice) = SliceView::of(device) else {
        *rates = UtilisationRates { gpu: 0, memory: 0 };
        return NOT_FOUND;
    };
    let empty = ProcessSample {
        pid: 0,
        at: 0,
        sm: 0,
        memory: 0,
        encoder: 0,
        decoder: 0,
    };
    let mut samples = [empty; LOOKED_AT];
    let mut count = LOOKED_AT as u32;
    let told = real!(nvmlDeviceGetProcessUtilization(device, samples.as_mut_ptr(), &mut count, 0):
        fn(DeviceHandle, *mut ProcessSample, &mut u32, u64));
    let own = samples
        .iter()
        .take(if told == OK { count as usize } else { 0 })
        .filter(|sample| slice.has(sample.pid));
    let (sm, memory) = own.fold((0u32, 0u32), |sum, sample| {
        (
            sum.0.saturating_add(sample.sm),
            sum.1.saturating_add(sample.memory),
        )
    });
    let share = slice.terms.share_milli.load(SeqCst).max(1);
    let within = |part: u32| (u64::from(part) * 1000 / u64::from(share)).min(100) as u32;
    *rates = UtilisationRates {
        gpu: within(sm),
        memory: within(memory),
    };
    OK
}

/// Keeps the elements that `own` says true of at the front; how many they are.
///
/// # Safety
/// `list` has `count` elements that were written.
unsafe fn keep<T: Copy>(list: *mut T, count: u32, own: impl Fn(&T) -> bool) -> u32 {
    let mut kept = 0;
    for at in 0..count as usize {
        // SAFETY: promised by the caller; the place written is never behind the one read.
        unsafe {
            let element = list.add(at).read();
            if own(&element) {
                list.add(kept as usize).write(element);
                kept += 1;
            }
        }
    }
    kept
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: DeviceHandle,
    out: *mut ProcessSample,
    count: *mut u32,
    since: u64,
) -> Code {
    let code = real!(nvmlDeviceGetProcessUtilization(device, out, count, since):
        fn(DeviceHandle, *mut ProcessSample, *mut u32, u64));
    // SAFETY: null, or what the library has just written.
    let Some(count) = (unsafe { count.as_mut() }) else {
        return INVALID_ARGUMENT;
    };
    if code != OK || out.is_null() {
        return code;
    }
    let slice = SliceView::of(device);
    let own = |sample: &ProcessSample| slice.as_ref().is_some_and(|slice| slice.has(sample.pid));
    // SAFETY: the library has written that many.
    *count = unsafe { keep(out, *count, own) };
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetProcessesUtilizationInfo(
    device: DeviceHandle,
    out: *mut Usages,
) -> Code {
    let code =
        real!(nvmlDeviceGetProcessesUtilizationInfo(device, out): fn(DeviceHandle, *mut Usages));
    // SAFETY: null, or what the library has just written.
    let Some(usages) = (unsafe { out.as_mut() }) else {
        return INVALID_ARGUMENT;
    };
    if code != OK || usages.list.is_null() {
        return code;
    }
    let slice = SliceView::of(device);
    let own = |usage: &UsageReading| slice.as_ref().is_some_and(|slice| slice.has(usage.pid));
    // SAFETY: the library has written that many.
    usages.count = unsafe { keep(usages.list, usages.count, own) };
    OK
}

/// Kinds of samples that tell how busy the whole device is: processor, memory, encoder, decoder.
const BUSY: core::ops::RangeInclusive<u32> = 1..=4;

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSamples(
    device: DeviceHandle,
    kind: u32,
    since: u64,
    value: *mut u32,
    count: *mut u32,
    out: *mut u8,
) -> Code {
    if BUSY.contains(&kind) {
        return NOT_SUPPORTED;
    }
    real!(nvmlDeviceGetSamples(device, kind, since, value, count, out):
        fn(DeviceHandle, u32, u64, *mut u32, *mut u32, *mut u8))
}
