//! Reproduces the experiments of the AutoTVM paper (Chen et al., "Learning to Optimize Tensor
//! Programs", NeurIPS 2018) on a recorded test bed, without the machine. Writes CSV and SVG files
//! and a Markdown page, in an hour on one core.
//!
//! `cargo run --release -p autotune-lab --example paper_figures`
//!
//! All random numbers follow from seeds. The limits of replayed searches are listed in
//! [`autotune_lab::replay`].

mod curves;
mod data;
mod features;
mod page;
mod published;
mod ranking;
mod searches;
mod split;
mod time;
mod transfer;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use autotune_ir::Target;
use autotune_lab::replay::ReplayTask;
use autotune_lab::test_bed::{ConfigSource, Recording, TestBed};
use autotune_schedules::LOWERING_VERSION;
use autotune_workloads::Workload;
use clap::Parser;

use page::Figure;

/// The experiments of the AutoTVM paper on a recorded test bed, as CSV, SVG and a page of Markdown
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  paper_figures --only searchers,ranking\n  paper_figures --test-bed my.jsonl --out /tmp/paper --seeds 3"
)]
struct Arguments {
    /// Recording of `record_test_bed`
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/test_bed/avx512_2threads.jsonl.gz"))]
    test_bed: PathBuf,
    /// Folder that the files are written to
    #[arg(long, value_name = "DIR", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/results/paper"))]
    out: PathBuf,
    /// Seeds of everything random
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Trials of a search, half as many in a sample of the space; searchers that know no model have
    /// twice as many
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    trials: u64,
    /// Workloads of each family that are searched, up to twice as many others for what a history is
    /// worth; models are judged on all
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    per_family: u64,
    /// Report of `autotune NETWORK --json FILE`, whose parts of the time are told
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/results/resnet18_cpu_60s.json"))]
    report: PathBuf,
    /// Make these figures only, and no page
    #[arg(long, value_delimiter = ',', value_name = "FIGURES")]
    only: Vec<Kind>,
}

/// Figures in the order of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Searchers,
    Objectives,
    Diversity,
    Uncertainty,
    Transfer,
    Features,
    Ranking,
    Published,
    Time,
}

/// Data and parameters of the experiments.
struct Bench {
    test_bed: TestBed,
    target: Target,
    /// All recorded configs of the searched workloads.
    record: Arena,
    /// Random configs among them: a uniform sample of the spaces.
    sample: Arena,
    /// All recorded configs of workloads that were not used to choose the tuner's policy.
    unseen_record: Arena,

    // Random configs among them.
    unseen_sample: Arena,
    seeds: u64,
}

/// Workloads to be searched, and the number of trials of a search.
struct Arena {
    tasks: Vec<ReplayTask>,
    trials: usize,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut test_bed = TestBed::read(&arguments.test_bed)?;
    // The variants of a workload with and without cached constants are nearly equal; keeping both
    // would leak held-out data.
    test_bed.recordings.retain(|recording| !recording.workload.is_cold());
    let header = &test_bed.header;
    let path = arguments.test_bed.display();
    ensure!(
        header.lowering == LOWERING_VERSION,
        "{path}: recorded with version {} of the lowering, this is {LOWERING_VERSION}: record it again",
        header.lowering
    );
    let target = header.target().with_context(|| path.to_string())?;

    let wanted = per_family(&test_bed, arguments.per_family as usize);
    let mut unseen = per_family(&test_bed, 2 * arguments.per_family as usize);
    unseen.retain(|workload| !wanted.contains(workload));
    let arena = |test_bed: &TestBed, wanted: &[Workload], trials: u64| {
        let tasks = ReplayTask::of(test_bed, &target, |task| wanted.contains(&task.workload));
        Arena { tasks, trials: trials as usize }
    };
    let mut drawn = test_bed.clone();
    drawn.recordings.retain(|recording| recording.source == ConfigSource::Random);
    let [record, unseen_record] = [&wanted, &unseen].map(|wanted| arena(&test_bed, wanted, arguments.trials));
    let [sample, unseen_sample] = [&wanted, &unseen].map(|wanted| arena(&drawn, wanted, arguments.trials.div_ceil(2)));
    ensure!(!sample.tasks.is_empty(), "{path}: nothing was recorded");
    let bench = Bench { record, sample, unseen_record, unseen_sample, target, seeds: arguments.seeds, test_bed };

    let mut figures = Vec::new();
    let is_wanted = |kind: &Kind| arguments.only.is_empty() || arguments.only.contains(kind);
    for kind in <Kind as clap::ValueEnum>::value_variants().iter().filter(|kind| is_wanted(kind)) {
        let figure = kind.make(&bench, &arguments.report)?;
        figure.write(&arguments.out)?;
        println!("{}", figure.to_markdown());
        figures.push(figure);
    }
    if arguments.only.is_empty() {
        page::write(&bench, &figures, &arguments.out)?;
    }
    Ok(())
}

/// Returns up to `n` workloads of each family of a test bed, evenly spaced.
fn per_family(test_bed: &TestBed, n: usize) -> Vec<Workload> {
    let tasks = test_bed.tasks();
    let of_family = |tasks: &[Recording]| {
        let n = n.min(tasks.len());
        (0..n).map(|i| tasks[(2 * i + 1) * tasks.len() / (2 * n)].workload.clone()).collect::<Vec<Workload>>()
    };
    tasks.chunk_by(|a, b| a.family == b.family).flat_map(of_family).collect()
}

impl Kind {
    fn make(self, bench: &Bench, report: &std::path::Path) -> Result<Figure> {
        match self {
            Self::Searchers => searches::searchers(bench),
            Self::Objectives => searches::objectives(bench),
            Self::Diversity => searches::diversity(bench),
            Self::Uncertainty => searches::uncertainty(bench),
            Self::Transfer => transfer::transfer(bench),
            Self::Features => features::features(bench),
            Self::Ranking => ranking::ranking(bench),
            Self::Published => published::published(bench),
            Self::Time => time::time(report),
        }
    }
}
