//! Puts the compiled kernel programs into the daemon, if `cargo xtask build-ebpf` has
//! left them in the target directory.
//!
//! They need another compiler than the workspace. Without them everything builds, and
//! the daemon says that it has none.

use std::io::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Path of an object to embed instead of the one in the target directory.
const OVERRIDE: &str = "INFERENCE_GATEWAY_EBPF_OBJECT";
/// Where the task runner leaves it, below the target directory.
const DIRECTORY: &str = "ebpf";
const OBJECT: &str = "gateway.bpf.o";

fn main() -> Result<(), Error> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={OVERRIDE}");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let bytes = if let Some(object) = env::var_os(OVERRIDE) {
        let object = Path::new(&object);
        println!("cargo::rerun-if-changed={}", object.display());
        fs::read(object)
            .map_err(|error| Error::other(format!("{OVERRIDE}: {}: {error}", object.display())))?
    } else {
        built(&out)?
    };
    fs::write(out.join(OBJECT), bytes)
}

/// The object in the target directory, or nothing.
fn built(out: &Path) -> Result<Vec<u8>, Error> {
    // Cargo leaves the first mark in a directory it makes, the second in any.
    let marks = ["CACHEDIR.TAG", ".rustc_info.json"];
    let target = out.ancestors().find(|place| marks.iter().any(|mark| place.join(mark).is_file()));
    let Some(directory) = target.map(|target| target.join(DIRECTORY)) else {
        return Ok(Vec::new());
    };
    // Cargo runs this again on every build if what it watches is not there.
    fs::create_dir_all(&directory)?;
    println!("cargo::rerun-if-changed={}", directory.display());
    Ok(fs::read(directory.join(OBJECT)).unwrap_or_default())
}
