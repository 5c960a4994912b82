//! What a watch of this machine leaves to the next server: one JSON file, replaced whole. Does not sync: after
//! the machine itself ends, what it tells of has ended too.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Gives what an earlier server wrote at `path`; the default where there is no file. Errors: a file that cannot
/// be read or is no such record.
pub(crate) fn read<T: DeserializeOwned + Default>(path: &Path) -> io::Result<T> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error),
    }
}

/// Writes the record at `path`, whole or not at all. Errors: where it cannot be written; the old one stays.
pub(crate) fn write<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    let draft = path.with_extension("draft");
    fs::write(&draft, serde_json::to_vec(record)?)?;
    fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_damage_is_told() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("seen.json");
        let read = |path: &Path| read::<Vec<u32>>(path);
        assert!(read(&path).expect("none is no fault").is_empty());
        write(&path, &vec![1, 2]).expect("written");
        write(&path, &vec![3]).expect("replaced");
        assert_eq!(read(&path).expect("whole"), [3]);
        assert_eq!(fs::read_dir(folder.path()).expect("listed").count(), 1);
        fs::write(&path, "[3").expect("cut off");
        let error = read(&path).expect_err("it is damaged");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
