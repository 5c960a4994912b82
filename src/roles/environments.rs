//! `fardel environment pack` and `key`: writes images of this machine into a signed bundle, and draws the key that signs.
//! Works while the server is down; reads its image store and changes nothing there but notes of digests.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use base::key_files;
use base::settings::Settings;
use base::signing::SigningKey;
use rules::environment::{MAX_TEXT_BYTES, RecommendedOptions, check_name, check_version};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Bytes;
use store::images::ImageStore;
use store::images::environment::BundlePlan;
use store::images::failure::ImageError;
use store::images::limits::ImportLimits;

use crate::doors::cli::args::{Global, PackArguments};
use crate::doors::cli::refused::refused_with;

/// Writes a bundle, or says why not; a file that was begun is removed again.
pub fn pack(global: &Global, settings: &Settings, words: &PackArguments) -> ExitCode {
    match packed(settings, words) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(refusal) => refused_with(global, &refusal, 1),
    }
}

/// Draws a key into `file`, for its owner alone, and its public half into `file.pub`.
pub fn key(global: &Global, file: &Path) -> ExitCode {
    match key_files::draw_into(file) {
        Ok(public) => {
            println!("{public}");
            ExitCode::SUCCESS
        }
        Err(refusal) => refused_with(global, &refusal, 1),
    }
}

fn packed(settings: &Settings, words: &PackArguments) -> Result<String, Refusal> {
    let (name, version) = words
        .environment
        .split_once(':')
        .ok_or_else(refusals::environment_version)?;
    check_name(name)?;
    check_version(version)?;
    let key = match &words.key {
        Some(path) => {
            let text = text_of(path, 4 << 10)?;
            let wrong = || refusals::environment_key(path.display());
            Some(SigningKey::parse(&text).ok_or_else(wrong)?)
        }
        None => None,
    };
    let licences = match &words.licences {
        Some(path) => text_of(path, MAX_TEXT_BYTES)?,
        None => String::new(),
    };
    let bytes = |text: &Option<String>| -> Result<Option<u64>, Refusal> {
        let read = text.as_deref().map(Bytes::parse).transpose()?;
        Ok(read.map(|bytes| bytes.0))
    };
    let recommended = RecommendedOptions {
        shm: bytes(&words.shm)?,
        memory: bytes(&words.memory)?,
        ports: words.port.clone(),
    };
    let directory = server::Server::image_directory_of(&settings.data);
    let store = ImageStore::open_shared(&directory, ImportLimits::default()).map_err(refusal)?;
    let mut images = Vec::new();
    for wanted in &words.images {
        images.push(store.planned_image(wanted, &recommended).map_err(refusal)?);
    }
    let plan = BundlePlan {
        name,
        version,
        about: &words.about,
        images: &images,
        licences,
        key: key.as_ref(),
    };
    let unusable = |error: std::io::Error| refusals::environment_file(words.file.display(), error);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(&words.file)
        .map_err(unusable)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = store.write_bundle(plan, &mut out).map_err(refusal);
    let written = written.and_then(|manifest| {
        out.get_ref().sync_all().map_err(unusable)?;
        Ok(manifest)
    });
    match written {
        Ok(manifest) => Ok(format!(
            "{}  {} {}, images: {}, {}",
            words.file.display(),
            manifest.name,
            manifest.version,
            manifest.images.len(),
            match &key {
                Some(key) => format!("signed by {}", key.public().text()),
                None => "not signed".to_owned(),
            }
        )),
        Err(refusal) => {
            // Half a bundle is of no use; the reason matters more than what could not be removed.
            let _ = std::fs::remove_file(&words.file);
            Err(refusal)
        }
    }
}

fn text_of(path: &Path, most: u64) -> Result<String, Refusal> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text));
    match read {
        Ok(count) if count as u64 > most => {
            let why = std::io::Error::from(std::io::ErrorKind::FileTooLarge);
            Err(refusals::environment_file(path.display(), why))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(refusals::environment_file(path.display(), error)),
    }
}

/// A fault is said with its whole chain: there is no log to look into.
fn refusal(error: ImageError) -> Refusal {
    match error {
        ImageError::Refused(refusal) => *refusal,
        ImageError::Fault(fault) => {
            refusals::environment_file("bundle", base::observe::chain(&fault))
        }
    }
}
