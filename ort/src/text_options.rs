//! Options of sessions that programs give as texts: those of the backend's configuration entries,
//! and of the execution provider.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use autotune_db::{DbError, Snapshot, Source, open_source};
use autotune_network::{Precision, SessionPrecision, Waiting, printable};
use thiserror::Error;

/// Names of the options.
const NAMES: [&str; 5] = ["db", "snapshot", "precision", "max_error", "spin"];

/// Default for the largest relative error of outputs with `precision=auto`.
const MAX_ERROR: f64 = 0.01;

/// Reason that an option is refused. Names have the prefix with which the program gives them.
#[derive(Debug, Error)]
pub enum OptionError {
    /// There is no such option.
    #[error("unknown option {}: the options are {known}", printable(name))]
    Unknown {
        /// Name of the option.
        name: String,
        /// Names of all options.
        known: String,
    },
    /// The value has no meaning.
    #[error("option {name}={}: expected {expected}", printable(value))]
    Value {
        /// Name of the option.
        name: String,
        /// Value as the program gives it.
        value: String,
        /// Description of the values that have a meaning.
        expected: &'static str,
    },
    /// The schedules cannot be read.
    #[error("option {name}={}: {source}", printable(path))]
    Schedules {
        /// Name of the option.
        name: String,
        /// Path as the program gives it.
        path: String,
        /// Cause of the failure.
        source: Box<DbError>,
    },
    /// Two options exclude each other.
    #[error("options {first} and {second} exclude each other: give one of them")]
    Both {
        /// Name of an option.
        first: String,
        /// Name of the other option.
        second: String,
    },
    /// The option has an effect only with another one.
    #[error("option {name}: expected only with {needed}")]
    Alone {
        /// Name of the option.
        name: String,
        /// Missing option with its value.
        needed: String,
    },
}

/// Schedules, precision and threads of a session, read from texts.
pub struct TextOptions {
    /// Source of schedules; `None` for the user's database.
    pub source: Option<Arc<dyn Source>>,
    /// Precision of the computation.
    pub precision: SessionPrecision,
    /// Behaviour of helper threads that wait; `None` for the caller's default.
    pub waiting: Option<Waiting>,
}

impl TextOptions {
    /// Reads options by their names, such as `db`. Programs give the names with the prefix.
    /// Fails for names that are neither options nor among the caller's `others`.
    pub fn of(given: &BTreeMap<&str, &str>, prefix: &str, others: &[&str]) -> Result<Self, OptionError> {
        let known: Vec<&str> = others.iter().chain(&NAMES).copied().collect();
        if let Some(name) = given.keys().find(|name| !known.contains(name)) {
            let known: Vec<String> = known.iter().map(|name| format!("{prefix}{name}")).collect();
            return Err(OptionError::Unknown { name: format!("{prefix}{name}"), known: known.join(", ") });
        }

        let texts = GivenTexts { given, prefix };
        Ok(Self { source: texts.source()?, precision: texts.precision()?, waiting: texts.waiting()? })
    }
}

/// Options as a program gives them.
struct GivenTexts<'a> {
    given: &'a BTreeMap<&'a str, &'a str>,
    prefix: &'a str,
}

