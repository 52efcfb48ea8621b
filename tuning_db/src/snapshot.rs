//! Snapshots: the file that compilers look schedules up in when they deploy.
//!
//! | module | what it holds |
//! |---|---|
//! | `layout` | the bytes: header, index, blocks, checksums |
//! | `entry` | [`Entry`]: a schedule in the file |
//! | `find` | [`KeyChain`]: the keys that a schedule is looked up under; [`Snapshot::get`] |
//! | `near` | [`Snapshot::nearest`]: the workloads that are the most like one |
//! | `writer` | [`SnapshotWriter`]: from records to a file |
//! | `replace` | one file in another's place, at once |
//! | `check` | [`Snapshot::check`]: every byte and every schedule |
//! | `error` | [`SnapshotError`] |
//!
//! A snapshot is written as a whole and never changed: it is replaced by another file of its name,
//! and whoever has the old one open goes on reading that. So any number of processes read without a
//! lock. Its format is in `docs/snapshot.md`.

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
pub use writer::{LeftOut, SnapshotWriter, Written};

use layout::{Bucket, FORMAT, Header, HeaderFlaw};

/// A snapshot, open for reading. A handle may be shared by threads.
///
/// Opening reads the header only, and a look-up only what it needs: each bucket of the index, each
/// record and each of its details has a checksum, which is compared when it is read. What was
/// damaged is an error, never another schedule or a miss.
///
/// ```
/// use autotune_db::{KeyChain, Snapshot, SnapshotWriter};
/// # use autotune_db::{Phase, Provenance, TuningRecord};
/// # use autotune_measurement::{Measurement, RunSecs};
/// # let record = TuningRecord {
/// #     workload: "matmul:m=64,n=64,k=64".parse()?,
/// #     target: "cpu:AuthenticAMD-25-17:avx512:-:32K+1M+32M:fma4+add3:threads=2".into(),
/// #     config: autotune_schedules::Config { sketch: "direct".into(), knobs: [].into() },
/// #     measurement: Measurement::of(Ok(RunSecs::made_up(2e-5))),
/// #     phase: Phase::Search,
/// #     provenance: Provenance { device: String::new(), backend: None, compiler: String::new(), flags: String::new(),
/// #         tuner_version: String::new(), lowering: 1, harness: String::new(), seed: 0, unix_secs: 0 },
/// #     imported: false,
/// # };
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("tuning.snapshot");
/// let mut writer = SnapshotWriter::default();
/// writer.add(&record)?; // or writer.add_best_of(&db, ..)
/// writer.write(&path)?;
///
/// let snapshot = Snapshot::open(&path)?;
/// let keys = KeyChain::of(&record.target); // once; Target::key() of the machine that asks
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
    /// The file must not be changed or cut short in place while it is open: a process that reads
    /// what is no longer there is killed (SIGBUS). [`SnapshotWriter::write`] replaces the file
    /// instead, and takes the permission to write from it. Where others could change it all the
    /// same, read it and use [`Snapshot::from_bytes`].
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
            return Err(not_one("it is no plain file"));
        }
        if metadata.len() == 0 {
            return Err(not_one("it is empty"));
        }
        // SAFETY: the map is only read, as bytes of which any value is valid. Nobody changes a
        // snapshot's file: it is written before it has its name, and replaced as a whole; the
        // documentation demands it of others.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Self::with(path.to_path_buf(), Bytes::Mapped(map))
    }

    /// The snapshot in memory: read by the caller, or part of the program (`include_bytes!`).
    pub fn from_bytes(bytes: impl Into<Cow<'static, [u8]>>) -> Result<Self, SnapshotError> {
        Self::with("(snapshot in memory)".into(), Bytes::Given(bytes.into()))
    }

    fn with(path: PathBuf, bytes: Bytes) -> Result<Self, SnapshotError> {
        let header = match Header::parse(&bytes) {
            Ok(header) => header,
            Err(HeaderFlaw::Magic) => {
                return Err(SnapshotError::NotASnapshot { path, reason: "it does not begin like one" });
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

    /// Content of a block of records, at a position there.
    fn record_block(&self, at: u64) -> Result<&[u8], SnapshotError> {
        let (start, end) = (self.header.records_start(), self.header.details_start());
        self.block(start, end, at).ok_or_else(|| self.corrupt(format!("the record at {at}")))
    }

    /// Content of a block of details, at a position there.
    fn details_block(&self, at: u64) -> Result<&[u8], SnapshotError> {
        let (start, end) = (self.header.details_start(), self.header.near_start());
        self.block(start, end, at).ok_or_else(|| self.corrupt(format!("the details at {at}")))
    }

    fn block(&self, start: Option<u64>, end: Option<u64>, at: u64) -> Option<&[u8]> {
        let section = self.bytes.get(usize::try_from(start?).ok()?..usize::try_from(end?).ok()?)?;
        layout::block(section, at)
    }

    fn corrupt(&self, what: impl fmt::Display) -> SnapshotError {
        SnapshotError::Corrupt { path: self.path.clone(), detail: format!("{what} is not what was written") }
    }

    /// Number of schedules.
    pub fn len(&self) -> u64 {
        self.header.schedules
    }

    /// True if there is no schedule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When it was written, in seconds since 1970 (UTC).
    pub fn written_unix_secs(&self) -> u64 {
        self.header.written_unix_secs
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod forged;
