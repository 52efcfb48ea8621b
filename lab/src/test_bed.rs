//! The recorded test bed: run times of many schedules on one machine, so that searches and models
//! can be tested without the machine.
//!
//! A test bed is a file of JSON Lines. The first line is the [`TestBedHeader`]; each other line
//! holds the measurements of a workload by one [`ConfigSource`], grouped by sketch: the knob names
//! once, then a row of values and the run time for each config. Lines are appended as a whole, so
//! that an interrupted recording continues where it ended. The files of this repository are
//! compressed by `gzip -9`.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use autotune_ir::{Rates, Target};
use autotune_schedules::config::KnobValue;
use autotune_schedules::{Config, LOWERING_VERSION};
use autotune_workloads::Workload;
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};

const FORMAT: &str = "autotune-test-bed-1";

/// Workloads of the test bed, by family.
const WORKLOADS: &str = include_str!("../test_bed/workloads.txt");
/// Workloads of bf16 and 8-bit integers, by family.
const NARROW_WORKLOADS: &str = include_str!("../test_bed/workloads_narrow.txt");
/// Workloads that are excluded from all training data.
const HELD_OUT: &str = include_str!("../test_bed/held_out.txt");

/// Target and versions with which a test bed was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestBedHeader {
    format: String,
    /// Key of the target.
    pub target: String,
    /// Name of the device.
    pub device: String,
    /// Version of the lowering from configs to loop nests.
    pub lowering: u32,
    /// Measured rates of the device; nominal if none were measured.
    #[serde(default)]
    pub rates: Rates,
}

impl TestBedHeader {
    /// Returns the header for this machine's device of a target.
    pub fn new(target: &Target) -> Self {
        let device = autotune::device_name(target).unwrap_or_else(|| target.device().to_string());
        let rates = target.cpu().map_or(Rates::NOMINAL, |cpu| cpu.rates);
        Self { format: FORMAT.into(), target: target.key(), device, lowering: LOWERING_VERSION, rates }
    }

    /// True if a recording with one header may continue one with the other. Rates may differ, as
    /// each measurement of them differs slightly.
    fn is_alike(&self, other: &Self) -> bool {
        Self { rates: other.rates, ..self.clone() } == *other
    }

    /// Returns the target as given by its key, with its rates; fails for an unknown key.
    pub fn target(&self) -> Result<Target> {
        let of_key = Target::of_key(&self.target);
        Ok(of_key.with_context(|| format!("'{}' is not the key of a target", self.target))?.with_rates(self.rates))
    }
}

/// Origin of measured configs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigSource {
    /// Drawn uniformly from the schedule space.
    Random,
    /// Proposed by the learned search.
    Search,
    /// Measured in a race, interleaved with others.
    Race,
    /// Transferred from another workload.
    Portfolio,
}

/// Measured config with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedSample {
    /// Config of the measured schedule.
    pub config: Config,
    /// Seconds of a run; `None` if it failed.
    pub run_secs: Option<f64>,
}

/// Measurements of a workload by one source.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Family of the workload, such as `conv3x3`.
    pub family: String,
    /// Workload of all samples.
    pub workload: Workload,
    /// Origin of the configs.
    pub source: ConfigSource,
    /// Measured configs with their times.
    pub samples: Vec<RecordedSample>,
}

impl Recording {
    /// Returns the fastest config of a sketch.
    pub fn best_of(&self, sketch: &str) -> Option<&Config> {
        let ran = self.samples.iter().filter(|sample| sample.config.sketch == sketch);
        let timed = ran.filter_map(|sample| Some((sample.run_secs?, &sample.config)));
        timed.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, config)| config)
    }
}

/// A test bed on disk.
#[derive(Clone, Debug)]
pub struct TestBed {
    /// Target and versions of the recording.
    pub header: TestBedHeader,
    /// Recordings in the order of the file.
    pub recordings: Vec<Recording>,
    path: PathBuf,
}

