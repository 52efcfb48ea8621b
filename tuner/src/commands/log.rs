//! `autotune log export|import FILE`.

use std::fs::File;
use std::io::{BufReader, BufWriter, stdin, stdout};
use std::path::Path;

use anyhow::Result;

use super::{open_db, refusal};
use crate::cli::{DbArgs, Failure, LogAction};
use autotune_db::TuningDb;

pub(super) fn run(action: LogAction) -> Result<()> {
    match action {
        LogAction::Export { file, db } => export(&file, &db),
        LogAction::Import { file, db } => import(&file, &db),
    }
}

fn export(file: &Path, db: &DbArgs) -> Result<()> {
    let db = TuningDb::open_existing(db.path()?).map_err(refusal)?;
    let records = if file == Path::new("-") {
        db.export(BufWriter::new(stdout().lock()))?
    } else {
        db.export(BufWriter::new(File::create(file).map_err(|e| unusable(file, &e))?))?
    };
    eprintln!("exported {records} record(s) from {}", db.path().display());
    Ok(())
}

fn import(file: &Path, db: &DbArgs) -> Result<()> {
    let report = if file == Path::new("-") {
        open_db(db)?.import(stdin().lock())
    } else {
        let log = BufReader::new(File::open(file).map_err(|e| unusable(file, &e))?);
        open_db(db)?.import(log)
    };
    let report = report.map_err(refusal)?;
    eprintln!("imported {} record(s), {} already there", report.added, report.skipped_duplicates);
    Ok(())
}

fn unusable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", file.display()))
}
