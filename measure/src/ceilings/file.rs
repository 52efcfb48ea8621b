//! Ceilings cached in a file per target, so that they are measured once per machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use autotune_ir::Target;
use serde::{Deserialize, Serialize};

use super::cpu::Loops;
use super::{Ceilings, cpu};
use crate::cache_folder;
use crate::error::MeasureError;

/// Version of the measuring method. Cached ceilings of another version are measured again.
const METHOD: u32 = 6;

/// Age after which cached ceilings are measured again: hardware, firmware and operating system
/// change.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Plausible ranges of rates per second and of seconds. A file with other values is damaged.
const CREDIBLE_PER_SEC: std::ops::RangeInclusive<f64> = 1e6..=1e18;
const CREDIBLE_SECS: std::ops::RangeInclusive<f64> = 1e-9..=1.0;

/// Repeats of the multiply-add loop that check cached ceilings, and the factor by which they must
/// be exceeded for the cached measurement to count as disturbed.
const GLANCE_REPEATS: usize = 4;
const BEATEN: f64 = 1.01;

/// Content of a cache file.
#[derive(Serialize, Deserialize)]
struct CeilingsFile {
    method: u32,
    target: String,
    measured_unix_secs: u64,
    ceilings: Ceilings,
}

impl Ceilings {
    /// Returns a CPU's ceilings from the cache, or measures and caches them for a month, in
    /// `$AUTOTUNE_CACHE`, else `$XDG_CACHE_HOME/autotune`, else `~/.cache/autotune`, if that is
    /// writable. Some milliseconds of multiply-adds check whether the machine was disturbed at the
    /// cached measurement: if it is faster now, all ceilings are measured again, and the better
    /// figures are cached.
    pub fn known_or_measure(target: &Target) -> Result<Self, MeasureError> {
        Self::load(cache_folder::find().as_deref(), target)
    }

    fn load(folder: Option<&Path>, target: &Target) -> Result<Self, MeasureError> {
        let Some(known) = folder.and_then(|folder| read(folder, &target.key())) else {
            return Self::kept_in(folder, target, || Self::measure(target));
        };
        let now = Loops::of(cpu(target)?)?.core_flops_per_sec(GLANCE_REPEATS)?;
        if now <= BEATEN * known.core_flops_per_sec {
            return Ok(known);
        }
        let best = Self::measure(target)?.best_of(known);
        folder.into_iter().for_each(|folder| write(folder, &target.key(), best));
        Ok(best)
    }

    /// Returns a target's ceilings from the cache, or calls `measure` and caches the result.
    pub(crate) fn cached_or(
        target: &Target,
        measure: impl FnOnce() -> Result<Self, MeasureError>,
    ) -> Result<Self, MeasureError> {
        Self::kept_in(cache_folder::find().as_deref(), target, measure)
    }

    fn kept_in(
        folder: Option<&Path>,
        target: &Target,
        measure: impl FnOnce() -> Result<Self, MeasureError>,
    ) -> Result<Self, MeasureError> {
        if let Some(known) = folder.and_then(|folder| read(folder, &target.key())) {
            return Ok(known);
        }
        let measured = measure()?;
        folder.into_iter().for_each(|folder| write(folder, &target.key(), measured));
        Ok(measured)
    }
}

/// Returns the path of a target's file. Characters of the key that file names should not have are
/// replaced.
fn file(folder: &Path, target: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    folder.join(format!("ceilings-{}.json", target.chars().map(plain).take(150).collect::<String>()))
}

/// Reads a target's cached ceilings; `None` unless they are plausible and recent.
fn read(folder: &Path, target: &str) -> Option<Ceilings> {
    let kept: CeilingsFile = serde_json::from_slice(&fs::read(file(folder, target)).ok()?).ok()?;
    let measured = UNIX_EPOCH.checked_add(Duration::from_secs(kept.measured_unix_secs))?;
    // Fails for a time in the future, after the clock was set back.
    let is_of_late = SystemTime::now().duration_since(measured).is_ok_and(|age| age <= MAX_AGE);
    let is_it = kept.method == METHOD && kept.target == target;
    (is_it && is_of_late && is_credible(&kept.ceilings)).then_some(kept.ceilings)
}

/// Caches ceilings measured now. Does nothing if the folder is not writable.
fn write(folder: &Path, target: &str, ceilings: Ceilings) {
    let Ok(now) = SystemTime::now().duration_since(UNIX_EPOCH) else { return };
    let target = target.to_string();
    let kept = CeilingsFile { method: METHOD, measured_unix_secs: now.as_secs(), ceilings, target };
    if let Ok(content) = serde_json::to_vec(&kept) {
        cache_folder::keep(&file(folder, &kept.target), &content);
    }
}

