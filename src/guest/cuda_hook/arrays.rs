//! Arrays and mipmapped arrays: charged by their description, because the driver does not say what one
//! costs. What it really takes beyond that reaches the account as the host's overhead.

use crate::ledger::AllocationKind;
use crate::memory::{grant, release};
use crate::{Code, NOT_SUPPORTED, real};

#[repr(C)]
struct ArrayDescriptor {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

#[repr(C)]
struct Array3dDescriptor {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

const LAYERED: u32 = 0x01;
/// Sparse arrays and those that are mapped later take no memory of their own.
const WITHOUT_MEMORY: u32 = 0x40 | 0x80;

/// Bytes of one channel. Formats that name their channels are counted by channel too; block formats
/// are taken for uncompressed, so nothing is ever charged too low.
fn channel_bytes(format: u32) -> u64 {
    match format {
        // Unsigned and signed bytes, and the normalised ones of one to four channels.
        0x01 | 0x08 | 0xc0..=0xc2 | 0xc6..=0xc8 => 1,
        0x02 | 0x09 | 0x10 | 0xc3..=0xc5 | 0xc9..=0xcb => 2,
        _ => 4,
    }
}

impl Array3dDescriptor {
    fn bytes(&self, levels: u32) -> u64 {
        if self.flags & WITHOUT_MEMORY != 0 {
            return 0;
        }
        let element = channel_bytes(self.format).saturating_mul(u64::from(self.channels));
        let mut sum = 0u64;
        for level in 0..levels.clamp(1, 32) {
            let cut = |extent: usize| (extent >> level).max(1) as u64;
            let depth = if self.flags & LAYERED != 0 {
                self.depth.max(1) as u64
            } else {
                cut(self.depth)
            };
            let one = cut(self.width)
                .saturating_mul(cut(self.height))
                .saturating_mul(depth)
                .saturating_mul(element);
            sum = sum.saturating_add(one);
        }
        sum
    }
}

fn destroy(array: u64) -> Code {
    real!(cuArrayDestroy(array): fn(u64))
}

fn destroy_levels(array: u64) -> Code {
    real!(cuMipmappedArrayDestroy(array): fn(u64))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuArrayCreate_v2(out: *mut u64, descriptor: *const ArrayDescriptor) -> Code {
    let make = |out| real!(cuArrayCreate_v2(out, descriptor): fn(*mut u64, *const ArrayDescriptor));
    // SAFETY: a description when it is not null, as the driver expects.
    let bytes = unsafe { descriptor.as_ref() }.map_or(0, |descriptor| {
        let whole = Array3dDescriptor {
            width: descriptor.width,
            height: descriptor.height,
            depth: 0,
            format: descriptor.format,
            channels: descriptor.channels,
            flags: 0,
        };
        whole.bytes(1)
    });
    // SAFETY: the caller's output argument.
    unsafe { grant(AllocationKind::Array, out, bytes, make, destroy) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuArray3DCreate_v2(out: *mut u64, descriptor: *const Array3dDescriptor) -> Code {
    let make = |out| real!(cuArray3DCreate_v2(out, descriptor): fn(*mut u64, *const Array3dDescriptor));
    // SAFETY: a description when it is not null, as the driver expects.
    let bytes = unsafe { descriptor.as_ref() }.map_or(0, |descriptor| descriptor.bytes(1));
    // SAFETY: the caller's output argument.
    unsafe { grant(AllocationKind::Array, out, bytes, make, destroy) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMipmappedArrayCreate(
    out: *mut u64,
    descriptor: *const Array3dDescriptor,
    levels: u32,
) -> Code {
    let make = |out| real!(cuMipmappedArrayCreate(out, descriptor, levels): fn(*mut u64, *const Array3dDescriptor, u32));
    // SAFETY: a description when it is not null, as the driver expects.
    let bytes = unsafe { descriptor.as_ref() }.map_or(0, |descriptor| descriptor.bytes(levels));
    // SAFETY: the caller's output argument.
    unsafe { grant(AllocationKind::Array, out, bytes, make, destroy_levels) }
}

#[unsafe(no_mangle)]
extern "C" fn cuArrayDestroy(array: u64) -> Code {
    release(AllocationKind::Array, array, || destroy(array))
}

#[unsafe(no_mangle)]
extern "C" fn cuMipmappedArrayDestroy(array: u64) -> Code {
    release(AllocationKind::Array, array, || destroy_levels(array))
}

#[unsafe(no_mangle)]
extern "C" fn cuArrayCreate(_out: *mut u64, _descriptor: *const u32) -> Code {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn cuArray3DCreate(_out: *mut u64, _descriptor: *const u32) -> Code {
    NOT_SUPPORTED
}

/// Memory behind a sparse array would count for nobody.
#[unsafe(no_mangle)]
extern "C" fn cuMemMapArrayAsync(_list: *mut u8, _count: u32, _stream: u64) -> Code {
    NOT_SUPPORTED
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMapArrayAsync_ptsz(_list: *mut u8, _count: u32, _stream: u64) -> Code {
    NOT_SUPPORTED
}
