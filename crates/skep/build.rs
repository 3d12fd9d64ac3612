//! Lists the files of the dashboard, so that they become part of the binary.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let web = here.join("../../web").canonicalize().expect("the dashboard is there");
    println!("cargo::rerun-if-changed={}", web.display());
    let mut files = Vec::new();
    collect(&web, &mut files);
    files.sort();
    let mut code = "const FILES: &[(&str, &[u8])] = &[\n".to_owned();
    for file in &files {
        let name = file.strip_prefix(&web).expect("it is inside").to_string_lossy().into_owned();
        let path = file.to_string_lossy();
        writeln!(code, "    ({name:?}, include_bytes!({path:?})),").expect("a text takes it");
    }
    code.push_str("];\n");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("web_files.rs"), code).expect("the output folder takes it");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in std::fs::read_dir(folder).expect("it can be read").flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
