//! The command `autotune log export|import FILE`: exchanges records with other databases as JSON
//! Lines.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, StdoutLock, Write, stdin, stdout};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use autotune_db::{DbError, OnInvalid, TuningDb};

use super::file::{NewFile, check_ours};
use super::shared::{open_db, refusal, warn};
use crate::args::{DbArgs, Failure, LogAction, RecordsArgs};
use crate::interrupt;
use crate::output::say;

pub(super) fn run(action: LogAction) -> Result<()> {
    match action {
        LogAction::Export { file, salvage: false, db } => export(&file, &db),
        LogAction::Export { file, salvage: true, db } => salvage(&file, &db),
        LogAction::Import { file, skip_invalid, db } => {
            import(&file, if skip_invalid { OnInvalid::Skip } else { OnInvalid::Refuse }, &db)
        }
    }
}

fn export(file: &Path, db: &RecordsArgs) -> Result<()> {
    let db = TuningDb::open_reading(db.place()?.path).map_err(refusal)?;
    let mut output = LogOutput::new(file)?;
    let Some(records) = unless_closed(db.export(&mut output))? else {
        return Ok(());
    };
    output.keep(file)?;
    warn(&db);
    say(format_args!("exported {records} record(s) from {}", db.path().display()));
    Ok(())
}

fn salvage(file: &Path, db: &RecordsArgs) -> Result<()> {
    let path = db.place()?.path;
    if !path.exists() {
        return Err(refusal(DbError::NotFound { path }));
    }
    let mut output = LogOutput::new(file)?;
    let Some(report) = unless_closed(TuningDb::salvage(&path, &mut output))? else {
        return Ok(());
    };
    if report.saved == 0 {
        return Err(anyhow!("nothing in {} is readable", path.display()));
    }
    output.keep(file)?;
    for warning in &report.warnings {
        say(format!("autotune: warning: {warning}"));
    }
    if !report.unreadable.is_empty() {
        say(format_args!("autotune: warning: {} is no longer readable", report.unreadable));
    }
    if report.damaged_pieces > 0 {
        let pieces = report.damaged_pieces;
        say(format_args!("autotune: warning: skipped {pieces} damaged piece(s) of the database's files"));
    }
    say(format_args!("saved {} record(s) from {}", report.saved, path.display()));
    Ok(())
}

/// Destination of exported records: a file, or standard output for `-`.
enum LogOutput {
    Stdout(BufWriter<StdoutLock<'static>>),
    File(NewFile),
}

impl LogOutput {
    fn new(file: &Path) -> Result<Self, Failure> {
        if file == Path::new("-") {
            interrupt::note("the text on standard output is incomplete");
            return Ok(Self::Stdout(BufWriter::new(stdout().lock())));
        }
        check_ours("log export", file, "log of records", |start| start.starts_with(b"{\"version\":"))?;
        NewFile::create(file).map(Self::File).map_err(|error| unusable(file, &error))
    }

    fn keep(self, file: &Path) -> Result<()> {
        match self {
            Self::Stdout(_) => Ok(()),
            Self::File(new) => NewFile::keep_all([new]).with_context(|| file.display().to_string()),
        }
    }
}

impl Write for LogOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::File(new) => new.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::File(new) => new.flush(),
        }
    }
}

/// Returns `None` if the reader of standard output closed it (`| head`), which is not an error.
fn unless_closed<T>(written: Result<T, DbError>) -> Result<Option<T>> {
    match written {
        Err(DbError::Io { cause, .. }) if cause.kind() == ErrorKind::BrokenPipe => Ok(None),
        written => Ok(Some(written.map_err(refusal)?)),
    }
}

fn import(file: &Path, on_invalid: OnInvalid, db: &DbArgs) -> Result<()> {
    // An import is not one transaction: Ctrl-C may leave a part of the records in the database.
    interrupt::note("part of the log may have been imported: import it again, records already present are not changed");
    let report = if file == Path::new("-") {
        open_db(db)?.import(stdin().lock(), on_invalid)
    } else {
        let log = BufReader::new(File::open(file).map_err(|e| unusable(file, &e))?);
        open_db(db)?.import(log, on_invalid)
    };
    let report = report.map_err(refusal)?;
    for (line, reason) in &report.first_invalid {
        say(format_args!("autotune: warning: skipped line {line} of the log: {reason}"));
    }
    if report.invalid_lines > report.first_invalid.len() {
        say(format_args!("autotune: warning: skipped {} lines of the log in total", report.invalid_lines));
    }
    say(format_args!("imported {} record(s), {} already present", report.added, report.skipped_duplicates));
    Ok(())
}

fn unusable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::Usage(format!("{}: {error}", file.display()))
}
