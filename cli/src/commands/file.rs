//! Output files that replace old ones only when they are complete.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::args::Failure;
use crate::interrupt::Unfinished;

/// Checks the path of an output file: its folder exists and can be written to, and an existing file
/// there may be replaced ([`check_ours`]).
pub(super) fn check_output(
    option: &str,
    file: &Path,
    what: &str,
    is_one: impl Fn(&[u8]) -> bool,
) -> Result<(), Failure> {
    let unusable = |why: &str| Failure::Usage(format!("{option} {}: {why}", file.display()));
    if file.is_dir() || file.file_name().is_none() {
        return Err(unusable("is a folder; specify a file in it"));
    }
    if !folder(file).is_dir() {
        return Err(unusable("the folder does not exist"));
    }
    // A pipe or device is opened in place, so nothing is created in its folder.
    let is_special = file.exists() && !file.is_file();
    let there = fs::canonicalize(file).unwrap_or_else(|_| file.to_path_buf());
    if !is_special {
        check_folder(folder(&there)).map_err(|error| unusable(&error.to_string()))?;
    }
    check_ours(option, file, what, is_one)
}

/// Number of bytes at the start of a file that identify its format.
const TELLING_BYTES: u64 = 512;

/// Checks that an existing file may be replaced: it is empty, or `is_one` recognises its first
/// bytes as the format to be written. A missing file passes.
pub(super) fn check_ours(option: &str, file: &Path, what: &str, is_one: impl Fn(&[u8]) -> bool) -> Result<(), Failure> {
    if !file.is_file() {
        return Ok(());
    }
    let refused = |why: &str| Failure::Usage(format!("{option} {}: {why}", file.display()));
    let mut start = Vec::new();
    let read = File::open(file).and_then(|file| file.take(TELLING_BYTES).read_to_end(&mut start));
    read.map_err(|error| refused(&error.to_string()))?;
    if start.is_empty() || is_one(&start) {
        return Ok(());
    }
    Err(refused(&format!("exists and is not a {what}; remove it or specify another file")))
}

/// Checks that files can be created in a folder, or in its nearest existing parent if the folder is
/// still to be created.
pub(super) fn check_folder(folder: &Path) -> io::Result<()> {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    tempfile::tempfile_in(there).map(drop)
}

/// Returns the folder of a file: its parent, or `.`.
fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An output file under a temporary name, so that readers of the final path find either the old
/// content or the complete new one. A symbolic link stays a link; a pipe or device is written
/// directly.
pub(super) struct NewFile {
    out: BufWriter<File>,
    /// `None` for a pipe or device, which needs no rename.
    unfinished: Option<Unfinished>,
}

impl NewFile {
    pub(super) fn create(file: &Path) -> io::Result<Self> {
        let old = fs::metadata(file).ok();
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Ok(Self { out: BufWriter::new(File::options().write(true).open(file)?), unfinished: None });
        }
        let place = if old.is_some() { fs::canonicalize(file)? } else { file.to_path_buf() };

        // A new file has the permissions of the user's umask; a replaced one keeps its own.
        let permissions = old.map_or_else(|| Permissions::from_mode(0o666), |old| old.permissions());
        let (new, unfinished) = Unfinished::create(folder(&place), file, &place, permissions)?;
        Ok(Self { out: BufWriter::new(new), unfinished: Some(unfinished) })
    }

    /// Moves files to their final paths once all of them are completely written.
    pub(super) fn keep_all(files: impl IntoIterator<Item = Self>) -> io::Result<()> {
        let written = |mut file: Self| file.out.flush().map(|()| file.unfinished);
        let written = files.into_iter().map(written).collect::<io::Result<Vec<_>>>()?;
        Unfinished::keep_all(written.into_iter().flatten())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a file and moves it to its final path when it is complete.
pub(super) fn replace(file: &Path, write: impl FnOnce(&mut NewFile) -> io::Result<()>) -> io::Result<()> {
    let mut new = NewFile::create(file)?;
    write(&mut new)?;
    NewFile::keep_all([new])
}
