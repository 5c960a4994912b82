//! `fardel environment pack`, `build` and `key`: writes images of this machine, or what a recipe says, into a signed bundle,
//! and draws the key that signs.
//! Works while the server is down; reads its image store and changes nothing there but notes of digests.

use std::path::Path;
use std::process::ExitCode;

use base::key_files::{self, signing_key, text_of};
use base::observe::chain;
use base::recipe_files;
use base::settings::Settings;
use rules::environment::{MAX_TEXT_BYTES, RecommendedOptions, check_name, check_version};
use rules::recipe::MAX_RECIPE_BYTES;
use rules::refusal::Refusal;
use rules::refusals;
use rules::units::Bytes;
use store::images::ImageStore;
use store::images::build::BuildPlan;
use store::images::environment::{BundlePlan, PlannedImage, into_new_file};
use store::images::failure::ImageError;
use store::images::limits::ImportLimits;

use crate::doors::cli::args::{BuildArguments, Global, PackArguments};
use crate::doors::cli::environments::bundle_line;
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
        others: &[],
        licences,
        key: key.as_ref(),
    };
    let written = into_new_file(&words.file, |out| store.write_bundle(plan, out));
    let manifest = written.map_err(refusal)?;
    let signer = key.map(|key| key.public().text());
    Ok(bundle_line(&words.file, &manifest, signer))
}

/// Builds the bundle of a recipe, or says why not; nothing of it stays where it fails.
pub fn build(global: &Global, words: &BuildArguments) -> ExitCode {
    said(global, built(words))
}

fn built(words: &BuildArguments) -> Result<String, Refusal> {
    let recipe = recipe_files::read(&text_of(&words.recipe, MAX_RECIPE_BYTES)?)?;
    let key = words.key.as_deref().map(signing_key).transpose()?;
    let place = words.recipe.canonicalize();
    let place = place.map_err(|error| refusals::environment_file(words.recipe.display(), error))?;
    let plan = BuildPlan {
        recipe: &recipe,
        folder: place.parent().unwrap_or(Path::new("/")),
        wheels: words.wheels.as_deref(),
        key: key.as_ref(),
        twice: words.twice,
    };
    let built = plan.write(&words.file, &mut |step| eprintln!("{step}"));
    let built = built.map_err(refusal)?;
    let signer = key.map(|key| key.public().text());
    let last = bundle_line(&words.file, &built.manifest, signer);
    Ok(format!("{built}{last}"))
}

/// A fault is said with its whole chain: there is no log to look into.
fn refusal(error: ImageError) -> Refusal {
    match error {
        ImageError::Refused(refusal) => *refusal,
        ImageError::Fault(fault) => refusals::environment_file("bundle", chain(&fault)),
    }
}
