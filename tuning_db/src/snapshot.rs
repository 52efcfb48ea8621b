//! Snapshots: read-only files in which deployed programs look up schedules.
//!
//! | module | contents |
//! |---|---|
//! | `layout` | binary layout: header, index, blocks, checksums |
//! | `entry` | [`Entry`]: a schedule in the file |
//! | `find` | [`KeyChain`]: keys of a look-up; [`Snapshot::get`] |
//! | `near` | [`Snapshot::nearest`]: most similar workloads |
//! | `writer` | [`SnapshotWriter`]: from records to a file |
//! | `replace` | atomic replacement of a file |
//! | `check` | [`Snapshot::check`]: verifies every byte and schedule |
//!
//! A snapshot is written as a whole and never changed. Another file of its name replaces it, and a
//! process that has the old one open continues to read that. Any number of processes can therefore
//! read without a lock. The format is described in `docs/snapshot.md`.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use crate::error::SnapshotError;
use crate::record::RECORD_VERSION;

mod check;
mod entry;
mod find;
mod layout;
mod near;
mod replace;
mod writer;

pub use check::{SnapshotFlaw, SnapshotReport};
pub use entry::Entry;
pub use find::KeyChain;
pub use writer::{KeepsTask, LeftOut, SnapshotWriter, Written};

use layout::{Bucket, FORMAT, Header, HeaderFlaw};

/// Snapshot, open for reading. Threads may share a handle.
///
/// Opening reads only the header, and a look-up only what it needs. Each bucket of the index, each
/// record and each block of details has a checksum, which is verified when it is read. Damage is
/// therefore an error, never a wrong schedule or a miss.
///
/// ```
/// use autotune_db::{KeyChain, Snapshot, SnapshotWriter};
/// # use autotune_db::{Phase, Provenance, TuningRecord};
/// # use autotune_measurement::{Measurement, RunSecs};
/// # let record = TuningRecord {
/// #     workload: "matmul:m=64,n=64,k=64".parse()?,
/// #     target: "cpu:AuthenticAMD-25-17:avx512:-:32K+1M+32M:fma4+add3:threads=2".into(),
/// #     config: autotune_schedules::Config { sketch: "direct".into(), knobs: [].into() },
/// #     measurement: Measurement::of(Ok(RunSecs::synthetic(2e-5))),
/// #     phase: Phase::Search,
/// #     provenance: Provenance {
/// #         device: String::new(), backend: None, compiler: String::new(),
/// #         flags: String::new(), tuner_version: String::new(), lowering: 1,
/// #         harness: String::new(), seed: 0, unix_secs: 0,
/// #     },
/// #     imported: false,
/// # };
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("tuning.snapshot");
/// let mut writer = SnapshotWriter::default();
/// writer.add(&record)?; // or writer.add_best_of(&db, ..)
/// writer.write(&path)?;
///
/// let snapshot = Snapshot::open(&path)?;
/// let keys = KeyChain::of(&record.target); // reuse; use this machine's Target::key()
/// let found = snapshot.get(&keys, "matmul:m=64,n=64,k=64")?.ok_or("a miss")?;
/// assert_eq!((found.run_secs(), found.config()?), (2e-5, record.config));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot {
    path: PathBuf,
    bytes: Bytes,
    header: Header,
}

