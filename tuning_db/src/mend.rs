//! Opening a database for writing: the records of the journal and those of the storage engine are
//! compared, and each copy is repaired from the other. Repairs are reported as warnings; opening
//! fails if records that were durable are in neither copy.

use std::fs;
use std::path::Path;

use crate::engine::{self, Engine};
use crate::error::DbError;
use crate::files::{self, FormatFile, io_error, set_aside_name, write_format};
use crate::flushed::{Flushed, RecordCounts};
use crate::journal::{self, Journal};
use crate::keys::{FiledRecord, Records};
use crate::warning::{TaskCount, TaskCounts, Warning};
use crate::writer::DbWriter;

const JOURNAL: &str = "the journal";
const ENGINE: &str = "the storage engine's copy";

/// Database opened for writing: its records, and warnings about repairs.
pub(crate) struct Opened {
    pub(crate) records: Records,
    pub(crate) writer: DbWriter,
    pub(crate) warnings: Vec<Warning>,
}

/// Opens the database at `path` for writing; creates it if nothing exists there.
pub(crate) fn open(path: &Path) -> Result<Opened, DbError> {
    let (hold, layout) = files::take(path)?;
    let engine = match Engine::open(path) {
        Err(error) if !engine::is_damage(&error) => return Err(error),
        opened => opened,
    };
    let mut copies = Copies::read(path, layout, engine)?;
    copies.merge();
    copies.check_lost()?;

    // Repair the journal first: readers use it, so it is complete whatever happens to the engine.
    let journal = copies.mend_journal()?;
    let engine = copies.repair_engine()?;
    let Copies { records, durable, warnings, is_repaired, .. } = copies;
    let mut writer = DbWriter { journal, engine, flushed: durable, broken: false, _hold: hold };

    if is_repaired || layout != FormatFile::Present {
        let counts = RecordCounts::of(&records);
        writer.journal.sync()?;
        writer.engine.sync()?;
        counts.write(path)?;
        writer.flushed = counts;
    }
    if layout != FormatFile::Present {
        write_format(path)?;
    }
    Ok(Opened { records, writer, warnings })
}

/// Both copies of the records as they were found.
pub(crate) struct Copies<'a> {
    path: &'a Path,
    layout: FormatFile,
    pub(crate) journal: journal::JournalContents,
    /// Open engine; `None` if its files are too damaged to open it.
    engine: Option<Engine>,
    engine_contents: engine::EngineContents,
    /// Record counts that were durable, as far as known.
    pub(crate) durable: RecordCounts,
    /// Number of durable records if only their total is known, not the counts per task; else 0.
    total: u64,
    /// Union of both copies.
    pub(crate) records: Records,
    /// Entries that the journal lacks.
    to_journal: Vec<FiledRecord>,
    pub(crate) warnings: Vec<Warning>,
    /// True if anything had to be repaired.
    is_repaired: bool,
}

impl<'a> Copies<'a> {
    /// Reads both copies without changing them. `engine` is the open engine, or the error if its
    /// files are too damaged.
    pub(crate) fn read(path: &'a Path, layout: FormatFile, engine: Result<Engine, DbError>) -> Result<Self, DbError> {
        let mut copies = Self {
            path,
            layout,
            journal: journal::read_while_written(&files::journal(path))?.unwrap_or_default(),
            engine: None,
            engine_contents: engine::EngineContents::default(),
            durable: RecordCounts::default(),
            total: 0,
            records: Records::default(),
            to_journal: Vec::new(),
            warnings: Vec::new(),
            is_repaired: false,
        };

        match engine {
            Ok(engine) => {
                copies.read_durable(Some(&engine));
                let damage = copies.engine_contents.damage.take();
                copies.engine_contents = engine.read(&copies.durable);
                copies.engine_contents.damage = damage.or(copies.engine_contents.damage.take());
                copies.engine = Some(engine);
            }
            Err(error) => {
                copies.read_durable(None);
                copies.engine_contents.damage = Some(engine::damage(&error));
            }
        }
        copies.warn_of_markers();
        Ok(copies)
    }

