//! Journal: the copy of the records that readers can read while the writer appends to it.
//!
//! It has one line of text per record, in the order of appending, with fields separated by tabs:
//!
//! ```text
//! CHECKSUM  LEFT  PLACE  TARGET  WORKLOAD  RECORD
//! ```
//!
//! CHECKSUM covers everything after its tab. LEFT is the number of lines of the same append that
//! follow, so that an append is read as a whole or not at all. PLACE is the record's position in
//! its task; records restored from the storage engine may come after later ones. A last line
//! without a line end is ignored.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::checksum::{checksum, is_checksum};
use crate::error::DbError;
use crate::files::{io_error, set_aside_name, sync_folder};
use crate::keys::{FiledRecord, Records, TaskKey};

/// Attempts of a reader to read a damaged journal: the writer may just be undoing an unfinished
/// append.
const READS: usize = 4;
const BETWEEN_READS: Duration = Duration::from_millis(5);

/// Size of the read buffer. Reading the whole file at once would need as much memory again as the
/// lines that are kept, and the system would have to clear it.
const BUFFER_BYTES: usize = 1 << 16;

/// Content of a journal.
#[derive(Debug, Default)]
pub(crate) struct JournalContents {
    pub(crate) records: Records,
    /// Records at the end whose append was not finished.
    pub(crate) unfinished: Vec<FiledRecord>,
    /// Numbers of the unreadable lines, from 1.
    pub(crate) damaged_lines: Vec<u64>,
    /// Offset in bytes at which the last finished append ends.
    pub(crate) end: u64,
}

/// Reads the journal; `None` if the file does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<JournalContents>, DbError> {
    match File::open(path).and_then(|file| parse(BufReader::with_capacity(BUFFER_BYTES, file))) {
        Ok(contents) => Ok(Some(contents)),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io_error("cannot read", path)(e)),
    }
}

/// Reads the journal while another process may be writing to it.
pub(crate) fn read_while_written(path: &Path) -> Result<Option<JournalContents>, DbError> {
    let mut contents = read(path)?;
    for _ in 1..READS {
        if contents.as_ref().is_none_or(|contents| contents.damaged_lines.is_empty()) {
            break;
        }
        std::thread::sleep(BETWEEN_READS);
        contents = read(path)?;
    }
    Ok(contents)
}

fn parse(mut journal: impl BufRead) -> io::Result<JournalContents> {
    let mut parser = Parser::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        journal.read_until(b'\n', &mut line)?;
        if line.pop_if(|end| *end == b'\n').is_none() {
            break;
        }
        parser.take(&line);
    }
    parser.contents.unfinished = parser.append;
    Ok(parser.contents)
}

/// State of parsing a journal.
#[derive(Default)]
struct Parser {
    contents: JournalContents,
    /// Entries of the append being read, and the number of lines that it still lacks.
    append: Vec<FiledRecord>,
    left: u64,
    lines: u64,
    at: u64,
}

impl Parser {
    /// Parses the next line, without its line end.
    fn take(&mut self, line: &[u8]) {
        self.lines += 1;
        self.at += line.len() as u64 + 1;
        match parse_line(line) {
            Some((still_left, entry)) => {
                // Damage removed the end of the previous append, and this line belongs to another
                // one.
                if self.left != still_left + 1 {
                    self.finish();
                }
                self.append.push(entry);
                self.left = still_left;
            }
            None => {
                self.contents.damaged_lines.push(self.lines);
                self.left = 0;
            }
        }
        if self.left == 0 {
            self.finish();
            self.contents.end = self.at;
        }
    }

    /// Moves the entries of the append to the contents.
    fn finish(&mut self) {
        self.append.drain(..).for_each(|entry| self.contents.records.insert(entry));
    }
}

/// Returns the number of lines left in the append, and the entry; `None` if the line is damaged.
fn parse_line(line: &[u8]) -> Option<(u64, FiledRecord)> {
    let (digits, rest) = std::str::from_utf8(line).ok()?.split_once('\t')?;
    if !is_checksum(digits, rest.as_bytes()) {
        return None;
    }
    let mut fields = rest.splitn(5, '\t');
    let mut field = || fields.next();
    let (left, place) = (field()?.parse().ok()?, field()?.parse().ok()?);
    let task = TaskKey { target: field()?.to_string(), workload: field()?.to_string() };
    Some((left, FiledRecord { task, place, line: field()?.to_string() }))
}

fn write_line(text: &mut String, left: usize, task: &TaskKey, place: u64, line: &str) {
    let rest = format!("{left}\t{place}\t{}\t{}\t{line}", task.target, task.workload);
    text.push_str(&format!("{}\t{rest}\n", checksum(&rest)));
}

/// Journal opened by its only writer.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Offset in bytes at which the last finished append ends.
    end: u64,
}

impl Journal {
    /// Opens or creates the journal, and truncates it to `end`.
    pub(crate) fn open(path: &Path, end: u64) -> Result<Self, DbError> {
        let failed = io_error("cannot write", path);
        let file = OpenOptions::new().append(true).create(true).open(path).map_err(&failed)?;
        if file.metadata().map_err(&failed)?.len() != end {
            file.set_len(end).map_err(&failed)?;
        }
        Ok(Self { path: path.to_path_buf(), file, end })
    }

