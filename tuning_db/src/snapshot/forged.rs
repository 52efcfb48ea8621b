//! Tests with forged snapshots: valid checksums but malicious content. They may give wrong answers,
//! but must not panic or read outside the file.

use autotune_measurement::{Measurement, RunSecs};
use autotune_schedules::{Config, LOWERING_VERSION};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::layout::{self, BUCKET_BYTES, HEADER_BYTES, Header};
use super::{KeyChain, Snapshot, SnapshotWriter};
use crate::record::{Phase, Provenance, TuningRecord};

const CASES: u64 = 3000;
const TARGETS: [&str; 3] = ["cpu:a-1-2:avx2:threads=1", "cpu:a-1-3:avx2:threads=1", "cuda:sm_90:H100"];

fn record(target: &str, workload: &str) -> TuningRecord {
    TuningRecord {
        workload: workload.parse().unwrap(),
        target: target.into(),
        config: Config { sketch: "direct".into(), knobs: [].into() },
        measurement: Measurement::of(Ok(RunSecs::synthetic(1e-3))),
        phase: Phase::Search,
        provenance: Provenance {
            device: "device".into(),
            backend: None,
            compiler: "cc".into(),
            flags: String::new(),
            tuner_version: String::new(),
            lowering: LOWERING_VERSION,
            harness: String::new(),
            seed: 1,
            unix_secs: 2,
        },
        imported: false,
    }
}

/// Overwrites a few bytes at a random position.
fn change(bytes: &mut [u8], rng: &mut impl Rng) {
    let at = rng.random_range(0..bytes.len());
    let end = bytes.len().min(at + rng.random_range(1..9));
    match rng.random_range(0..3) {
        0 => bytes[at..end].fill(0),
        1 => bytes[at..end].fill(0xff),
        _ => bytes[at..end].fill_with(|| rng.random()),
    }
}

/// Returns the offsets of a section's blocks.
fn positions(section: &[u8]) -> Vec<usize> {
    let mut positions = Vec::new();
    let mut at = 0;
    while let Some(len) = layout::u32_at(section, at + 8) {
        positions.push(at);
        at = (at + layout::BLOCK_HEADER + len as usize).next_multiple_of(layout::ALIGNMENT);
    }
    positions
}

/// Recomputes the checksums of blocks.
fn seal_blocks(section: &mut [u8], positions: &[usize]) {
    for &at in positions {
        let len = layout::u32_at(section, at + 8).unwrap() as usize;
        if let Some(checked) = section.get(at + 8..at + layout::BLOCK_HEADER + len) {
            let sum = layout::checksum(checked, at as u64);
            section[at..at + 8].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

#[test]
fn forged_snapshots_are_no_panic() {
    let cases = std::env::var("AUTOTUNE_CASES").map_or(CASES, |text| text.parse().unwrap());
    let workloads = ["matmul:m=8,n=8,k=8", "matmul:m=9,n=8,k=8,bias"];
    let mut writer = SnapshotWriter::default();
    for target in TARGETS {
        workloads.iter().for_each(|workload| writer.add(&record(target, workload)).unwrap());
    }
    let whole = writer.into_bytes().unwrap();
    let header = Header::parse(&whole).unwrap();
    let starts = [header.records_start(), header.details_start(), header.near_start()];
    let [records, details, near] = starts.map(|start| start.unwrap() as usize);
    let blocks = [&whole[records..details], &whole[details..near], &whole[near..]].map(positions);
    assert_eq!(blocks.each_ref().map(Vec::len), [TARGETS.len() + 6, 1 + 2 * 6, 8 + 1]);

    let (mut opened, mut found, mut near_found) = (0, 0, 0);
    for seed in 0..cases {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut forged = whole.clone();
        for _ in 0..rng.random_range(1..4) {
            change(&mut forged[HEADER_BYTES..], &mut rng);
        }
        let (index, rest) = forged.split_at_mut(records);
        for number in 0..header.buckets {
            let bucket = &mut index[HEADER_BYTES + number as usize * BUCKET_BYTES..][..BUCKET_BYTES];
            let sum = layout::checksum(&bucket[..BUCKET_BYTES - 8], number);
            bucket[BUCKET_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        }
        let (record_bytes, rest) = rest.split_at_mut(details - records);
        let (detail_bytes, near_bytes) = rest.split_at_mut(near - details);
        for (section, blocks) in [record_bytes, detail_bytes, near_bytes].into_iter().zip(&blocks) {
            seal_blocks(section, blocks);
        }

        let mut forged_header = Header { body_checksum: layout::checksum(&forged[HEADER_BYTES..], 0), ..header };
        if rng.random_bool(0.2) {
            forged_header.max_probes = rng.random();
            forged_header.directory_at = 16 * rng.random_range(0..near as u64 / 16);
            let moved = rng.random_range(0..=header.records_bytes);
            (forged_header.records_bytes, forged_header.details_bytes) =
                (moved, header.details_bytes + header.records_bytes - moved);
        }
        forged[..HEADER_BYTES].copy_from_slice(&forged_header.to_bytes());

        let Ok(snapshot) = Snapshot::from_bytes(forged) else { continue };
        opened += 1;
        for target in TARGETS {
            for workload in workloads {
                let near = snapshot.nearest(&KeyChain::of(target), &workload.parse().unwrap(), 3);
                near_found += near.map_or(0, |near| near.iter().filter(|entry| entry.config().is_ok()).count());
                if let Ok(Some(entry)) = snapshot.get(&KeyChain::of(target), workload) {
                    found += usize::from(entry.config().is_ok() && entry.best().is_ok());
                }
            }
        }
        let _ = snapshot.check();
    }
    println!("{opened} of {cases} opened, {found} schedules found in them, {near_found} as near ones");
    assert!(opened == cases && found > 0 && found < 6 * cases as usize && near_found > 0);
}
