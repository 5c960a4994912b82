//! `fardel environment pack` and `key`: writes images of this machine into a signed bundle, and draws the key that signs.
//! Works while the server is down; reads its image store and changes nothing there but notes of digests.

use std::fs::File;
use std::io::{BufWriter, Read as _};
use std::path::Path;
use std::process::ExitCode;

use base::key_files;
use base::observe::chain;
use base::settings::Settings;
use base::signing::SigningKey;
use rules::environment::{MAX_TEXT_BYTES, RecommendedOptions, check_name, check_version};
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Bytes;
use store::images::ImageStore;
use store::images::environment::{BundlePlan, PlannedImage};
use store::images::failure::ImageError;
use store::images::limits::ImportLimits;

use crate::doors::cli::args::{Global, PackArguments};
use crate::doors::cli::refused::refused_with;

/// Writes a bundle, or says why not; a file that was begun is removed again.
pub fn pack(global: &Global, settings: &Settings, words: &PackArguments) -> ExitCode {
    said(global, packed(settings, words))
}

/// Draws a key into `file`, for its owner alone, and its public half into `file.pub`.
pub fn key(global: &Global, file: &Path) -> ExitCode {
    said(global, key_files::draw_into(file))
}

fn said(global: &Global, done: Result<String, Refusal>) -> ExitCode {
    match done {
        Ok(text) => {
            println!("{text}");
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
    let key = words.key.as_deref().map(signing_key).transpose()?;
    let licences = words.licences.as_deref();
    let licences = licences.map(|path| text_of(path, MAX_TEXT_BYTES));
    let licences = licences.transpose()?.unwrap_or_default();
    let bytes = |text: &Option<String>| text.as_deref().map(Bytes::parse).transpose();
    let recommended = RecommendedOptions {
        shm: bytes(&words.shm)?.map(|shm| shm.0),
        memory: bytes(&words.memory)?.map(|memory| memory.0),
        ports: words.port.clone(),
    };
    let directory = server::Server::image_directory_of(&settings.data);
    let store = ImageStore::open_shared(&directory, ImportLimits::default()).map_err(refusal)?;
    let images = words.images.iter();
    let images = images.map(|wanted| store.planned_image(wanted, &recommended));
    let images: Vec<PlannedImage> = images.collect::<Result<_, _>>().map_err(refusal)?;
    let plan = BundlePlan {
        name,
        version,
        about: &words.about,
        images: &images,
        wheels: &[],
        licences,
        key: key.as_ref(),
    };
    let unusable = |error: std::io::Error| refusals::environment_file(words.file.display(), error);
    let file = File::create_new(&words.file).map_err(unusable)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = store.write_bundle(plan, &mut out).map_err(refusal);
    let written = written.and_then(|manifest| match out.get_ref().sync_all() {
        Ok(()) => Ok(manifest),
        Err(error) => Err(unusable(error)),
    });
    let signer = key.map(|key| format!("signed by {}", key.public().text()));
    match written {
        Ok(manifest) => Ok(format!(
            "{}  {} {}, images: {}, {}",
            words.file.display(),
            manifest.name,
            manifest.version,
            manifest.images.len(),
            signer.as_deref().unwrap_or("not signed")
        )),
        Err(refusal) => {
            // Half a bundle is of no use; the reason matters more than what could not be removed.
            let _ = std::fs::remove_file(&words.file);
            Err(refusal)
        }
    }
}

fn signing_key(path: &Path) -> Result<SigningKey, Refusal> {
    let key = SigningKey::parse(&text_of(path, 4 << 10)?);
    key.ok_or_else(|| refusals::environment_key(path.display()))
}

fn text_of(path: &Path, most: u64) -> Result<String, Refusal> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text));
    let read = read.and_then(|count| match count as u64 > most {
        true => Err(std::io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    });
    read.map_err(|error| refusals::environment_file(path.display(), error))
}

/// A fault is said with its whole chain: there is no log to look into.
fn refusal(error: ImageError) -> Refusal {
    match error {
        ImageError::Refused(refusal) => *refusal,
        ImageError::Fault(fault) => refusals::environment_file("bundle", chain(&fault)),
    }
}
