//! In-memory index of a task (workload and target), which answers queries without parsing the
//! records again.

use std::collections::{BTreeMap, HashMap, HashSet};

use xxhash_rust::xxh3::xxh3_64;

use crate::record::{Phase, TuningRecord};

/// Fields of one record that queries need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct IndexRow {
    pub(crate) place: u64,
    pub(crate) run_secs: Option<f64>,
    pub(crate) config_hash: u64,
    pub(crate) phase: Phase,
    pub(crate) is_untrusted: bool,
}

impl IndexRow {
    fn is_faster_than(&self, other: Option<IndexRow>) -> bool {
        match (self.run_secs, other.and_then(|other| other.run_secs)) {
            (Some(own), Some(other)) => own < other,
            (own, _) => own.is_some(),
        }
    }
}

/// Index of a task's readable records, built when first needed and then updated with every append.
#[derive(Debug, Default)]
pub(crate) struct TaskIndex {
    rows: Vec<IndexRow>,
    /// Hashes of all configs with records.
    configs: HashSet<u64>,
    /// Hashes of configs measured on this machine with the present lowering.
    measured: HashSet<u64>,
    /// Positions of records by the hash of their line.
    lines: HashMap<u64, u64>,
}

impl TaskIndex {
    /// Builds the index of a task's lines. Also returns the positions of unreadable lines with the
    /// reasons.
    pub(crate) fn of(lines: &BTreeMap<u64, String>) -> (Self, Vec<(u64, String)>) {
        let (mut index, mut skipped) = (Self::default(), Vec::new());
        for (&place, line) in lines {
            index.lines.insert(xxh3_64(line.as_bytes()), place);
            match TuningRecord::from_line(line) {
                Ok(record) => index.push(place, &record),
                Err(error) => skipped.push((place, error.to_string())),
            }
        }
        (index, skipped)
    }

    /// Adds the next record of the task.
    pub(crate) fn append(&mut self, place: u64, line: &str, record: &TuningRecord) {
        self.lines.insert(xxh3_64(line.as_bytes()), place);
        self.push(place, record);
    }

    fn push(&mut self, place: u64, record: &TuningRecord) {
        let (config_hash, is_untrusted) = (record.config.stable_hash(), record.is_untrusted());
        self.rows.push(IndexRow {
            place,
            run_secs: record.measurement.run_secs(),
            config_hash,
            phase: record.phase,
            is_untrusted,
        });
        self.configs.insert(config_hash);
        if !is_untrusted {
            self.measured.insert(config_hash);
        }
    }

    /// Returns the position of the record that may have this line; hashes can collide.
    pub(crate) fn place_of(&self, line: &str) -> Option<u64> {
        self.lines.get(&xxh3_64(line.as_bytes())).copied()
    }

    /// Returns true if there is a record of the config.
    pub(crate) fn contains(&self, config_hash: u64) -> bool {
        self.configs.contains(&config_hash)
    }

    /// Returns the records measured on this machine with the present lowering, in order.
    pub(crate) fn measured(&self) -> impl Iterator<Item = IndexRow> {
        self.rows.iter().copied().filter(|row| !row.is_untrusted)
    }

    /// Returns the untrusted records, except those of configs that were also measured here.
    pub(crate) fn untrusted(&self) -> impl Iterator<Item = IndexRow> {
        self.rows.iter().copied().filter(|row| row.is_untrusted && !self.measured.contains(&row.config_hash))
    }
}

/// Race whose records are being read.
struct Race {
    id: u64,
    incumbent: Option<IndexRow>,
    incumbent_raced: bool,
    fastest: Option<IndexRow>,
}

/// Returns the best record that fits, see [`TuningDb::best`](crate::TuningDb::best). `fits`, which
/// is expensive, is called only for rows on which the result depends.
pub(crate) fn best(rows: impl Iterator<Item = IndexRow>, fits: &mut dyn FnMut(IndexRow) -> bool) -> Option<IndexRow> {
    let mut best: Option<IndexRow> = None;
    let mut race: Option<Race> = None;
    for row in rows {
        let Phase::Race { id } = row.phase else {
            race = None;
            if row.is_faster_than(best) && fits(row) {
                best = Some(row);
            }
            continue;
        };

        let mut current = match race.take() {
            Some(race) if race.id == id => race,
            _ => Race { id, incumbent: best, incumbent_raced: false, fastest: None },
        };
        // The incumbent fits, and so does every row with the same config.
        current.incumbent_raced |= current.incumbent.is_some_and(|i| i.config_hash == row.config_hash);
        if row.is_faster_than(current.fastest) && fits(row) {
            current.fastest = Some(row);
        }

        let wins = current.incumbent_raced || current.fastest.is_some_and(|row| row.is_faster_than(current.incumbent));
        best = if wins { current.fastest } else { current.incumbent };
        race = Some(current);
    }
    best
}

/// Returns the records most worth racing, fastest first, one per config.
///
/// A config is ranked by its fastest record in the last race it took part in, and omitted if it
/// failed there. Without a race it is ranked by its fastest record of the search. Ties are resolved
/// in favour of the earlier record.
pub(crate) fn ranking(rows: impl Iterator<Item = IndexRow>) -> Vec<IndexRow> {
    let mut standings: HashMap<u64, IndexRow> = HashMap::new();
    for row in rows {
        let standing = standings.entry(row.config_hash).or_insert(row);
        let starts_race = row.phase != Phase::Search && row.phase != standing.phase;
        if starts_race || (row.phase == standing.phase && row.is_faster_than(Some(*standing))) {
            *standing = row;
        }
    }
    let mut ranked: Vec<(f64, IndexRow)> =
        standings.into_values().filter_map(|row| Some((row.run_secs?, row))).collect();
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.place.cmp(&b.1.place)));
    ranked.into_iter().map(|(_, row)| row).collect()
}