    /// Reads the durable record counts: per task, or only the total in the layout without a
    /// journal.
    fn read_durable(&mut self, engine: Option<&Engine>) {
        let flushed = Flushed::read(self.path);
        if self.layout == FormatFile::WithoutJournal {
            self.total = if let Flushed::Total(total) = flushed { total } else { 0 };
            match engine.map(Engine::indexed) {
                Some(Ok(Some(counts))) => self.durable = counts,
                Some(Ok(None)) => self.engine_contents.damage = Some("its records are missing".into()),
                Some(Err(error)) => self.engine_contents.damage = Some(engine::damage(&error)),
                None => {}
            }
            return;
        }
        match flushed {
            Flushed::Counts(counts) => self.durable = counts,
            Flushed::Total(_) => self.unknown_durable("it is damaged"),
            Flushed::Unknown(reason) => self.unknown_durable(reason),
        }
    }

    /// Warns that the durable record counts cannot be read, and marks them for being rewritten.
    fn unknown_durable(&mut self, reason: &str) {
        self.warnings.push(Warning::flushed(self.path, reason));
        self.is_repaired = true;
    }

    /// Warns of a missing FORMAT file, unless the database is empty and therefore new.
    fn warn_of_markers(&mut self) {
        let is_new = self.engine_contents.records.is_empty()
            && self.engine_contents.damage.is_none()
            && self.journal.records.is_empty()
            && self.journal.damaged_lines.is_empty()
            && self.durable == RecordCounts::default();
        match self.layout {
            FormatFile::Unmade if is_new => self.warnings.clear(),
            FormatFile::Unmade => self.warnings.push(Warning::format(self.path)),
            FormatFile::WithoutJournal | FormatFile::Present => {}
        }
    }

    /// Returns how many durable records of each task are in neither copy.
    pub(crate) fn lost(&self) -> TaskCounts {
        let lost = self.durable.lost(&self.records);
        let missing = self.total.saturating_sub(self.records.iter().count() as u64);
        if !lost.is_empty() || missing == 0 {
            return lost;
        }
        let (target, workload) = ("unknown machines".to_string(), "unknown workloads".to_string());
        TaskCounts::new([TaskCount { target, workload, records: missing }])
    }

    /// Computes the union of both copies. If they differ, the journal is right, because its
    /// checksums are longer.
    pub(crate) fn merge(&mut self) {
        self.records = std::mem::take(&mut self.journal.records);

        // If a record of an unfinished append counts as durable, the append did finish, and its end
        // was lost later. So the record is valid.
        let unfinished = std::mem::take(&mut self.journal.unfinished);
        let known = unfinished.into_iter().filter(|entry| self.durable.covers(&entry.task, entry.place));
        self.to_journal = known.collect();

        for (task, place, line) in self.engine_contents.records.iter() {
            match self.records.get(task, place) {
                None => self.to_journal.push(FiledRecord { task: task.clone(), place, line: line.to_string() }),
                Some(journaled) if journaled != line => {
                    self.engine_contents
                        .damage
                        .get_or_insert_with(|| format!("record {place} of {task} differs from the journal"));
                }
                Some(_) => {}
            }
        }
        self.to_journal.iter().for_each(|entry| self.records.insert(entry.clone()));
    }

    /// Computes the union of both copies, including records whose append was not finished.
    pub(crate) fn unite_all(&mut self) {
        let unfinished = std::mem::take(&mut self.journal.unfinished);
        unfinished.into_iter().for_each(|entry| self.journal.records.insert(entry));
        self.merge();
    }

    /// Returns the number of unreadable parts of both copies.
    pub(crate) fn damaged_pieces(&self) -> u64 {
        self.journal.damaged_lines.len() as u64 + u64::from(self.engine_contents.damage.is_some())
    }

    /// Returns how many records, durable or not, are known to be in neither copy.
    pub(crate) fn missing(&self) -> TaskCounts {
        let (lost, gaps) = (self.lost(), self.durable.gaps(&self.records));
        TaskCounts::new(lost.tasks().iter().chain(gaps.tasks()).cloned())
    }

