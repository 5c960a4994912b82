//! The list of everything inside the product, in CycloneDX 1.5: every package of cargo's, every
//! vendored file, every library. Written from `cargo tree` and checked against `cargo metadata`
//! and the build itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::failure::Failure;
use crate::packages;
use crate::program::Program;
use crate::vendored;

/// Folders of web/vendor that are not shipped: the recipe, and texts that the copyright file holds.
const NOT_SHIPPED: [&str; 2] = ["build", "licences"];

/// The list as text. Same tree and same time, same bytes.
pub(crate) fn document(version: &str, epoch: u64) -> Result<String, Failure> {
    let linked = packages::all_linked()?;
    let sums = checksums()?;
    let mut components = Vec::new();
    for package in linked.iter().filter(|package| package.name != "fardel") {
        let at = format!("pkg:cargo/{}@{}", package.name, package.version);
        let mut component = json!({
            "type": "library",
            "bom-ref": at,
            "name": package.name,
            "version": package.version,
            "licenses": [{"expression": package.licence.replace('/', " OR ")}],
        });
        if !package.ours {
            component["purl"] = at.into();
            let sum = sums
                .get(&(package.name.clone(), package.version.clone()))
                .ok_or_else(|| {
                    Failure::new(format!("Cargo.lock has no checksum of {}", package.name))
                })?;
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        components.push(component);
    }
    for part in vendored::parts()? {
        let files: Vec<Value> = part
            .file
            .iter()
            .map(|file| {
                json!({
                    "type": "file",
                    "name": format!("{}/{}", vendored::FOLDER, file.path),
                    "hashes": [{"alg": "SHA-256", "content": file.sha256}],
                })
            })
            .collect();
        components.push(json!({
            "type": "library",
            "bom-ref": format!("vendored:{}", part.name),
            "name": part.name,
            "version": part.version,
            "licenses": [{"expression": part.licence}],
            "components": files,
        }));
    }
    for library in vendored::libraries(&linked)? {
        components.push(json!({
            "type": "library",
            "bom-ref": format!("linked:{}", library.name),
            "name": library.name,
            "version": library.version,
            "licenses": [{"expression": library.licence}],
        }));
    }
    let time = Program::named("date")
        .words("--utc +%Y-%m-%dT%H:%M:%SZ")
        .argument(format!("--date=@{epoch}"))
        .output()?;
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.trim(),
            "component": {
                "type": "application",
                "bom-ref": "fardel",
                "name": "fardel",
                "version": version,
                "licenses": [{"expression": "Apache-2.0"}],
            },
        },
        "components": components,
    });
    Ok(format!("{document:#}\n"))
}

