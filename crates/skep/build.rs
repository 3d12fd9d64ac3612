//! Lists the files of the dashboard, so that they become part of the binary, and what its pages say
//! about themselves, so that their code is only loaded when they are opened.

use serde_json::{Map, Value};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// A page has one line that begins so, goes on as JSON and ends with `;`.
const DECLARATION: &str = "export const page = ";
const SAMPLE: &str = r#"export const page = { "path": "/keys", "title": "Keys", "order": 80 };"#;

/// `path`, `title`, `order`, `needs` and `icon` of a page, checked.
struct Page {
    file: String,
    path: String,
    title: String,
    order: i64,
    needs: Option<String>,
    icon: Option<String>,
}

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let web = here.join("../../web").canonicalize().expect("the dashboard is there");
    println!("cargo::rerun-if-changed={}", web.display());
    let mut files = Vec::new();
    collect(&web, &mut files);
    files.sort();
    let mut code = "const FILES: &[(&str, &[u8])] = &[\n".to_owned();
    let mut pages: Vec<Page> = Vec::new();
    for file in &files {
        let name = file.strip_prefix(&web).expect("it is inside").to_string_lossy().into_owned();
        let path = file.to_string_lossy();
        writeln!(code, "    ({name:?}, include_bytes!({path:?})),").expect("a text takes it");
        let Some(page) = name.strip_prefix("pages/") else { continue };
        match read_page(page, file).and_then(|page| alone(page, &pages)) {
            Ok(page) => pages.push(page),
            // Cargo shows it and fails the build.
            Err(reason) => println!("cargo::error=web/{name}: {reason}"),
        }
    }
    code.push_str("];\n\nconst PAGES: &[PageInfo] = &[\n");
    pages.sort_by(|a, b| (a.order, &a.file).cmp(&(b.order, &b.file)));
    for Page { file, path, title, order, needs, icon } in &pages {
        writeln!(
            code,
            "    PageInfo {{ file: {file:?}, path: {path:?}, title: {title:?}, order: {order}, \
             needs: {needs:?}, icon: {icon:?} }},"
        )
        .expect("a text takes it");
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

fn read_page(name: &str, file: &Path) -> Result<Page, String> {
    if !name.ends_with(".js") {
        return Err("only pages may be in this folder, and this is no .js file".to_owned());
    }
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let mut lines = text.lines().filter(|line| line.starts_with(DECLARATION.trim_end()));
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(format!("a page has exactly one line such as: {SAMPLE}"));
    };
    let json = line.strip_prefix(DECLARATION).and_then(|rest| rest.strip_suffix(';'));
    let json = json.ok_or_else(|| format!("`page` takes one whole line, such as: {SAMPLE}"))?;
    let mut fields: Map<String, Value> = serde_json::from_str(json)
        .map_err(|error| format!("`page` is not a JSON object ({error}), such as: {SAMPLE}"))?;
    let page = Page {
        file: name.to_owned(),
        path: text_of(&mut fields, "path")?.ok_or("`page` has no \"path\"")?,
        title: text_of(&mut fields, "title")?.ok_or("`page` has no \"title\"")?,
        order: (fields.remove("order").and_then(|order| order.as_i64()))
            .ok_or("`page` has no \"order\" that is a whole number")?,
        needs: text_of(&mut fields, "needs")?,
        icon: text_of(&mut fields, "icon")?,
    };
    if let Some(unknown) = fields.keys().next() {
        return Err(format!("`page` takes path, title, order, needs and icon, not {unknown:?}"));
    }
    if !page.path.starts_with('/') || page.path.contains(['?', '#', ' ']) {
        return Err(format!("the path {:?} is not one such as \"/keys\"", page.path));
    }
    Ok(page)
}

/// A text that is not empty, or nothing.
fn text_of(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(other) => Err(format!("{name:?} of `page` has to be a text, not {other}")),
    }
}

fn alone(page: Page, others: &[Page]) -> Result<Page, String> {
    match others.iter().find(|other| other.path == page.path) {
        Some(other) => Err(format!("{} has the path {:?} already", other.file, page.path)),
        None => Ok(page),
    }
}