    /// Replaces a damaged journal by a new one with these records. The damaged one is renamed; its
    /// new name is returned.
    pub(crate) fn rewrite(path: &Path, records: &Records) -> Result<(Self, PathBuf), DbError> {
        let failed = io_error("cannot write", path);
        let (new_path, aside) = (path.with_extension("new"), set_aside_name(path));
        let mut text = String::new();
        records.iter().for_each(|(task, place, line)| write_line(&mut text, 0, task, place, line));

        // Copy first, so that a journal exists at every moment: the old one or the new one.
        let write = || -> io::Result<()> {
            fs::copy(path, &aside)?;
            let mut file = File::create(&new_path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new_path, path)
        };
        write().map_err(failed)?;
        sync_folder(path)?;
        Ok((Self::open(path, text.len() as u64)?, aside))
    }

    /// Appends records. If that fails, some of them may have been written, see
    /// [`cut_back_to`](Self::cut_back_to).
    pub(crate) fn append(&mut self, entries: &[FiledRecord]) -> Result<(), DbError> {
        let mut text = String::new();
        for (left, entry) in (0..entries.len()).rev().zip(entries) {
            write_line(&mut text, left, &entry.task, entry.place, &entry.line);
        }
        self.file.write_all(text.as_bytes()).map_err(io_error("cannot write", &self.path))?;
        self.end += text.len() as u64;
        Ok(())
    }

    /// Returns the offset in bytes at which the last finished append ends.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Removes everything appended after `end`.
    pub(crate) fn cut_back_to(&mut self, end: u64) -> Result<(), DbError> {
        self.file.set_len(end).map_err(io_error("cannot undo an unfinished append in", &self.path))?;
        self.end = end;
        Ok(())
    }

    /// Makes all appended records durable.
    pub(crate) fn sync(&self) -> Result<(), DbError> {
        self.file.sync_data().map_err(io_error("cannot flush", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(place: u64) -> FiledRecord {
        let task = TaskKey { target: "cpu:x".into(), workload: "matmul:m=1,n=2,k=3".into() };
        FiledRecord { task, place, line: format!("{{\"number\":{place},\"word\":\"ü\"}}") }
    }

    /// Writes appends of 1, 3 and 2 records. Returns the file's bytes and the end of each append.
    fn journal(path: &Path) -> (Vec<u8>, Vec<u64>) {
        let mut journal = Journal::open(path, 0).unwrap();
        let mut ends = Vec::new();
        for batch in [0..1, 1..4, 4..6] {
            journal.append(&batch.map(entry).collect::<Vec<_>>()).unwrap();
            ends.push(journal.end());
        }
        (fs::read(path).unwrap(), ends)
    }

    #[test]
    fn a_journal_cut_off_anywhere_holds_the_appends_that_were_finished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (bytes, ends) = journal(&path);
        for cut in 0..=bytes.len() {
            let contents = parse(&bytes[..cut]).unwrap();
            let finished = ends.iter().filter(|&&end| end <= cut as u64).count();
            assert_eq!(contents.records.iter().count(), [0, 1, 4, 6][finished], "cut at {cut}");
            assert_eq!(contents.end, finished.checked_sub(1).map_or(0, |last| ends[last]), "cut at {cut}");
            assert!(contents.damaged_lines.is_empty(), "cut at {cut}");

            fs::write(&path, &bytes[..cut]).unwrap();
            Journal::open(&path, contents.end).unwrap().append(&[entry(9)]).unwrap();
            let records = read(&path).unwrap().unwrap().records;
            assert_eq!(records.iter().count(), [1, 2, 5, 7][finished], "cut at {cut}, then appended to");
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed_and_costs_at_most_two_lines() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, _) = journal(&dir.path().join("journal"));
        let whole = parse(&*bytes).unwrap().records;
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut contents = parse(&*damaged).unwrap();
            // A flip in the final line end makes the last line look unfinished.
            assert!(!contents.damaged_lines.is_empty() || bit / 8 == bytes.len() - 1, "bit {bit}");
            contents.unfinished.drain(..).for_each(|entry| contents.records.insert(entry));
            let found: Vec<_> = contents.records.iter().collect();
            assert!(found.len() >= 4 && found.iter().all(|(task, place, line)| whole.get(task, *place) == Some(line)));
        }
    }

    #[test]
    fn a_rewritten_journal_holds_the_records_and_the_damaged_one_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (mut bytes, _) = journal(&path);
        bytes[40] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let records = read(&path).unwrap().unwrap().records;
        let (mut journal, aside) = Journal::rewrite(&path, &records).unwrap();
        assert_eq!(fs::read(aside).unwrap(), bytes);
        journal.append(&[entry(0)]).unwrap();
        assert_eq!(read(&path).unwrap().unwrap().records.iter().count(), 6);
    }
}