/// Returns the families and workloads to record, in the order of the list.
pub fn workloads() -> Result<Vec<(String, Workload)>> {
    listed(WORKLOADS)
}

/// Returns the families and workloads of bf16 and 8-bit integers to record, in the order of the
/// list.
pub fn narrow_workloads() -> Result<Vec<(String, Workload)>> {
    listed(NARROW_WORKLOADS)
}

/// Returns the families and workloads on which searches and zero-trial picks are judged.
pub fn held_out() -> Result<Vec<(String, Workload)>> {
    listed(HELD_OUT)
}

/// Parses one workload per line, after `[family]` lines.
fn listed(text: &str) -> Result<Vec<(String, Workload)>> {
    let mut family = String::new();
    let mut workloads = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => family = name.to_string(),
            None => workloads.push((family.clone(), line.parse().with_context(|| line.to_string())?)),
        }
    }
    Ok(workloads)
}

impl TestBed {
    /// Reads a test bed; fails for an unknown format or a bad line.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = text_of(path).with_context(|| path.display().to_string())?;
        // An incomplete last line, left by a killed recording, is ignored and recorded again.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = whole.lines().enumerate();
        let header: TestBedHeader = match lines.next() {
            Some((_, line)) => serde_json::from_str(line).with_context(|| format!("{}: line 1", path.display()))?,
            None => bail!("{}: no test bed, it is empty", path.display()),
        };
        ensure!(header.format == FORMAT, "{}: format {:?}, {FORMAT:?} is known", path.display(), header.format);
        let recording = |(i, line): (usize, &str)| {
            let line: RecordingLine = serde_json::from_str(line)?;
            line.into_recording().with_context(|| format!("line {}", i + 1))
        };
        let recordings = lines.map(recording).collect::<Result<_>>().with_context(|| path.display().to_string())?;
        Ok(Self { header, recordings, path: path.into() })
    }

    /// Opens an uncompressed test bed for appending; creates it if absent. Fails if it was recorded
    /// on another target or device.
    pub fn open(path: impl AsRef<Path>, header: TestBedHeader) -> Result<Self> {
        let path = path.as_ref();
        ensure!(!is_packed(path), "{}: it is packed, unpack it by gzip -dk before it is added to", path.display());
        if !path.exists() {
            fs::write(path, serde_json::to_string(&header)? + "\n").with_context(|| path.display().to_string())?;
        }
        let test_bed = Self::read(path)?;
        ensure!(
            test_bed.header.is_alike(&header),
            "{}: recorded on {} ({}); this is {} ({})",
            path.display(),
            test_bed.header.target,
            test_bed.header.device,
            header.target,
            header.device
        );

        let text = fs::read(path)?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        OpenOptions::new().write(true).open(path)?.set_len(whole as u64)?;
        Ok(test_bed)
    }

    /// Appends a recording to the file.
    pub fn append(&mut self, recording: Recording) -> Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        let line = serde_json::to_string(&RecordingLine::of(&recording))? + "\n";
        file.write_all(line.as_bytes()).with_context(|| self.path.display().to_string())?;
        self.recordings.push(recording);
        Ok(())
    }

    /// True if the test bed has measurements of a workload by a source.
    pub fn holds(&self, workload: &Workload, source: ConfigSource) -> bool {
        self.recordings.iter().any(|recording| recording.workload == *workload && recording.source == source)
    }

    /// Merges the recordings of each workload, in the order of the file. Each config appears once,
    /// with its time in the race if it raced, else with the mean of its times; a config that ever
    /// failed has no time.
    pub fn tasks(&self) -> Vec<Recording> {
        let mut tasks: Vec<Recording> = Vec::new();
        let mut places: HashMap<Workload, usize> = HashMap::new();
        let mut sorted: Vec<&Recording> = self.recordings.iter().collect();
        sorted.sort_by_key(|recording| recording.source != ConfigSource::Race);
        for recording in &self.recordings {
            places.entry(recording.workload.clone()).or_insert_with(|| {
                tasks.push(Recording { samples: Vec::new(), ..recording.clone() });
                tasks.len() - 1
            });
        }

        // Races are processed first and win over other times.
        let mut times: Vec<BTreeMap<Config, Times>> = vec![BTreeMap::new(); tasks.len()];
        for recording in sorted {
            let raced = recording.source == ConfigSource::Race;
            let of_task = &mut times[places[&recording.workload]];
            for sample in &recording.samples {
                let known = of_task.entry(sample.config.clone()).or_insert(Times { raced, run_secs: Vec::new() });
                if known.raced == raced {
                    known.run_secs.push(sample.run_secs);
                }
            }
        }

        for (task, times) in tasks.iter_mut().zip(times) {
            let sample = |(config, times): (Config, Times)| RecordedSample { config, run_secs: times.mean_secs() };
            task.samples = times.into_iter().map(sample).collect();
        }
        tasks
    }
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

