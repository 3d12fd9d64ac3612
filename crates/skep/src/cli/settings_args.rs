//! The flags with which a command is told its settings.

use crate::settings::{DEFAULT_FILE, Invalid, Layers, Loaded, Settings, resolve};
use clap::Args;
use std::path::{Path, PathBuf};

/// Flags that go over the environment, which goes over the file.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Settings")]
pub struct SettingsArgs {
    /// Settings file; `skep.toml` in this folder is read if it is there
    #[arg(long, value_name = "FILE", env = "SKEP_CONFIG")]
    pub config: Option<PathBuf>,

    /// Address and port of API and dashboard [default: 127.0.0.1:6632]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,

    /// Folder for what this node keeps on disk [default: skep-data]
    #[arg(long, value_name = "FOLDER")]
    pub data: Option<String>,

    /// `embedded`, or postgres://USER:PASSWORD@HOST/DATABASE [default: embedded]
    #[arg(long, value_name = "URL")]
    pub database: Option<String>,

    /// `database`, or redis://HOST [default: database]
    #[arg(long, value_name = "URL")]
    pub coordination: Option<String>,

    /// Any other setting, for example --set log.level=debug; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl SettingsArgs {
    /// All layers together: file, environment, flags.
    pub fn load(&self) -> Result<Loaded, Invalid> {
        self.load_with(None)
    }

    /// All layers together, and a flag of the verb's own: its name, the setting and the value.
    pub fn load_with(
        &self,
        own: Option<(&'static str, &'static str, &'static str)>,
    ) -> Result<Loaded, Invalid> {
        let known = Settings::keys();
        let mut layers = Layers::default();
        match &self.config {
            Some(path) => layers.add_file(path, &known),
            None if Path::new(DEFAULT_FILE).exists() => {
                layers.add_file(Path::new(DEFAULT_FILE), &known);
            }
            // It may come later: routes are read from it again.
            None => layers.file = Some(PathBuf::from(DEFAULT_FILE)),
        }
        layers.add_own_environment(&known);
        for assignment in &self.set {
            layers.add_set(assignment, &known);
        }
        for (flag, key, text) in [
            ("--listen", "api.listen", &self.listen),
            ("--data", "data", &self.data),
            ("--database", "database", &self.database),
            ("--coordination", "coordination", &self.coordination),
        ] {
            if let Some(text) = text {
                layers.add_flag(flag, key, text);
            }
        }
        if let Some((flag, key, text)) = own {
            layers.add_flag(flag, key, text);
        }
        resolve(layers)
    }
}