/// Holds a finished list to what cargo resolves and to the files that are there; names what is
/// missing and what is too many.
pub(crate) fn check(text: &[u8]) -> Result<(), Failure> {
    let document: Value = serde_json::from_slice(text)
        .map_err(|error| Failure::new(format!("the SBOM is not JSON: {error}")))?;
    let mut told = Vec::new();
    let (mut packages, mut files) = (BTreeSet::new(), BTreeMap::new());
    for component in document["components"].as_array().into_iter().flatten() {
        let word = |name: &str| component[name].as_str().unwrap_or_default();
        if component["licenses"][0]["expression"]
            .as_str()
            .is_none_or(str::is_empty)
        {
            told.push(format!("{} has no licence", word("name")));
        }
        if word("bom-ref").starts_with("pkg:cargo/") {
            packages.insert(format!("{} {}", word("name"), word("version")));
        }
        for file in component["components"].as_array().into_iter().flatten() {
            files.insert(
                file["name"].as_str().unwrap_or_default().to_owned(),
                file["hashes"][0]["content"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
    }
    let resolved = resolved()?;
    let shipped = shipped()?;
    told.extend(
        resolved
            .difference(&packages)
            .map(|p| format!("{p} is linked and not listed")),
    );
    told.extend(
        packages
            .difference(&resolved)
            .map(|p| format!("{p} is listed and not linked")),
    );
    for (file, sum) in &shipped {
        match files.get(file) {
            None => told.push(format!("{file} is shipped and not listed")),
            Some(listed) if listed != sum => told.push(format!("{file} is not what is listed")),
            Some(_) => {}
        }
    }
    told.extend(
        files
            .keys()
            .filter(|file| !shipped.contains_key(*file))
            .map(|file| format!("{file} is listed and not there")),
    );
    println!(
        "SBOM: {} packages, {} vendored files",
        packages.len(),
        files.len()
    );
    if told.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(format!("the SBOM:\n{}", told.join("\n"))))
    }
}

/// `name version` of every package that the product needs by cargo's graph and that the release build
/// compiled. The graph alone knows too much: it has optional packages that nobody switched on.
fn resolved() -> Result<BTreeSet<String>, Failure> {
    let text = Program::cargo()
        .words("metadata --format-version 1 --locked --filter-platform x86_64-unknown-linux-gnu")
        .output()?;
    let metadata: Value = serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("cargo metadata is not JSON: {error}")))?;
    let rows = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: BTreeMap<String, (String, String)> = rows(&metadata["packages"])
        .iter()
        .map(|p| (word(&p["id"]), (word(&p["name"]), word(&p["version"]))))
        .collect();
    let needs: BTreeMap<String, Vec<String>> = rows(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| {
            let linked = rows(&node["deps"])
                .iter()
                .filter(|dep| {
                    rows(&dep["dep_kinds"])
                        .iter()
                        .any(|kind| kind["kind"].is_null())
                })
                .map(|dep| word(&dep["pkg"]))
                .collect();
            (word(&node["id"]), linked)
        })
        .collect();
    let mut waiting: Vec<&String> = names
        .iter()
        .filter(|(_, (name, _))| ["fardel", "gpu_probe"].contains(&name.as_str()))
        .map(|(id, _)| id)
        .collect();
    let compiled = compiled()?;
    let mut seen = BTreeSet::new();
    let mut found = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        if let Some((name, version)) = names.get(id)
            && name != "fardel"
            && compiled.contains(id)
        {
            found.insert(format!("{name} {version}"));
        }
        waiting.extend(needs.get(id).into_iter().flatten());
    }
    Ok(found)
}

/// The id of every package of the finished release build, and of the helper in it, as builds themselves
/// tell.
fn compiled() -> Result<BTreeSet<String>, Failure> {
    let mut told = String::new();
    // The second is built by the first, in a place of its own where nobody can ask.
    for which in ["--release", "--profile probe --package gpu_probe"] {
        told += &Program::cargo()
            .words("build --locked --quiet --message-format json")
            .words(which)
            .output()?;
    }
    let mut ids = BTreeSet::new();
    for line in told.lines() {
        let message: Value = serde_json::from_str(line).map_err(|error| {
            Failure::new(format!("cargo build did not answer in JSON: {error}"))
        })?;
        if message["reason"] == "compiler-artifact"
            && let Some(id) = message["package_id"].as_str()
        {
            ids.insert(id.to_owned());
        }
    }
    Ok(ids)
}

/// Every file of web/vendor that goes into the product, with its SHA-256 as it is on disk.
fn shipped() -> Result<BTreeMap<String, String>, Failure> {
    let mut paths = Vec::new();
    let mut folders = vec![Path::new(vendored::FOLDER).to_path_buf()];
    while let Some(folder) = folders.pop() {
        let fault = |e: std::io::Error| Failure::new(format!("{}: {e}", folder.display()));
        for entry in fs::read_dir(&folder).map_err(fault)? {
            let path = entry.map_err(fault)?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                if !NOT_SHIPPED.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if name != "VENDOR.toml" {
                paths.push(path);
            }
        }
    }
    let mut sums = Program::named("sha256sum");
    for path in &paths {
        sums = sums.argument(path);
    }
    Ok(sums
        .output()?
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(sum, path)| (path.to_owned(), sum.to_owned()))
        .collect())
}

/// The registry's checksum of each package in Cargo.lock, by name and version.
fn checksums() -> Result<BTreeMap<(String, String), String>, Failure> {
    let text = fs::read_to_string("Cargo.lock")
        .map_err(|error| Failure::new(format!("Cargo.lock cannot be read: {error}")))?;
    let lock: toml::Table = toml::from_str(&text)
        .map_err(|error| Failure::new(format!("Cargo.lock cannot be read: {error}")))?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    Ok(packages
        .into_iter()
        .flatten()
        .filter_map(|package| {
            let word = |name: &str| package.get(name)?.as_str().map(str::to_owned);
            Some(((word("name")?, word("version")?), word("checksum")?))
        })
        .collect())
}
