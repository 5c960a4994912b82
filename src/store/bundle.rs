//! Packs a few texts into one compressed archive, for people who send it away. Holds everything in
//! memory: it is for megabytes, never for images.

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;

/// A tar archive of `members` (name, contents), compressed with gzip. `seconds` since 1970 is the
/// time of every member; owners are root and modes 0640. Empty members are kept.
///
/// Errors: a name that a tar archive cannot hold.
pub fn tar_gz(members: &[(String, Vec<u8>)], seconds: u64) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (name, contents) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        header.set_mode(0o640);
        header.set_mtime(seconds);
        archive.append_data(&mut header, name, contents.as_slice())?;
    }
    archive.into_inner()?.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_goes_in_comes_out() {
        let members = [
            ("a/one.txt".to_owned(), b"1".to_vec()),
            ("two.txt".to_owned(), Vec::new()),
        ];
        let bytes = tar_gz(&members, 1_800_000_000).unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let mut found = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            assert_eq!(entry.header().mtime().unwrap(), 1_800_000_000);
            let mut contents = Vec::new();
            entry.read_to_end(&mut contents).unwrap();
            found.push((entry.path().unwrap().display().to_string(), contents));
        }
        assert_eq!(found, members);
    }
}