fn text_of(path: &Path) -> std::io::Result<String> {
    if !is_packed(path) {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(text)
}

/// Times of a config: either all from races or all from searches.
#[derive(Clone, Debug)]
struct Times {
    raced: bool,
    run_secs: Vec<Option<f64>>,
}

impl Times {
    /// Returns the mean; `None` if any measurement failed.
    fn mean_secs(&self) -> Option<f64> {
        let run_secs: Option<Vec<f64>> = self.run_secs.iter().copied().collect();
        run_secs.map(|run_secs| run_secs.iter().sum::<f64>() / run_secs.len() as f64)
    }
}

/// Serialised form of a recording.
#[derive(Serialize, Deserialize)]
struct RecordingLine {
    family: String,
    workload: Workload,
    source: ConfigSource,
    sketches: BTreeMap<String, SketchTable>,
}

/// Configs of one sketch: knob names, and rows of values in the order of the names.
#[derive(Default, Serialize, Deserialize)]
struct SketchTable {
    knobs: Vec<String>,
    rows: Vec<(Vec<KnobValue>, Option<f64>)>,
}

impl RecordingLine {
    fn of(recording: &Recording) -> Self {
        let mut sketches: BTreeMap<String, SketchTable> = BTreeMap::new();
        for RecordedSample { config, run_secs } in &recording.samples {
            let table = sketches.entry(config.sketch.clone()).or_default();
            if table.knobs.is_empty() {
                table.knobs = config.knobs.keys().cloned().collect();
            }
            table.rows.push((config.knobs.values().cloned().collect(), run_secs.map(rounded)));
        }
        let Recording { family, workload, source, .. } = recording.clone();
        Self { family, workload, source, sketches }
    }

    fn into_recording(self) -> Result<Recording> {
        let mut samples = Vec::new();
        for (sketch, SketchTable { knobs, rows }) in self.sketches {
            for (values, run_secs) in rows {
                ensure!(
                    values.len() == knobs.len(),
                    "{}: {sketch}: a row of another length than the knobs",
                    self.workload
                );
                let knobs = knobs.iter().cloned().zip(values).collect();
                samples.push(RecordedSample { config: Config { sketch: sketch.clone(), knobs }, run_secs });
            }
        }
        Ok(Recording { family: self.family, workload: self.workload, source: self.source, samples })
    }
}

/// Rounds to five digits, which exceeds the precision of times.
fn rounded(secs: f64) -> f64 {
    format!("{secs:.4e}").parse().unwrap_or(secs)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn the_workloads_are_of_many_families_and_each_is_there_once() {
        let workloads = workloads().unwrap();
        let mut texts: Vec<String> = workloads.iter().map(|(_, workload)| workload.to_string()).collect();
        let mut families: Vec<&str> = workloads.iter().map(|(family, _)| family.as_str()).collect();
        texts.sort();
        texts.dedup();
        families.dedup();
        assert!(workloads.len() >= 150 && families.len() >= 8, "{} of {families:?}", workloads.len());
        assert_eq!(texts.len(), workloads.len());

        let network = autotune::Network::resnet18().tasks.into_iter().map(|task| task.workload);
        let held_out: Vec<Workload> = held_out().unwrap().into_iter().map(|(_, workload)| workload).collect();
        assert!(held_out.len() >= 20);
        let mut others = held_out.into_iter().chain(network);
        assert!(others.all(|other| workloads.iter().all(|(_, workload)| *workload != other)));
    }

    #[test]
    fn a_header_has_rates_and_without_them_they_are_nominal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bed.jsonl");
        let rates = Rates { bytes_per_kilocycle: [31_000, 27_000, 14_000], fork_join_cycles: 420 };
        let target = Target::detect("cpu", Some(1)).unwrap().with_rates(rates);
        assert_eq!(
            TestBed::open(&path, TestBedHeader::new(&target)).unwrap().header.target().unwrap().cpu().unwrap().rates,
            rates
        );

        // New rates may differ; the header keeps those of the start.
        let anew = target.clone().with_rates(Rates { fork_join_cycles: 430, ..rates });
        assert_eq!(TestBed::open(&path, TestBedHeader::new(&anew)).unwrap().header.rates, rates);
        let mut other = TestBedHeader::new(&target);
        other.device = "another".into();
        assert!(TestBed::open(&path, other).is_err());

        let mut header: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        header.as_object_mut().unwrap().remove("rates");
        fs::write(&path, header.to_string() + "\n").unwrap();
        assert_eq!(TestBed::read(&path).unwrap().header, TestBedHeader::new(&target.with_rates(Rates::NOMINAL)));
    }

    #[test]
    fn appended_lines_are_read_again_and_partial_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bed.jsonl");
        let target = Target::detect("cpu", Some(1)).unwrap();
        let workload: Workload = "matmul:m=8,n=8,k=8".parse().unwrap();
        let config =
            |m: usize| Config { sketch: "direct".into(), knobs: [("tile.m".into(), KnobValue::Tile(vec![m]))].into() };
        let recording = |source, times: &[(usize, Option<f64>)]| Recording {
            family: "matmul".into(),
            workload: workload.clone(),
            source,
            samples: times.iter().map(|&(m, run_secs)| RecordedSample { config: config(m), run_secs }).collect(),
        };
        let all = [
            recording(ConfigSource::Random, &[(1, Some(2.0)), (2, None), (4, Some(8.0))]),
            recording(ConfigSource::Search, &[(1, Some(4.0)), (4, Some(6.0))]),
            recording(ConfigSource::Race, &[(4, Some(5.0))]),
        ];
        let mut test_bed = TestBed::open(&path, TestBedHeader::new(&target)).unwrap();
        all.iter().for_each(|recording| test_bed.append(recording.clone()).unwrap());

        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"family\":");
        fs::write(&path, text).unwrap();
        let mut again = TestBed::open(&path, TestBedHeader::new(&target)).unwrap();
        assert_eq!(again.recordings, all);
        again.append(all[0].clone()).unwrap();
        let again = TestBed::read(&path).unwrap();
        assert_eq!(again.recordings.len(), 4);

        let packed = folder.path().join("bed.jsonl.gz");
        let mut packer = GzEncoder::new(File::create(&packed).unwrap(), Compression::best());
        packer.write_all(&fs::read(&path).unwrap()).unwrap();
        packer.finish().unwrap();
        assert_eq!(TestBed::read(&packed).unwrap().recordings, again.recordings);
        let error = TestBed::open(&packed, TestBedHeader::new(&target)).unwrap_err().to_string();
        assert!(error.contains("packed"), "{error}");

        let [task] = again.tasks().try_into().unwrap();
        let times: Vec<_> = [1, 2, 4]
            .map(config)
            .iter()
            .map(|c| task.samples.iter().find(|s| s.config == *c).unwrap().run_secs)
            .collect();
        assert_eq!(times, [Some((2.0 + 2.0 + 4.0) / 3.0), None, Some(5.0)]);
    }
}
