//! Cheap ranking model: it ranks schedules that are not lowered yet by their knobs and the shape of
//! their workload.
//!
//! Lowering a schedule and analysing its loop nests takes some hundred microseconds; describing it
//! by its knobs takes a few. Among schedules transferred from other workloads, all of which are
//! reasonable, knobs predict the fastest nearly as well (docs/learning.md). The method of selecting
//! with a cheap model and verifying with a better one is that of Pruner ("Pruner: A
//! Draft-then-Verify Exploration Mechanism to Accelerate Tensor Program Tuning", 2024), whose
//! cheap model is analytic.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use autotune_schedules::config::fnv1a_of;
use autotune_schedules::portfolio::ShippedSet;
use autotune_schedules::{Candidate, KnobValue};

use crate::trees::Trees;

pub(crate) const MAGIC: &[u8; 16] = b"autotune-draft-1";

/// Describes a schedule before it is lowered: calls `tell` with the name of a column and its value,
/// at most once per column. The values of all other columns are missing. Sizes are binary
/// logarithms.
///
/// - `OPERATOR.0`, ..: shape vector of the workload
/// - `flops`: operations of the workload
/// - `factor_bytes`: bytes of an element of the data
/// - `cold`: 1 if constants are uncached in every run
/// - `work_share`: operations of the schedule's algorithm over the direct one's
/// - `SKETCH`: 1
/// - `SKETCH.KNOB.0`, ..: sizes of a tile, outermost first
/// - `SKETCH.KNOB.product`: product of these sizes
/// - `SKETCH.KNOB.tiles`: number of outermost tiles along the axis that the knob names
/// - `SKETCH.KNOB.filled`, `.filled.inner`: share of the outermost and of the innermost tiles that
///   is within the axis
/// - `SKETCH.KNOB.AXIS`: position of an axis in a loop order
/// - `SKETCH.KNOB`: 1 plus a numeric choice
/// - `SKETCH.KNOB=WORD`: 1 for the chosen word
/// - `innermost`: product of the innermost tiles
pub fn describe(candidate: &Candidate, tell: &mut dyn FnMut(fmt::Arguments<'_>, f32)) {
    let (workload, sketch) = (candidate.workload(), candidate.sketch());
    let operator = workload.operator().kind().name;
    for (i, place) in workload.shape_vector().iter().enumerate() {
        tell(format_args!("{operator}.{i}"), *place);
    }
    let flops = workload.work().flops;
    tell(format_args!("flops"), (flops as f32).log2());
    tell(format_args!("factor_bytes"), log(workload.types().data.bytes()));
    tell(format_args!("cold"), f32::from(u8::from(workload.is_cold())));
    tell(format_args!("work_share"), ((candidate.config().work(workload).flops / flops) as f32).log2());

    tell(format_args!("{sketch}"), 1.0);
    let mut innermost = 0.0;
    for (knob, value) in candidate.knobs() {
        match value {
            KnobValue::Tile(sizes) => {
                innermost += sizes.last().map_or(0.0, |&size| log(size));
                let axis = knob.strip_prefix("tile.").unwrap_or(knob);
                let axis = workload.spec().main().axes.iter().find(|of| of.name == axis);
                describe_tile(sketch, knob, sizes, axis.map(|axis| axis.extent), tell);
            }
            KnobValue::Order(axes) => {
                for (place, axis) in (0_u8..).zip(axes) {
                    tell(format_args!("{sketch}.{knob}.{axis}"), f32::from(place));
                }
            }
            KnobValue::Choice(word) => match word.parse::<u32>() {
                Ok(number) => tell(format_args!("{sketch}.{knob}"), (1.0 + number as f32).log2()),
                Err(_) => tell(format_args!("{sketch}.{knob}={word}"), 1.0),
            },
        }
    }
    tell(format_args!("innermost"), innermost);
}

/// Writes the values of [`describe`] into a row of columns; other columns keep their values.
/// `column` returns the position of a column by its name, if there is one.
pub fn fill_row(row: &mut [f32], candidate: &Candidate, column: impl Fn(fmt::Arguments<'_>) -> Option<usize>) {
    describe(candidate, &mut |name, value| {
        if let Some(column) = column(name) {
            row[column] = value;
        }
    });
}

/// Describes a tile by its sizes, and by the axis of the knob's name, if there is one of `extent`
/// elements.
fn describe_tile(
    sketch: &str,
    knob: &str,
    sizes: &[usize],
    extent: Option<usize>,
    tell: &mut dyn FnMut(fmt::Arguments<'_>, f32),
) {
    for (level, &size) in sizes.iter().enumerate() {
        tell(format_args!("{sketch}.{knob}.{level}"), log(size));
    }
    tell(format_args!("{sketch}.{knob}.product"), sizes.iter().map(|&size| log(size)).sum());

    let (Some(extent), Some(&outermost), Some(&inner)) = (extent, sizes.first(), sizes.last()) else { return };
    let filled = |tile: usize| {
        let tile = tile.clamp(1, extent);
        extent as f32 / (extent.div_ceil(tile) * tile) as f32
    };
    tell(format_args!("{sketch}.{knob}.tiles"), log(extent) - log(outermost.clamp(1, extent)));
    tell(format_args!("{sketch}.{knob}.filled"), filled(outermost));
    tell(format_args!("{sketch}.{knob}.filled.inner"), filled(inner));
}

fn log(size: usize) -> f32 {
    (size.max(1) as f32).log2()
}

/// Trees over the columns of [`describe`].
#[derive(Clone, Debug)]
pub struct RankingModel {
    /// Positions of columns by the hashes of their names.
    columns: HashMap<u64, usize>,
    trees: Trees,
    expected_loss: f32,
}

/// Models that ship, in the order of [`ShippedSet::ALL`]. The example `pretrain` makes them.
static SHIPPED: [LazyLock<Option<Arc<RankingModel>>>; ShippedSet::ALL.len()] = [
    LazyLock::new(|| read(include_bytes!("../pretrained/avx2.drafts"))),
    LazyLock::new(|| read(include_bytes!("../pretrained/avx512.drafts"))),
    LazyLock::new(|| read(include_bytes!("../pretrained/avx512_narrow.drafts"))),
];

fn read(bytes: &[u8]) -> Option<Arc<RankingModel>> {
    RankingModel::from_bytes(bytes).map(Arc::new)
}

impl RankingModel {
    /// Returns the model of a shipped set; `None` if the current code cannot read it.
    pub fn shipped(set: ShippedSet) -> Option<Arc<Self>> {
        SHIPPED[set as usize].clone()
    }

    /// Reads bytes that `RankingModel::encode` wrote; `None` for other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (loss, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (names, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        let names = std::str::from_utf8(names).ok()?;

        let hashes = names.split('\n').map(|name| fnv1a_of(format_args!("{name}")));
        let columns: HashMap<u64, usize> = hashes.zip(0..).collect();
        let trees = Trees::from_bytes(rest).filter(|trees| trees.columns() == columns.len())?;
        Some(Self { columns, trees, expected_loss: f32::from_le_bytes(*loss) })
    }

    /// Returns the expected loss of the model's top pick: its run time over the best recorded one,
    /// as the geometric mean over workloads that were not used for training, among schedules
    /// transferred to them.
    pub fn expected_loss(&self) -> f32 {
        self.expected_loss
    }

    /// Returns the score of each schedule; among those of one workload higher is better. Columns
    /// that the model does not have are ignored.
    pub fn scores(&self, candidates: &[Candidate]) -> Vec<f32> {
        let width = self.trees.columns();
        let mut rows = vec![f32::NAN; candidates.len() * width];
        for (row, candidate) in rows.chunks_exact_mut(width).zip(candidates) {
            fill_row(row, candidate, |name| self.columns.get(&fnv1a_of(name)).copied());
        }
        self.trees.predict(&rows)
    }
}

#[cfg(test)]
#[cfg(feature = "train")]
mod tests {
    use std::collections::BTreeMap;

    use autotune_ir::{CpuTarget, Isa, Target};
    use autotune_schedules::ScheduleSpace;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::{CostModel, Sample, XgbModel, XgbParams};

    const TEXTS: [&str; 7] = [
        "conv2d:c=40,h=36,w=44,o=72,k=3,p=1,bias",
        "conv2d:c=64,h=14,w=14,o=64,k=5,p=2,g=64,cold",
        "conv1d:c=12,w=100,o=24,k=3",
        "matmul:b=3,m=77,n=200,k=300",
        "softmax:m=60,n=100",
        "mlp:m=17,k=32,h=64,n=24,mid=relu",
        "attention:b=2,m=30,n=20,k=16",
    ];

    fn target(isa: Isa) -> Target {
        Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) })
    }

    fn drawn(text: &str, isa: Isa, n: usize) -> Vec<Candidate> {
        let space = ScheduleSpace::new(&text.parse().unwrap(), &target(isa));
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        (0..n).map(|_| space.sample(&mut rng)).collect()
    }

    fn told(candidate: &Candidate) -> BTreeMap<String, f32> {
        let mut told = BTreeMap::new();
        describe(candidate, &mut |name, value| {
            assert!(value.is_finite(), "{candidate}: {name} is {value}");
            assert!(told.insert(name.to_string(), value).is_none(), "{candidate}: {name} is told twice");
        });
        told
    }

    #[test]
    fn each_column_is_told_once_and_schedules_that_differ_are_told_apart() {
        for text in TEXTS {
            let candidates = drawn(text, Isa::Avx512, 60);
            let told: Vec<_> = candidates.iter().map(told).collect();
            for (a, b) in (1..candidates.len()).map(|i| (i - 1, i)) {
                assert_eq!(
                    candidates[a] == candidates[b],
                    told[a] == told[b],
                    "{} and {}",
                    candidates[a],
                    candidates[b]
                );
            }
        }
    }

    #[test]
    fn ranking_features_of_a_schedule() {
        let workload = "matmul:m=100,n=64,k=30".parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target(Isa::Avx512));
        let mut config = space.default_config();
        config.knobs.insert("tile.m".into(), KnobValue::Tile(vec![32, 8]));
        let told = told(&Candidate::new(&workload, space.target(), config));
        assert_eq!((told["direct"], told["cold"], told["work_share"]), (1.0, 0.0, 0.0));
        assert_eq!((told["direct.tile.m.0"], told["direct.tile.m.1"], told["direct.tile.m.product"]), (5.0, 3.0, 8.0));
        let [tiles, filled, inner] =
            ["tiles", "filled", "filled.inner"].map(|name| told[&format!("direct.tile.m.{name}")]);
        assert_eq!((tiles, filled, inner), ((100.0_f32).log2() - 5.0, 100.0 / 128.0, 100.0 / 104.0));
    }

    #[test]
    fn shipped_ranking_models_know_all_features() {
        for (set, isa) in [(ShippedSet::Avx2, Isa::Avx2), (ShippedSet::Avx512, Isa::Avx512)] {
            let model = RankingModel::shipped(set);
            let model = model.unwrap_or_else(|| panic!("run the example `pretrain` for {isa} again"));
            assert!((1.0..1.5).contains(&model.expected_loss()), "{}", model.expected_loss());
            for text in ["conv2d:c=40,h=36,w=44,o=72,k=3,p=1,bias", "matmul:m=77,n=200,k=300"] {
                let candidates = drawn(text, isa, 20);
                let names: Vec<String> = candidates.iter().flat_map(|candidate| told(candidate).into_keys()).collect();
                let has = |name: &&String| model.columns.contains_key(&fnv1a_of(format_args!("{name}")));
                let known = names.iter().filter(has).count();
                assert!(known * 10 > names.len() * 9, "{text}: {known} of {}", names.len());

                let scores = model.scores(&candidates);
                assert!(scores.iter().all(|score| score.is_finite()) && scores.iter().any(|score| *score != scores[0]));
                let one_by_one: Vec<f32> =
                    candidates.iter().flat_map(|of| model.scores(std::slice::from_ref(of))).collect();
                assert_eq!(one_by_one, scores);
            }
        }
    }

    #[test]
    fn bytes_that_are_no_model_are_none() {
        let columns = ["direct.tile.m.0".to_string(), "cold".to_string()];
        let sample = |i: u8| Sample { features: vec![f32::from(i), f32::NAN], score: f32::from(i) / 20.0, group: 0 };
        let mut model = XgbModel::new(XgbParams { rounds: 4, ..XgbParams::default() });
        model.fit(&(0..20).map(sample).collect::<Vec<_>>()).unwrap();
        let bytes = RankingModel::encode(&model, &columns, 1.25).unwrap();
        let read = RankingModel::from_bytes(&bytes).unwrap();
        assert_eq!(read.expected_loss(), 1.25);
        let candidates = drawn("matmul:m=77,n=200,k=300", Isa::Avx512, 30);
        let scores = read.scores(&candidates);
        let by_tile = |candidate: &Candidate| told(candidate)["direct.tile.m.0"];
        let ordered =
            |(a, b): (usize, usize)| by_tile(&candidates[a]) < by_tile(&candidates[b]) || scores[a] >= scores[b];
        assert!((0..30).all(|a| (0..30).all(|b| ordered((a, b)))), "larger tiles were better");

        for end in 0..bytes.len() {
            assert!(RankingModel::from_bytes(&bytes[..end]).is_none(), "{end}");
        }
        let other = RankingModel::encode(&model, &columns[..1], 1.25).unwrap();
        assert!(RankingModel::from_bytes(&other).is_none(), "a name for each column");
        assert!(RankingModel::from_bytes(&[&bytes[..], &[0]].concat()).is_none());
    }
}
