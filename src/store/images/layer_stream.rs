//! The bytes of one layer on their way from the archive: hashed as stored, decompressed, hashed
//! again, counted against the limits, reported. Never looks into a tar header.

use std::cell::RefCell;
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use rules::refusal::Refusal;
use rules::refusals;

use super::archive::{Compression, Section, bomb};
use super::digest::{Hashing, Sha256Digest};
use super::failure::{ImageError, carry, from_read};
use super::limits::ImportLimits;
use super::members::Skip;

/// A layer being read.
pub(super) struct LayerStream<'a> {
    what: String,
    stored: Rc<RefCell<Hashing<Section>>>,
    plain: Hashing<Box<dyn Read + 'a>>,
    limits: &'a ImportLimits,
    cancelled: Option<&'a AtomicBool>,
    /// Told the stored bytes read so far, about once a MiB of either side.
    report: Box<dyn FnMut(u64) + 'a>,
    reported: u64,
    looked: u64,
    scratch: Vec<u8>,
}

/// What passed through a layer's stream.
pub(super) struct Passed {
    pub(super) blob: Sha256Digest,
    pub(super) packed_bytes: u64,
    pub(super) diff_id: Sha256Digest,
}

struct SharedHasher(Rc<RefCell<Hashing<Section>>>);

impl Read for SharedHasher {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buf)
    }
}

impl<'a> LayerStream<'a> {
    pub(super) fn open(
        what: String,
        section: Section,
        limits: &'a ImportLimits,
        cancelled: Option<&'a AtomicBool>,
        report: Box<dyn FnMut(u64) + 'a>,
    ) -> Result<Self, ImageError> {
        let mut first = [0u8; 6];
        let n = section.peek(&mut first)?;
        let stored = Rc::new(RefCell::new(Hashing::new(section)));
        let plain = Compression::of(&first[..n]).reader(SharedHasher(Rc::clone(&stored)))?;
        Ok(Self {
            what,
            stored,
            plain: Hashing::new(plain),
            limits,
            cancelled,
            report,
            reported: 0,
            looked: 0,
            scratch: vec![0; 128 << 10],
        })
    }

    /// Reads what is left and gives the digests of everything.
    pub(super) fn finish(mut self) -> Result<Passed, ImageError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        loop {
            match self.read(&mut scratch) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(from_read(error, &self.what)),
            }
        }
        let mut stored = self.stored.borrow_mut();
        // A decompressor may stop at its own end mark; bytes behind it still belong to the blob.
        loop {
            match stored.read(&mut scratch) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return Err(from_read(error, &self.what)),
            }
        }
        let (blob, packed_bytes) = stored.finish();
        let (diff_id, _) = self.plain.finish();
        Ok(Passed {
            blob,
            packed_bytes,
            diff_id,
        })
    }
}

impl Read for LayerStream<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.plain.read(buf)?;
        let packed = self.stored.borrow().passed();
        let unpacked = self.plain.passed();
        let over_ratio =
            unpacked > self.limits.ratio_grace_bytes && unpacked / self.limits.ratio > packed;
        if over_ratio || unpacked > self.limits.unpacked_bytes {
            return Err(carry(bomb(&self.what, unpacked, packed)));
        }
        // Both sides count: a MiB of well compressed headers is hours of work.
        if packed - self.reported >= 1 << 20 || unpacked - self.looked >= 1 << 20 {
            self.reported = packed;
            self.looked = unpacked;
            (self.report)(packed);
            if self
                .cancelled
                .is_some_and(|flag| flag.load(Ordering::Relaxed))
            {
                return Err(carry(ImageError::from(cancelled())));
            }
        }
        Ok(n)
    }
}

pub(super) fn cancelled() -> Refusal {
    refusals::image_cancelled()
}

impl Skip for LayerStream<'_> {
    fn skip(&mut self, mut count: u64) -> io::Result<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        while count > 0 {
            let most = scratch
                .len()
                .min(usize::try_from(count).unwrap_or(usize::MAX));
            match self.read(&mut scratch[..most])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => count -= n as u64,
            }
        }
        self.scratch = scratch;
        Ok(())
    }
}
