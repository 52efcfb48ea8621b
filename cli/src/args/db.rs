//! Arguments that locate databases and snapshots.

use std::path::{Path, PathBuf};

use autotune_db::TuningDb;
use clap::Args;

use super::Failure;

/// Path at which a database or a snapshot is opened.
pub(crate) struct DatabasePath {
    pub(crate) path: PathBuf,
    /// True if the command line names the path: a missing database is then an error, not an empty
    /// one.
    pub(crate) is_given: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DbArgs {
    /// The tuning database, created if absent [default: $AUTOTUNE_DB, else autotune/db in the
    /// user's data directory]
    #[arg(long, value_name = "PATH")]
    db: Option<PathBuf>,
}

impl DbArgs {
    pub(crate) fn place(&self) -> Result<DatabasePath, Failure> {
        place(self.db.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct RecordsArgs {
    /// The tuning database [default: $AUTOTUNE_DB, else autotune/db in the user's data directory]
    #[arg(long, value_name = "PATH")]
    db: Option<PathBuf>,
}

impl RecordsArgs {
    pub(crate) fn place(&self) -> Result<DatabasePath, Failure> {
        place(self.db.as_deref())
    }
}

#[derive(Debug, Args)]
pub(crate) struct LookupArgs {
    /// The tuning database or snapshot in which to look up [default: $AUTOTUNE_DB, else autotune/db
    /// in the user's data directory]
    #[arg(long, value_name = "PATH")]
    db: Option<PathBuf>,
}

impl LookupArgs {
    pub(crate) fn place(&self) -> Result<DatabasePath, Failure> {
        place(self.db.as_deref())
    }
}

/// Returns the given path, else the default one.
fn place(given: Option<&Path>) -> Result<DatabasePath, Failure> {
    let path = given.map(Path::to_path_buf).or_else(TuningDb::default_path);
    let path =
        path.ok_or_else(|| Failure::Usage("no path for the tuning database: use --db PATH or set AUTOTUNE_DB".into()))?;
    Ok(DatabasePath { path, is_given: given.is_some() })
}
