//! What a program sees of a device's memory: the slice, and what can still be had of it. Agrees with
//! what allocations are granted, and never fails because a limit was lowered.

use crate::account;
use crate::here::here;
use crate::{Code, OK, real};

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    let (mut there, mut whole) = (0usize, 0usize);
    let code = real!(cuMemGetInfo_v2(&mut there, &mut whole): fn(&mut usize, &mut usize));
    if code != OK {
        return code;
    }
    let here = match here() {
        Ok(Some(here)) => here,
        Ok(None) => return code,
        Err(code) => return code,
    };
    let Some((limit, left)) = here.process.view(here.device) else {
        return crate::NOT_READY;
    };
    // SAFETY: null, or the caller's output arguments.
    unsafe {
        if !free.is_null() {
            free.write(there.min(left as usize));
        }
        if !total.is_null() {
            total.write(whole.min(limit as usize));
        }
    }
    OK
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo(free: *mut u32, total: *mut u32) -> Code {
    let (mut there, mut whole) = (0, 0);
    // SAFETY: both live through the call.
    let code = unsafe { cuMemGetInfo_v2(&mut there, &mut whole) };
    if code == OK {
        // SAFETY: null, or the caller's output arguments, of the old interface's width.
        unsafe {
            if !free.is_null() {
                free.write(u32::try_from(there).unwrap_or(u32::MAX));
            }
            if !total.is_null() {
                total.write(u32::try_from(whole).unwrap_or(u32::MAX));
            }
        }
    }
    code
}

/// Bytes of a device as this container may have them; the driver's answer when something is wrong.
fn total(ordinal: i32) -> Result<usize, Code> {
    let mut whole = 0usize;
    let code = real!(cuDeviceTotalMem_v2(&mut whole, ordinal): fn(&mut usize, i32));
    if code != OK {
        return Err(code);
    }
    let process = account::process().ok_or(crate::NOT_READY)?;
    let place = process.place(ordinal).ok_or(crate::OUT_OF_MEMORY)?;
    let (limit, _) = process.view(place).ok_or(crate::NOT_READY)?;
    Ok(whole.min(limit as usize))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(out: *mut usize, ordinal: i32) -> Code {
    match total(ordinal) {
        Ok(bytes) => {
            if !out.is_null() {
                // SAFETY: the caller's output argument.
                unsafe { out.write(bytes) };
            }
            OK
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem(out: *mut u32, ordinal: i32) -> Code {
    match total(ordinal) {
        Ok(bytes) => {
            if !out.is_null() {
                // SAFETY: the caller's output argument, of the old interface's width.
                unsafe { out.write(u32::try_from(bytes).unwrap_or(u32::MAX)) };
            }
            OK
        }
        Err(code) => code,
    }
}
