//! Writes and reads the files of a key that signs environment bundles, and small texts beside them. Never overwrites one.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rules::refusal::Refusal;
use rules::refusals;

use crate::signing::SigningKey;

/// Bytes of a file with a secret key: a line of base64.
const MAX_SECRET_BYTES: u64 = 4 << 10;

/// Draws a key into `file`, for its owner alone, and its public half into `file.pub`, each new; gives the line of the public
/// half: a name, that of the file, and the key in base64.
///
/// Errors: `environment.file` where one of them cannot be written; then neither is there.
pub fn draw_into(file: &Path) -> Result<String, Refusal> {
    let unusable =
        |error: &dyn std::fmt::Display| refusals::environment_file(file.display(), error);
    let secret =
        SigningKey::draw().ok_or_else(|| unusable(&"the machine has no random numbers"))?;
    let key =
        SigningKey::parse(&secret).ok_or_else(|| refusals::environment_key(file.display()))?;
    let mut name = file.as_os_str().to_owned();
    name.push(".pub");
    let public = format!("{} {}\n", stem(file), key.public().text());
    write_new(file, 0o600, secret.as_bytes()).map_err(|error| unusable(&error))?;
    if let Err(error) = write_new(Path::new(&name), 0o644, public.as_bytes()) {
        // A key without its public half is of no use, and would be in the way of the next try.
        let _ = std::fs::remove_file(file);
        return Err(refusals::environment_file(name.display(), error));
    }
    Ok(public.trim_end().to_owned())
}

/// The key that a file holds. Errors: `environment.file`, `environment.key`.
pub fn signing_key(path: &Path) -> Result<SigningKey, Refusal> {
    let key = SigningKey::parse(&text_of(path, MAX_SECRET_BYTES)?);
    key.ok_or_else(|| refusals::environment_key(path.display()))
}

/// A file of at most so many bytes. Errors: `environment.file`.
pub fn text_of(path: &Path, most: u64) -> Result<String, Refusal> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text));
    let read = read.and_then(|count| match count as u64 > most {
        true => Err(std::io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    });
    read.map_err(|error| refusals::environment_file(path.display(), error))
}

/// What the key is called in a list of trusted ones: the name of its file, as far as that has no spaces.
fn stem(file: &Path) -> String {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    match plain.is_empty() {
        true => "key".to_owned(),
        false => plain,
    }
}

fn write_new(path: &Path, mode: u32, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
