//! Makes what the console embeds: one style sheet, the icon sprite, the compiled catalogue of sentences,
//! and every file under `web/` that a browser may ask for, compressed. Needs neither node nor network.
//! Never decides anything about the product, and never reads outside the package and `OUT_DIR`.

#[path = "web/icons.rs"]
mod icons;
#[path = "web/sentences.rs"]
mod sentences;
#[path = "web/styles.rs"]
mod styles;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

fn main() {
    // Named one by one: web/vendor/build may hold packages of node that have nothing to do with the product.
    for part in [
        "assets",
        "i18n",
        "vendor/fonts",
        "vendor/htmx",
        "vendor/icons",
        "vendor/xterm.css",
        "vendor/xterm.js",
    ] {
        println!("cargo::rerun-if-changed=web/{part}");
    }
    println!("cargo::rerun-if-changed=packaging/build.rs");
    pack_relative_relocations();
    println!("cargo::rerun-if-changed=packaging/web");
    let out =
        PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts"));
    let web = Path::new("web");

    let sentences = match sentences::compile(
        &read(&web.join("i18n/en.toml")),
        &read(&web.join("i18n/ko.toml")),
        &read(&web.join("i18n/launch_texts.toml")),
    ) {
        Ok(code) => code,
        Err(faults) => {
            for fault in faults {
                println!("cargo::error=web/i18n: {fault}");
            }
            return;
        }
    };
    fs::write(out.join("sentences.rs"), sentences).expect("OUT_DIR is writable");

    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let sheets = ["tokens.css", "base.css", "parts.css", "console.css"]
        .map(|name| read(&web.join("assets/css").join(name)))
        .join("\n");
    files.push(("app.css".into(), styles::finish(&sheets).into_bytes()));
    files.push(("icons.svg".into(), icons::sprite(web).into_bytes()));
    files.push((
        "favicon.svg".into(),
        read(&web.join("assets/favicon.svg")).into_bytes(),
    ));
    for script in list(&web.join("assets/js"), "js") {
        files.push((
            file_name(&script),
            fs::read(&script).expect("listed a moment ago"),
        ));
    }
    for vendored in ["htmx/htmx.js", "xterm.js", "xterm.css"] {
        let path = web.join("vendor").join(vendored);
        files.push((
            file_name(&path),
            fs::read(&path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display())),
        ));
    }
    for font in list(&web.join("vendor/fonts"), "woff2") {
        files.push((
            format!("fonts/{}", file_name(&font)),
            fs::read(&font).expect("listed a moment ago"),
        ));
    }

    let folder = out.join("web");
    // A file that was dropped from web/ must not survive in the binary.
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("OUT_DIR is ours");
    }
    let mut build = Fingerprint::new();
    for (name, bytes) in &files {
        build.add(name.as_bytes());
        build.add(bytes);
        let path = folder.join(name);
        fs::create_dir_all(path.parent().expect("a file has a folder"))
            .expect("OUT_DIR is writable");
        // woff2 is compressed already.
        if name.ends_with(".woff2") {
            fs::write(path, bytes).expect("OUT_DIR is writable");
        } else {
            fs::write(folder.join(format!("{name}.br")), compress(bytes))
                .expect("OUT_DIR is writable");
        }
    }
    println!(
        "cargo::rustc-env=FARDEL_WEB_BUILD={:012x}",
        build.value() & 0xffff_ffff_ffff
    );
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()))
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .expect("a file has a name")
        .to_string_lossy()
        .into_owned()
}

/// A static-pie relocates itself at every start: 24 bytes read for each of 68,000 pointers, or packed as a bit each.
/// Only the start code of glibc 2.36 and later reads the packed form; with an older one the program would not start.
fn pack_relative_relocations() {
    const FIRST_WITH_RELR: (u32, u32) = (2, 36);
    let named = std::process::Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output();
    let version = named.ok().and_then(|answer| {
        let text = String::from_utf8(answer.stdout).ok()?;
        let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    });
    if version >= Some(FIRST_WITH_RELR) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Files of a folder with that ending, by name, so that two builds give the same bytes.
fn list(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|fault| panic!("{}: {fault}", folder.display()))
        .map(|entry| entry.expect("readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect();
    found.sort();
    found
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    // Quality 11, window 22: what browsers accept everywhere. The largest file (the terminal) costs
    // about two seconds, and only when a web file changed.
    let mut writer = brotli::CompressorWriter::new(&mut packed, 1 << 16, 11, 22);
    writer.write_all(bytes).expect("writing to memory");
    drop(writer);
    packed
}

/// FNV-1a over everything embedded: names the version in `/a/<build>/`, so that a changed file gets a new
/// address and an unchanged build keeps every browser's cache. Not a defence against anybody.
struct Fingerprint(u64);

impl Fingerprint {
    fn new() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn value(&self) -> u64 {
        self.0
    }
}