enum Bytes {
    Mapped(Mmap),
    Given(Cow<'static, [u8]>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Given(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("path", &self.path).field("schedules", &self.len()).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// Maps the snapshot at `path` into memory.
    ///
    /// The file must not be changed or truncated while it is open: reading a part that no longer
    /// exists kills the process (SIGBUS). [`SnapshotWriter::write`] replaces the file instead, and
    /// makes it read-only. If other programs might change it nevertheless, read the file and use
    /// [`Snapshot::from_bytes`].
    ///
    /// # Errors
    /// [`NotFound`](SnapshotError::NotFound), [`NotASnapshot`](SnapshotError::NotASnapshot),
    /// [`OtherFormat`](SnapshotError::OtherFormat), [`NewerRecords`](SnapshotError::NewerRecords),
    /// [`Corrupt`](SnapshotError::Corrupt), [`Io`](SnapshotError::Io).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SnapshotError> {
        let path = path.as_ref();
        let failed = |cause: std::io::Error| match cause.kind() {
            ErrorKind::NotFound => SnapshotError::NotFound { path: path.to_path_buf() },
            _ => SnapshotError::Io { action: "cannot read", path: path.to_path_buf(), cause },
        };
        let not_one = |reason| SnapshotError::NotASnapshot { path: path.to_path_buf(), reason };

        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(not_one("it is not a regular file"));
        }
        if metadata.len() == 0 {
            return Err(not_one("it is empty"));
        }
        // SAFETY: the map is only read, as bytes, for which every value is valid. Snapshot files
        // are not changed: the writer completes a file before it gets its name and replaces it as a
        // whole, and the documentation requires the same of other programs.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Self::with(path.to_path_buf(), Bytes::Mapped(map))
    }

    /// Opens a snapshot in memory, read by the caller or part of the program (`include_bytes!`).
    pub fn from_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, SnapshotError> {
        Self::with("(snapshot in memory)".into(), Bytes::Given(bytes.into()))
    }

    fn with(path: PathBuf, bytes: Bytes) -> Result<Self, SnapshotError> {
        let header = match Header::parse(&bytes) {
            Ok(header) => header,
            Err(HeaderFlaw::Magic) => {
                return Err(SnapshotError::NotASnapshot { path, reason: "it does not start with a snapshot header" });
            }
            Err(HeaderFlaw::Format(found)) => {
                return Err(SnapshotError::OtherFormat { path, found, supported: FORMAT });
            }
            Err(HeaderFlaw::Corrupt(detail)) => return Err(SnapshotError::Corrupt { path, detail }),
        };
        if header.record_version > RECORD_VERSION {
            return Err(SnapshotError::NewerRecords { path, found: header.record_version, supported: RECORD_VERSION });
        }
        Ok(Self { path, bytes, header })
    }

    fn bucket(&self, number: u64) -> Result<Bucket, SnapshotError> {
        Bucket::parse(&self.bytes, number).ok_or_else(|| self.corrupt(format!("bucket {number} of its index")))
    }

    /// Returns the content of the block of records at an offset in its section.
    fn record_block(&self, at: u64) -> Result<&[u8], SnapshotError> {
        let (start, end) = (self.header.records_start(), self.header.details_start());
        self.block(start, end, at).ok_or_else(|| self.corrupt(format!("the record at {at}")))
    }

    /// Returns the content of the block of details at an offset in its section.
    fn details_block(&self, at: u64) -> Result<&[u8], SnapshotError> {
        let (start, end) = (self.header.details_start(), self.header.near_start());
        self.block(start, end, at).ok_or_else(|| self.corrupt(format!("the details at {at}")))
    }

    fn block(&self, start: Option<u64>, end: Option<u64>, at: u64) -> Option<&[u8]> {
        let section = self.bytes.get(usize::try_from(start?).ok()?..usize::try_from(end?).ok()?)?;
        layout::block(section, at)
    }

    fn corrupt(&self, what: impl fmt::Display) -> SnapshotError {
        SnapshotError::Corrupt { path: self.path.clone(), detail: format!("{what} is damaged") }
    }

    /// Returns the number of schedules.
    pub fn len(&self) -> u64 {
        self.header.schedules
    }

    /// Returns true if there is no schedule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the time of writing, in seconds since 1970 (UTC).
    pub fn written_unix_secs(&self) -> u64 {
        self.header.written_unix_secs
    }

    /// Returns true if the other snapshot has the same schedules and records; the times of writing
    /// may differ.
    pub fn is_alike(&self, other: &Self) -> bool {
        self.bytes.get(layout::HEADER_BYTES..) == other.bytes.get(layout::HEADER_BYTES..)
    }

    /// Returns the content of the file.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Writes the snapshot to a file, and atomically replaces an older snapshot at `path`, as
    /// [`SnapshotWriter::write`] does.
    ///
    /// # Errors
    /// [`InTheWay`](SnapshotError::InTheWay) if something else is there;
    /// [`Io`](SnapshotError::Io).
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        replace::replace(path.as_ref(), &self.bytes)
    }

    /// Returns the path of the file, or a description if the snapshot is in memory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod forged;