    /// Fails if durable records are in neither copy; warns if other records are missing.
    fn check_lost(&mut self) -> Result<(), DbError> {
        let lost = self.lost();
        if !lost.is_empty() {
            let damage = self.engine_contents.damage.as_ref();
            let detail = damage.map_or(String::new(), |damage| format!(" (the storage engine: {damage})"));
            return Err(DbError::Lost { path: self.path.to_path_buf(), records: lost, detail });
        }
        if let (FormatFile::WithoutJournal, Some(damage)) = (self.layout, &self.engine_contents.damage) {
            return Err(DbError::Corrupt { path: self.path.to_path_buf(), detail: damage.clone() });
        }
        let gaps = self.durable.gaps(&self.records);
        if !gaps.is_empty() {
            let reason = "they were not flushed, or it is unknown whether they were";
            self.warnings.push(Warning::Lost { path: self.path.to_path_buf(), records: gaps, reason });
            self.is_repaired = true;
        }
        Ok(())
    }

    /// Opens the journal after repairing it: a damaged one is rewritten, missing records are
    /// appended.
    fn mend_journal(&mut self) -> Result<Journal, DbError> {
        let journal_path = files::journal(self.path);
        if !self.journal.damaged_lines.is_empty() {
            let (journal, aside) = Journal::rewrite(&journal_path, &self.records)?;
            let reason = format!("{} unreadable line(s)", self.journal.damaged_lines.len());
            self.report_replaced(JOURNAL, reason, aside);
            return Ok(journal);
        }

        let mut journal = Journal::open(&journal_path, self.journal.end)?;
        if !self.to_journal.is_empty() {
            journal.append(&self.to_journal)?;
            let mut added = Records::default();
            self.to_journal.drain(..).for_each(|entry| added.insert(entry));
            if self.layout != FormatFile::WithoutJournal {
                self.report_restored(JOURNAL, &added);
            }
        }
        Ok(journal)
    }

    /// Opens the engine after repairing it: a damaged one is replaced, missing records are
    /// inserted.
    fn repair_engine(&mut self) -> Result<Engine, DbError> {
        let mut missing = Records::default();
        for (task, place, line) in self.records.iter() {
            if self.engine_contents.records.get(task, place).is_none() {
                missing.insert(FiledRecord { task: task.clone(), place, line: line.to_string() });
            }
        }
        let was_durable = missing.iter().any(|(task, place, _)| self.durable.covers(task, place));
        let lacks = was_durable && !self.engine_contents.records.is_empty();
        let damage = self.engine_contents.damage.take();
        let damage = damage.or(lacks.then(|| format!("it was missing {}", counts(&missing))));

        let engine = match (self.engine.take(), damage) {
            (Some(engine), None) => engine,
            (engine, damage) => {
                drop(engine);
                let (folder, aside) = (Engine::folder(self.path), set_aside_name(&Engine::folder(self.path)));
                fs::rename(&folder, &aside).map_err(io_error("cannot rename", &folder))?;
                self.report_replaced(ENGINE, damage.unwrap_or_default(), aside);
                let engine = Engine::open(self.path)?;
                engine.fill(&self.records)?;
                return Ok(engine);
            }
        };
        if !missing.is_empty() {
            engine.fill(&missing)?;
            if was_durable {
                self.report_restored(ENGINE, &missing);
            }
        }
        Ok(engine)
    }

    fn report_restored(&mut self, copy: &'static str, records: &Records) {
        let path = self.path.to_path_buf();
        self.warnings.push(Warning::Restored { path, copy, records: counts(records) });
        self.is_repaired = true;
    }

    fn report_replaced(&mut self, copy: &'static str, reason: String, aside: std::path::PathBuf) {
        self.warnings.push(Warning::Remade { path: self.path.to_path_buf(), copy, reason, aside });
        self.is_repaired = true;
    }
}

/// Returns the number of records of each task.
fn counts(records: &Records) -> TaskCounts {
    TaskCounts::new(records.0.iter().map(|(task, lines)| TaskCount::new(task, lines.len() as u64)))
}