fn is_credible(ceilings: &Ceilings) -> bool {
    let Ceilings {
        core_flops_per_sec,
        flops_per_sec,
        half_flops_per_sec,
        tf32_flops_per_sec,
        byte_flops_per_sec,
        bytes_per_sec,
        read_bytes_per_sec,
        cache_bytes,
        fork_join_secs,
    } = ceilings;
    let typed = [half_flops_per_sec, tf32_flops_per_sec, byte_flops_per_sec];
    let rates = [core_flops_per_sec, flops_per_sec, bytes_per_sec];
    rates.into_iter().chain(typed).chain(read_bytes_per_sec).all(|rate| CREDIBLE_PER_SEC.contains(rate))
        && cache_bytes.iter().all(|bytes| (0.0..1e15).contains(bytes))
        && CREDIBLE_SECS.contains(fork_join_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceilings::fault;
    use autotune_ir::CpuTarget;

    const CEILINGS: Ceilings = Ceilings {
        core_flops_per_sec: 1e9,
        flops_per_sec: 2e9,
        half_flops_per_sec: 2e9,
        tf32_flops_per_sec: 2e9,
        byte_flops_per_sec: 2e9,
        bytes_per_sec: 1e9,
        read_bytes_per_sec: [4e9, 2e9, 1e9],
        cache_bytes: [1e3, 1e6],
        fork_join_secs: 1e-6,
    };
    const TARGET: &str = "cpu:model/1:avx2:threads=2";

    #[test]
    fn written_ceilings_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("not").join("yet");
        assert_eq!(read(&folder, TARGET), None);
        write(&folder, TARGET, CEILINGS);
        assert_eq!(read(&folder, TARGET), Some(CEILINGS));
        assert_eq!(read(&folder, "cpu:model_1:avx2:threads=2"), None, "its file has the same name");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn damaged_absurd_and_old_files_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), TARGET, CEILINGS);
        let path = file(dir.path(), TARGET);
        let right = fs::read(&path).unwrap();
        for len in 0..right.len() {
            fs::write(&path, &right[..len]).unwrap();
            assert_eq!(read(dir.path(), TARGET), None);
        }
        let absurd = |change: &dyn Fn(&mut CeilingsFile)| {
            let mut kept: CeilingsFile = serde_json::from_slice(&right).unwrap();
            change(&mut kept);
            fs::write(&path, serde_json::to_vec(&kept).unwrap()).unwrap();
            assert_eq!(read(dir.path(), TARGET), None);
        };
        absurd(&|kept| kept.ceilings.flops_per_sec = 0.0);
        absurd(&|kept| kept.ceilings.read_bytes_per_sec[1] = -1e9);
        absurd(&|kept| kept.ceilings.core_flops_per_sec = 1e30);
        absurd(&|kept| kept.ceilings.fork_join_secs = 1e9);
        absurd(&|kept| kept.method += 1);
        absurd(&|kept| kept.measured_unix_secs -= MAX_AGE.as_secs() + 60);
        absurd(&|kept| kept.measured_unix_secs += 1_000_000);
        absurd(&|kept| kept.measured_unix_secs = u64::MAX);
        fs::write(&path, &right).unwrap();
        assert_eq!(read(dir.path(), TARGET), Some(CEILINGS));
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_keeps_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "text").unwrap();
        write(&file, TARGET, CEILINGS);
        assert_eq!(read(&file, TARGET), None);
        assert_eq!(fs::read(&file).unwrap(), b"text");
    }

    #[test]
    fn ceilings_are_kept_until_a_quiet_machine_beats_them() {
        let target = Target::Cpu(CpuTarget::detect(Some(1)).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let measured = Ceilings::measure(&target).unwrap();
        let known = || Ceilings::load(Some(dir.path()), &target).unwrap();
        // Numbers read from a file may differ in the last digit.
        let assert_same = |a: Ceilings, b: Ceilings| {
            let figures = |c: Ceilings| [c.core_flops_per_sec, c.flops_per_sec, c.bytes_per_sec, c.fork_join_secs];
            let pairs = figures(a).into_iter().zip(figures(b));
            pairs.for_each(|(x, y)| assert!((x / y - 1.0).abs() < 1e-12, "{a:?}, {b:?}"));
        };
        assert_eq!(Ceilings::load(None, &target).unwrap(), measured);
        assert_same(known(), measured);
        // These figures are faster than any machine, so the check never finds them disturbed.
        let fast = Ceilings { core_flops_per_sec: 1e15, bytes_per_sec: 1.5 * measured.bytes_per_sec, ..measured };
        write(dir.path(), &target.key(), fast);
        assert_same(known(), fast);
        // These figures are as if from a moment in which the machine hardly worked.
        write(dir.path(), &target.key(), Ceilings { core_flops_per_sec: 2e6, ..fast });
        let beaten = Ceilings { core_flops_per_sec: measured.core_flops_per_sec, ..fast };
        assert_same(known(), beaten);
        assert_same(read(dir.path(), &target.key()).unwrap(), beaten);
        let other = || Err(fault("it is not measured where it is kept"));
        assert_same(Ceilings::kept_in(Some(dir.path()), &target, other).unwrap(), beaten);
        assert!(Ceilings::kept_in(None, &target, other).is_err());
    }
}