impl GivenTexts<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.given.get(name).copied()
    }

    /// Returns the name with which a program gives an option.
    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn wrong(&self, name: &str, value: &str, expected: &'static str) -> OptionError {
        OptionError::Value { name: self.full(name), value: value.into(), expected }
    }

    fn source(&self) -> Result<Option<Arc<dyn Source>>, OptionError> {
        let (name, path) = match (self.get("db"), self.get("snapshot")) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(OptionError::Both { first: self.full("db"), second: self.full("snapshot") });
            }
            (Some(path), None) => ("db", path),
            (None, Some(path)) => ("snapshot", path),
        };
        let opened = match name {
            "db" => open_source(path).map(Arc::from),
            _ => Snapshot::open(Path::new(path)).map(|file| Arc::new(file) as Arc<dyn Source>).map_err(DbError::from),
        };
        let refused =
            |source| OptionError::Schedules { name: self.full(name), path: path.into(), source: Box::new(source) };
        opened.map(Some).map_err(refused)
    }

    fn precision(&self) -> Result<SessionPrecision, OptionError> {
        let (word, max_error) = (self.get("precision").unwrap_or(Precision::F32.word()), self.max_error()?);
        if word == "auto" {
            let max_error = max_error.unwrap_or(MAX_ERROR);
            return Ok(SessionPrecision::Fastest { max_error, examples: BTreeMap::new() });
        }

        let precision = Precision::of_cpus(word).map_err(|_| self.wrong("precision", word, "f32, bf16 or auto"))?;
        match max_error {
            None => Ok(SessionPrecision::In(precision)),
            Some(_) => {
                Err(OptionError::Alone { name: self.full("max_error"), needed: self.full("precision") + "=auto" })
            }
        }
    }

    fn waiting(&self) -> Result<Option<Waiting>, OptionError> {
        let Some(word) = self.get("spin") else { return Ok(None) };
        Waiting::of_spin(word).map(Some).ok_or_else(|| self.wrong("spin", word, "on, brief or off"))
    }

    fn max_error(&self) -> Result<Option<f64>, OptionError> {
        let Some(text) = self.get("max_error") else { return Ok(None) };
        let error = text.parse().ok().filter(|error: &f64| *error >= 0.0 && error.is_finite());
        error.map(Some).ok_or_else(|| self.wrong("max_error", text, "a relative error such as 0.01"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_db::SnapshotWriter;

    use super::*;

    fn options(given: &[(&str, &str)]) -> Result<TextOptions, OptionError> {
        TextOptions::of(&given.iter().copied().collect(), "autotune.", &[])
    }

    fn refused(given: &[(&str, &str)]) -> String {
        options(given).err().unwrap().to_string()
    }

    #[test]
    fn schedules_come_from_a_database_or_a_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let (file, here) = (folder.path().join("tuned.snapshot"), folder.path().to_str().unwrap());
        SnapshotWriter::default().write(&file).unwrap();
        let snapshot = ("snapshot", file.to_str().unwrap());

        assert!(options(&[]).unwrap().source.is_none());
        assert!(options(&[snapshot]).unwrap().source.is_some());
        assert!(options(&[("db", snapshot.1)]).unwrap().source.is_some());
        // A folder may be a database, and is no snapshot.
        assert!(refused(&[("snapshot", here)]).starts_with(&format!("option autotune.snapshot={here}: ")));
        assert_eq!(
            refused(&[snapshot, ("db", here)]),
            "options autotune.db and autotune.snapshot exclude each other: give one of them"
        );
    }

    #[test]
    fn the_error_bounds_the_fastest_precision() {
        let most = |given: &[(&str, &str)]| match options(given).unwrap().precision {
            SessionPrecision::Fastest { max_error, .. } => Some(max_error),
            SessionPrecision::In(_) => None,
        };
        assert_eq!(most(&[]), None);
        assert_eq!(most(&[("precision", "bf16")]), None);
        assert_eq!(most(&[("precision", "auto")]), Some(MAX_ERROR));
        assert_eq!(most(&[("precision", "auto"), ("max_error", "0.5")]), Some(0.5));

        for wrong in ["-1", "NaN", "inf", "small", ""] {
            assert_eq!(
                refused(&[("precision", "auto"), ("max_error", wrong)]),
                format!("option autotune.max_error={wrong}: expected a relative error such as 0.01")
            );
        }
        let alone = refused(&[("precision", "f32"), ("max_error", "0.5")]);
        assert_eq!(alone, "option autotune.max_error: expected only with autotune.precision=auto");
    }

    #[test]
    fn programs_may_say_how_helpers_wait() {
        let waiting = |given: &[(&str, &str)]| options(given).unwrap().waiting;
        assert_eq!([waiting(&[]), waiting(&[("spin", "on")])], [None, Some(Waiting::Spin)]);
        assert_eq!(
            ["brief", "off"].map(|word| waiting(&[("spin", word)])),
            [Waiting::Briefly, Waiting::Sleep].map(Some)
        );
        assert_eq!(refused(&[("spin", "maybe")]), "option autotune.spin=maybe: expected on, brief or off");
    }

    #[test]
    fn unknown_options_are_refused_with_the_known_ones() {
        let unknown = refused(&[("precission", "f32")]);
        assert!(unknown.starts_with("unknown option autotune.precission: the options are autotune.db, "), "{unknown}");
        assert!(TextOptions::of(&[("threads", "1")].into(), "", &["threads"]).is_ok());
    }
}
