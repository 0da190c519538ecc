//! Layers of settings. Flags take precedence over the environment, the environment over the file,
//! and the file over the defaults.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use super::{
    parse_cluster, parse_host,
    settings::{CONFIG, LISTEN, SETTINGS, StartArgs, variable_name},
};
use crate::{
    output::Problem,
    values::{Number, must_be},
};

/// Layer of a value, as named in error messages.
#[derive(Clone, Debug)]
enum SettingLayer {
    Flag,
    Variable,
    File(PathBuf),
    Default,
}

impl SettingLayer {
    /// Returns the rank of the layer. A lower rank takes precedence.
    const fn precedence_rank(&self) -> u8 {
        match self {
            Self::Flag => 0,
            Self::Variable => 1,
            Self::File(_) => 2,
            Self::Default => 3,
        }
    }
}

/// A value, with the name of its setting and its layer.
struct SettingValue {
    name: &'static str,
    text: String,
    source: SettingLayer,
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, source, .. } = self;
        match source {
            SettingLayer::Flag | SettingLayer::Default => write!(f, "--{name}"),
            SettingLayer::Variable => f.write_str(&variable_name(name)),
            SettingLayer::File(file) => write!(f, "{}: {name}", file.display()),
        }
    }
}

impl SettingValue {
    fn parse<T>(
        &self,
        what: impl fmt::Display,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Problem> {
        parse(&self.text).ok_or_else(|| self.invalid_value(what, &self.text))
    }

    fn parse_number<T: TryFrom<u64>>(&self, limits: Number) -> Result<T, Problem> {
        let number = limits.parse(&self.text);
        number.ok_or_else(|| self.invalid_value(limits, &limits.got(&self.text)))
    }

    fn invalid_value(&self, what: impl fmt::Display, got: &str) -> Problem {
        let hint = "'quorate help start' describes the flag, variable or key of this name";
        Problem::usage_error(format_args!("{self} {}", must_be(what, got))).with_hint(hint)
    }
}

/// All layers except the defaults.
pub(super) struct Layers<'a> {
    flags: &'a StartArgs,
    environment: &'a dyn Fn(&str) -> Option<String>,
    file: BTreeMap<String, String>,
    path: PathBuf,
}

impl<'a> Layers<'a> {
    /// Reads all layers, including the configuration file if one is given.
    pub(super) fn read_layers(
        flags: &'a StartArgs,
        environment: &'a dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Problem> {
        let mut layers = Self { flags, environment, file: BTreeMap::new(), path: PathBuf::new() };
        if let Some(given) = layers.find(CONFIG) {
            layers.path = PathBuf::from(given.text);
            layers.file = read_file(&layers.path)?;
        }
        Ok(layers)
    }

    fn find(&self, name: &'static str) -> Option<SettingValue> {
        let given = |text: String, source| SettingValue { name, text, source };
        if let Some(text) = self.flags.0.get(name) {
            return Some(given(text.clone(), SettingLayer::Flag));
        }
        if let Some(text) = (self.environment)(&variable_name(name)).filter(|text| !text.is_empty())
        {
            return Some(given(text, SettingLayer::Variable));
        }
        if let Some(text) = self.file.get(name) {
            return Some(given(text.clone(), SettingLayer::File(self.path.clone())));
        }
        let setting = SETTINGS.iter().find(|setting| setting.name == name)?;
        Some(given(setting.default.text()?, SettingLayer::Default))
    }

    /// Returns the value of a setting, or else its default. Returns `None` if it has neither.
    pub(super) fn text(&self, name: &'static str) -> Option<String> {
        self.find(name).map(|given| given.text)
    }

    pub(super) fn optional<T>(
        &self,
        name: &'static str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        self.find(name).map(|given| given.parse(what, parse)).transpose()
    }

