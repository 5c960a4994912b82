//! Checks a kept image against what was noted when it was imported: finds bit rot, lost and
//! strayed files. Changes nothing.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};

use flate2::Crc;
use rustix::fs::{Dir, FileType, Mode, OFlags};

use super::ImageStore;
use super::digest::Sha256Digest;
use super::failure::{Doing, ImageError, shown};
use super::lower;
use super::record::LayerRecord;
use super::unpack::beneath;

/// Damages listed; the rest is only counted.
const LISTED: usize = 50;

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    pub files: u64,
    pub bytes: u64,
    /// Sentences, the first fifty; empty when the image is whole.
    pub damages: Vec<String>,
    pub damage_count: u64,
}

impl Verification {
    fn damage(&mut self, text: String) {
        self.damage_count += 1;
        if self.damages.len() < LISTED {
            self.damages.push(text);
        }
    }
}

impl ImageStore {
    /// Reads every file of an image again and compares checksum and length (CRC-32: finds damage,
    /// not forgery) and the number of entries of each layer. Costs one read of all bytes. Refuses
    /// `image.not-found`.
    pub fn verify(&self, id: &Sha256Digest) -> Result<Verification, ImageError> {
        let record = self.image(id)?;
        let mut found = Verification::default();
        if Sha256Digest::of(record.config.as_bytes()) != record.id {
            found.damage("The configuration of the image was changed.".into());
        }
        for layer in &record.layers {
            self.verify_layer(layer, &mut found)?;
        }
        Ok(found)
    }

    fn verify_layer(
        &self,
        layer: &LayerRecord,
        found: &mut Verification,
    ) -> Result<(), ImageError> {
        let path = self.layer_path(&layer.key);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path.join("fs"), flags, Mode::empty());
        let (Ok(root), Ok(contents)) = (opened, File::open(path.join("contents"))) else {
            found.damage(format!("Layer {} is missing.", layer.key.short()));
            return Ok(());
        };
        let mut contents = BufReader::new(contents);
        let mut line = Vec::new();
        loop {
            line.clear();
            contents
                .read_until(0, &mut line)
                .doing(|| "read the list of contents".into())?;
            if line.pop().is_none() {
                break;
            }
            let mut fields = line.splitn(3, |b| *b == b' ');
            let mut field = || fields.next().and_then(|f| std::str::from_utf8(f).ok());
            let (sum, size) = (field(), field().and_then(|s| s.parse::<u64>().ok()));
            let (Some(sum), Some(size), Some(name)) = (sum, size, fields.next()) else {
                found.damage(format!(
                    "The list of contents of layer {} is damaged.",
                    layer.key.short()
                ));
                return Ok(());
            };
            found.files += 1;
            found.bytes += size;
            if let Some(damage) = file_damage(&root, name, sum, size)? {
                found.damage(format!("{} {damage}.", shown(name)));
            }
        }
        let entries = count(root, 0)?;
        if entries != layer.entries {
            found.damage(format!(
                "Layer {} holds {entries} entries instead of {}.",
                layer.key.short(),
                layer.entries
            ));
        }
        Ok(())
    }
}

fn file_damage(
    root: &OwnedFd,
    name: &[u8],
    sum: &str,
    size: u64,
) -> Result<Option<&'static str>, ImageError> {
    let parts: Vec<Vec<u8>> = name.split(|b| *b == b'/').map(<[u8]>::to_vec).collect();
    let Some((last, above)) = parts.split_last() else {
        return Ok(Some("has no name"));
    };
    let Ok(parent) = beneath(root.as_fd(), above) else {
        return Ok(Some("is missing"));
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(opened) = rustix::fs::openat(&parent, last.as_slice(), flags, Mode::empty()) else {
        return Ok(Some("is missing"));
    };
    let mut file = File::from(opened);
    let meta = file
        .metadata()
        .doing(|| format!("look at {}", shown(name)))?;
    if !meta.is_file() || meta.len() != size {
        return Ok(Some("has another length"));
    }
    if sum == "-" {
        return Ok(None);
    }
    let mut crc = Crc::new();
    let mut buf = vec![0u8; 256 << 10];
    loop {
        match file.read(&mut buf) {
            Ok(0) => break,
            Ok(n) => crc.update(&buf[..n]),
            Err(_) => return Ok(Some("cannot be read")),
        }
    }
    Ok((format!("{:08x}", crc.sum()) != sum).then_some("has other contents"))
}

/// Everything below a directory but whiteouts.
fn count(directory: OwnedFd, depth: usize) -> Result<u64, ImageError> {
    let doing = || "count the files of a layer".to_owned();
    let mut entries = 0;
    let mut below = Vec::new();
    for entry in Dir::read_from(&directory).doing(doing)? {
        let entry = entry.doing(doing)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        match entry.file_type() {
            FileType::CharacterDevice => {}
            FileType::Directory => {
                entries += 1;
                below.push(name.to_vec());
            }
            _ => entries += 1,
        }
    }
    for name in below.iter().filter(|_| depth < 4096) {
        entries += count(lower::open_directory(directory.as_fd(), name)?, depth + 1)?;
    }
    Ok(entries)
}
