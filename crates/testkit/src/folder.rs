//! Temporary folders that go away with the test process, however it ends.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Waits for the end of its input, which is the end of the test process or [`Folder`]'s own; then
/// removes the folder. Servers may still be writing to it while they stop, hence the repetition.
const JANITOR: &str = r#"
read -r _
for try in 1 2 3 4 5; do
    rm -rf -- "$1" && break
    sleep 1
done
"#;

/// A temporary folder.
pub struct Folder {
    path: TempDir,
    janitor: Child,
}

impl Folder {
    /// A new, empty folder, open to every user, because a server may run as another one.
    pub fn new(purpose: &str) -> Self {
        let path = tempfile::Builder::new()
            .prefix(&format!("skep-{purpose}-"))
            .permissions(Permissions::from_mode(0o777))
            .tempdir()
            .expect("a temporary folder can be made");
        // The process's umask may have taken bits away.
        std::fs::set_permissions(path.path(), Permissions::from_mode(0o777))
            .expect("the folder is ours");
        let janitor = Command::new("sh")
            .args(["-c", JANITOR, "janitor"])
            .arg(path.path())
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("sh can be started");
        Folder { path, janitor }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.path.path()
    }

    /// Leaves the folder where it is, for somebody to look at.
    pub fn keep(mut self) -> PathBuf {
        // First, because the end of its input would be its sign to begin.
        let _ = self.janitor.kill();
        self.path.disable_cleanup(true);
        self.path().to_path_buf()
    }

    /// A path inside the folder.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(self.janitor.stdin.take());
        let _ = self.janitor.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_gone_with_its_value() {
        let folder = Folder::new("test");
        let path = folder.path().to_path_buf();
        std::fs::write(folder.join("file"), "x").expect("writes");
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn a_folder_that_is_kept_stays() {
        let path = Folder::new("test").keep();
        assert!(path.is_dir());
        std::fs::remove_dir(&path).expect("is still there, and empty");
    }
}
