//! Records as lines, from a position on, for programs that pass them to others.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::keys::TaskKey;
use crate::store::TuningDb;

/// Position of the last record of each task that was read; by default none.
#[derive(Clone, Debug, Default)]
pub struct DbCursor(BTreeMap<TaskKey, u64>);

impl TuningDb {
    /// Returns up to `most` lines of records that were appended after the cursor, and advances it.
    /// Empty if there are no further ones. Decodes no record.
    pub fn lines_since(&self, cursor: &mut DbCursor, most: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for (task, log) in self.logs().iter() {
            let last = cursor.0.get(task).map_or(Bound::Unbounded, |last| Bound::Excluded(*last));
            let new = log.lines.range((last, Bound::Unbounded)).take(most - lines.len());
            lines.extend(new.clone().map(|(_, line)| line.clone()));
            if let Some((last, _)) = new.last() {
                cursor.0.insert(task.clone(), *last);
            }
            if lines.len() >= most {
                break;
            }
        }
        lines
    }

    /// Returns lines of a task's records with their positions, from a position on, of up to
    /// `most_bytes` together, but at least one. Decodes no record.
    pub fn lines_of(&self, workload: &str, target: &str, from: u64, most_bytes: usize) -> Vec<(u64, String)> {
        let task = TaskKey { target: target.to_string(), workload: workload.to_string() };
        let (mut lines, mut bytes) = (Vec::new(), 0);
        let logs = self.logs();
        for (&place, line) in logs.get(&task).into_iter().flat_map(|log| log.lines.range(from..)) {
            bytes += line.len();
            if bytes > most_bytes && !lines.is_empty() {
                break;
            }
            lines.push((place, line.clone()));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use autotune_ir::{CpuTarget, Target};
    use autotune_schedules::ScheduleSpace;

    use super::*;
    use crate::record::TuningRecord;

    #[test]
    fn each_record_is_read_once_from_any_position() {
        let target = Target::Cpu(CpuTarget::generic_avx2(1));
        let workloads = ["matmul:m=8,n=8,k=8", "matmul:m=8,n=8,k=16"].map(|text| text.parse().unwrap());
        let record = |task: usize, secs: f64| {
            let config = ScheduleSpace::new(&workloads[task], &target).default_config().clone();
            TuningRecord::synthetic(&workloads[task], &target, config, secs)
        };
        let db = TuningDb::temporary().unwrap();
        let mut cursor = DbCursor::default();
        assert!(db.lines_since(&mut cursor, 9).is_empty());
        (1..=5).for_each(|n| db.append(&record(n % 2, n as f64)).unwrap());
        let mut read: Vec<String> = Vec::new();
        for count in [2, 2, 1, 0] {
            let lines = db.lines_since(&mut cursor, 2);
            assert_eq!(lines.len(), count);
            read.extend(lines);
        }
        db.append(&record(0, 6.0)).unwrap();
        read.extend(db.lines_since(&mut cursor, 2));
        let mut secs: Vec<f64> =
            read.iter().map(|line| TuningRecord::from_line(line).unwrap().measurement.run_secs().unwrap()).collect();
        secs.sort_by(f64::total_cmp);
        assert_eq!(secs, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);

        let of = |from, bytes| db.lines_of(&workloads[1].to_string(), &target.key(), from, bytes);
        let places = |lines: Vec<(u64, String)>| lines.into_iter().map(|(place, _)| place).collect::<Vec<_>>();
        assert_eq!(places(of(0, usize::MAX)), [0, 1, 2]);
        assert_eq!(places(of(1, 0)), [1], "at least one");
        assert!(of(3, usize::MAX).is_empty());

        // A damaged file may have the last position of all.
        if let Some(log) = db.logs_mut().values_mut().next() {
            log.lines.insert(u64::MAX, "last".into());
        }
        assert_eq!(db.lines_since(&mut cursor, 9), ["last"]);
        assert!(db.lines_since(&mut cursor, 9).is_empty());
    }
}
