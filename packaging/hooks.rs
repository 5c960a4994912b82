//! Builds the libraries that stand in for the vendor's in containers: `libcuda.so.1` and
//! `libnvidia-ml.so.1`. Called by the node's build script, and by the tests, which build the fake
//! driver the same way. One call of the same `rustc` each, and a throw-away library per dependency so
//! that the linker writes down the name we want. Never downloads anything.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the host mounts pages and real drivers in a container. The tests replace it by a place of the
/// same length.
pub(crate) const PLACE: &str = "/usr/lib/fardel/gpu";

/// One library to make.
pub(crate) struct Library<'a> {
    /// The file that rustc is given.
    pub(crate) root: &'a Path,
    /// The committed list of documented names.
    pub(crate) names: &'a Path,
    /// What programs ask for.
    pub(crate) soname: &'a str,
    /// The file to write.
    pub(crate) made: &'a Path,
}

/// The name each real driver has in `PLACE`.
pub(crate) fn real(soname: &str) -> String {
    format!("{PLACE}/{soname}")
}

/// Compiles a hook into `library.made`; what the compiler had to say about it, nothing as a rule.
/// `work` is a folder of its own for what comes between.
pub(crate) fn build(
    rustc: &OsStr,
    target: &str,
    library: &Library<'_>,
    work: &Path,
) -> Result<String, String> {
    write(work, "names.rs", &names(library)?)?;
    let real = real(library.soname);
    let driver = throw_away(rustc, target, work, "driver", &real, "")?;
    // dlsym lived in libdl until glibc 2.34 and is still found through it.
    let loader = throw_away(
        rustc,
        target,
        work,
        "loader",
        "libdl.so.2",
        "#[unsafe(no_mangle)] extern \"C\" fn dlsym() {}",
    )?;
    let mut command = compiler(rustc, target, library.root, &library.made.to_path_buf());
    command
        .env("HOOK_OUT", work)
        .env("HOOK_PLACE", PLACE)
        .args(["-C", "opt-level=2", "-C", "codegen-units=1"])
        .args([
            "-C",
            "link-arg=-nostdlib",
            "-C",
            "link-arg=-Wl,--no-as-needed",
        ]);
    for needed in [&driver, &loader] {
        command
            .arg("-C")
            .arg(format!("link-arg={}", needed.display()));
    }
    command.arg("-C").arg(format!(
        "link-arg=-Wl,-soname,{},-Bsymbolic,-z,defs,-z,noexecstack,--build-id=none,--hash-style=both",
        library.soname
    ));
    run(command, library.soname)
}

/// A driver that is nothing but a name and one function, for roots that a real program would not start in.
#[allow(
    dead_code,
    reason = "the node's build script has no root to try a hook in"
)]
pub(crate) fn hollow_driver(
    rustc: &OsStr,
    target: &str,
    work: &Path,
    soname: &str,
) -> Result<PathBuf, String> {
    throw_away(
        rustc,
        target,
        work,
        "hollow",
        soname,
        "#[unsafe(no_mangle)] extern \"C\" fn cuDriverGetVersion() -> i32 { 0 }",
    )
}

/// The compiler with what every library here has in common.
fn compiler(rustc: &OsStr, target: &str, root: &Path, made: &PathBuf) -> Command {
    let mut command = Command::new(rustc);
    command
        .arg(root)
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "--target",
            target,
        ])
        .args([
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
            "-C",
            "force-frame-pointers=no",
        ])
        .args(["-C", "link-arg=-nostartfiles"])
        // The path of the checkout has no business in somebody's container.
        .arg("--remap-path-prefix")
        .arg(format!("{}=", root.parent().unwrap_or(root).display()))
        .arg("-o")
        .arg(made);
    command
}

/// A library whose only purpose is its name: what links with it needs that name at run time.
fn throw_away(
    rustc: &OsStr,
    target: &str,
    work: &Path,
    name: &str,
    soname: &str,
    body: &str,
) -> Result<PathBuf, String> {
    let root = write(
        work,
        &format!("{name}.rs"),
        &format!(
            "#![no_std]\n{body}\n#[panic_handler] fn never(_: &core::panic::PanicInfo) -> ! {{ loop {{}} }}\n"
        ),
    )?;
    let made = work.join(format!("lib{name}.so"));
    let mut command = compiler(rustc, target, &root, &made);
    command
        .args(["-C", "link-arg=-nostdlib", "-C"])
        .arg(format!("link-arg=-Wl,-soname,{soname}"));
    run(command, soname)?;
    Ok(made)
}

fn run(mut command: Command, what: &str) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("the compiler cannot be started for {what}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    } else {
        Err(format!(
            "{what} did not compile:\n{}",
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

fn write(work: &Path, name: &str, text: &str) -> Result<PathBuf, String> {
    let path = work.join(name);
    fs::create_dir_all(work)
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    Ok(path)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The documented names, and those of them that the sources beside `root` define.
pub(crate) fn documented(
    root: &Path,
    list: &Path,
) -> Result<(Vec<String>, BTreeSet<String>), String> {
    let all: Vec<String> = read(list)?.lines().map(str::to_owned).collect();
    let folder = root.parent().ok_or("a root without a folder")?;
    let mut defined = BTreeSet::new();
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension() == Some(OsStr::new("rs")))
        .collect();
    files.sort();
    for file in files {
        let text = read(&file)?;
        // `fn NAME(` of a function, and `launch!(NAME,` and the like of one that a macro writes.
        for opening in ["fn ", "launch!(", "before!(", "refuse!("] {
            for (at, _) in text.match_indices(opening) {
                let rest = text[at + opening.len()..].trim_start();
                let end = rest
                    .find(|letter: char| !letter.is_alphanumeric() && letter != '_')
                    .unwrap_or(rest.len());
                defined.insert(rest[..end].to_owned());
            }
        }
    }
    defined.retain(|name| all.contains(name));
    Ok((all, defined))
}

/// `names.rs` of a hook: the table of names, and a jump for each that it does not define.
fn names(library: &Library<'_>) -> Result<String, String> {
    let (all, defined) = documented(library.root, library.names)?;
    let mut text = format!(
        "pub const COUNT: usize = {};\n\
         pub const REAL_PATH: &CStr = c\"{}\";\n\
         static NAMES: &[u8] = b\"{}\\0\";\n",
        all.len(),
        real(library.soname),
        all.join("\\0"),
    );
    text.push_str("#[allow(non_upper_case_globals)]\npub mod index {\n");
    for (at, name) in all.iter().enumerate() {
        text.push_str(&format!("pub const {name}: usize = {at};\n"));
    }
    text.push_str(
        "}\nmacro_rules! onward { ($name:ident) => {\n\
         #[unsafe(no_mangle)] #[unsafe(naked)] unsafe extern \"C\" fn $name() {\n\
         core::arch::naked_asm!(\"jmp qword ptr [rip + {real} + 8*{at}]\", real = sym REAL, at = const index::$name)\n\
         } } }\n",
    );
    for name in all.iter().filter(|name| !defined.contains(*name)) {
        text.push_str(&format!("onward!({name});\n"));
    }
    text.push_str("mod overrides { unsafe extern \"C\" {\n");
    for name in &defined {
        text.push_str(&format!("pub fn {name}();\n"));
    }
    text.push_str(&format!(
        "}} }}\npub static OVERRIDES: [(usize, unsafe extern \"C\" fn()); {}] = [\n",
        defined.len()
    ));
    for name in &defined {
        text.push_str(&format!("(index::{name}, overrides::{name}),\n"));
    }
    text.push_str("];\n");
    Ok(text)
}