    pub(super) fn required<T>(
        &self,
        name: &'static str,
        what: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Problem> {
        let missing = || {
            Problem::usage_error(format_args!("--{name} is missing"))
                .with_hint(format!("give --{name}, or set {}", variable_name(name)))
        };
        self.find(name).ok_or_else(missing)?.parse(what, parse)
    }

    /// Returns the host of `--listen` combined with `port`, if `--listen` was given.
    pub(super) fn listen_address(&self, port: u16) -> Result<Option<String>, Problem> {
        let host = self.optional(LISTEN, "a name or an address without a port", parse_host)?;
        Ok(host.map(|host| format!("{host}:{port}")))
    }

    /// Returns an optional address. The host of `--listen` combined with `port` overrides the
    /// setting if `--listen` comes from a layer of higher precedence.
    pub(super) fn optional_address(
        &self,
        name: &'static str,
        port: u16,
        what: &str,
        parse: impl FnOnce(&str) -> Option<String>,
    ) -> Result<Option<String>, Problem> {
        let distance = |name| self.find(name).map(|given| given.source.precedence_rank());
        match (distance(LISTEN), distance(name)) {
            (Some(listen), own) if own.is_none_or(|own| listen < own) => self.listen_address(port),
            _ => self.optional(name, what, parse),
        }
    }

    /// Returns the value of an address setting that has a default.
    pub(super) fn required_address(
        &self,
        name: &'static str,
        port: u16,
        what: &str,
        parse: impl FnOnce(&str) -> Option<String>,
    ) -> Result<String, Problem> {
        let found = self.optional_address(name, port, what, parse)?;
        Ok(found.expect("its setting has a default"))
    }

    /// Returns the value of a numeric setting that has a default.
    pub(super) fn number_or_default<T: TryFrom<u64>>(
        &self,
        name: &'static str,
        limits: Number,
    ) -> Result<T, Problem> {
        let given = self.find(name).expect("its setting has a default");
        given.parse_number(limits)
    }

    /// Returns the value of a numeric setting without a default.
    pub(super) fn optional_number<T: TryFrom<u64>>(
        &self,
        name: &'static str,
        limits: Number,
    ) -> Result<Option<T>, Problem> {
        self.find(name).map(|given| given.parse_number(limits)).transpose()
    }
}

fn read_file(path: &Path) -> Result<BTreeMap<String, String>, Problem> {
    let shown = path.display();
    let text = fs::read_to_string(path)
        .map_err(|error| Problem::usage_error(format_args!("--config {shown}: {error}")))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        Problem::usage_error(format_args!("{shown}: {}", error.to_string().trim_end()))
    })?;
    let entry = |(key, value): (String, toml::Value)| {
        let known = SETTINGS.iter().any(|setting| setting.name == key) && key != CONFIG;
        if !known {
            let hint = match value {
                toml::Value::Table(_) => "write the keys without sections",
                _ => "the keys are the long flags of 'quorate start'",
            };
            return Err(
                Problem::usage_error(format_args!("{shown}: unknown key {key}")).with_hint(hint)
            );
        }
        match value {
            toml::Value::String(text) => Ok((key, text)),
            toml::Value::Integer(number) => Ok((key, number.to_string())),
            toml::Value::Float(number) => Ok((key, number.to_string())),
            other => {
                let what = format_args!("{shown}: {key} must be text (got {})", kind(&other));
                Err(Problem::usage_error(what)
                    .with_hint(format!("write {key} = {:?}", guess_text(&key, &other))))
            }
        }
    };
    table.into_iter().map(entry).collect()
}

/// Returns a name for the type of a TOML value, for error messages.
const fn kind(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Array(_) => "a list",
        toml::Value::Table(_) => "a section",
        toml::Value::Datetime(_) => "a date",
        toml::Value::String(_) | toml::Value::Integer(_) | toml::Value::Float(_) => "a value",
    }
}

/// Guesses which text the user meant by a value of the wrong type. Falls back to the setting's
/// placeholder.
fn guess_text(key: &str, value: &toml::Value) -> String {
    let meant = match value {
        toml::Value::Boolean(true) => Some("on".to_owned()),
        toml::Value::Boolean(false) => Some("off".to_owned()),
        toml::Value::Array(entries) => {
            let entries = entries.iter().map(|entry| entry.as_str());
            entries.collect::<Option<Vec<_>>>().map(|all| all.join(","))
        }
        toml::Value::Table(table) => {
            let entry = |(node, address): (&String, &toml::Value)| {
                Some(format!("{node}={}", address.as_str()?))
            };
            let entries: Option<Vec<String>> = table.iter().map(entry).collect();
            entries.map(|all| all.join(","))
        }
        _ => None,
    };
    let setting = SETTINGS.iter().find(|setting| setting.name == key);
    let fits = |text: &String| match key {
        "tune" => ["on", "off"].contains(&text.as_str()),
        "cluster" => parse_cluster(text).is_some(),
        _ => false,
    };
    let example = setting.map_or("", |setting| setting.value);
    meant.filter(fits).unwrap_or_else(|| example.to_owned())
}
