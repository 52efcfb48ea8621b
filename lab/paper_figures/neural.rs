//! The paper's second model beside its first: a recurrent network that reads the loop nest, and
//! trees.

use std::time::Instant;

use anyhow::Result;
use autotune_cost_model::{CostModel, Prior, XgbParams};
use autotune_lab::ensemble::Ensemble;
use autotune_lab::gru::{Gru, GruParams};
use autotune_lab::median;
use autotune_lab::replay::ReplayTask;

use crate::Bench;
use crate::data::{Measured, New, View, drawn, fit, measured, predict, trees};
use crate::page::Figure;
use crate::ranking::{cells, head, over_seeds};
use crate::searches::{Method, compare, params};
use crate::split::Split;

/// Configs of each other workload that a model learns from.
const OF_OTHERS: usize = 48;
/// Seeds, at most, of models that learn from other workloads: each is trained many times over on
/// all of them.
const SEEDS: u64 = 2;

pub(crate) fn ranking(bench: &Bench) -> Result<Figure> {
    let prior = Some(Prior::estimate(&bench.target));
    let of_trees = |prior| trees(XgbParams { prior, ..params(&bench.target) });
    let models: [(&str, &New<'_>); 4] = [
        ("trees", &of_trees(prior)),
        ("GRU", &gru(prior)),
        ("trees, no prior", &of_trees(None)),
        ("GRU, no prior", &gru(None)),
    ];

    let own = measured(&bench.record.tasks);
    let all = measured(&ReplayTask::of(&bench.test_bed, &bench.target, |_| true));
    let few = bench.seeds.min(SEEDS);
    let splits = [
        (Split::Own(64), &own, bench.seeds),
        (Split::Own(192), &own, bench.seeds),
        (Split::Shapes(OF_OTHERS), &all, few),
        (Split::Families(OF_OTHERS), &all, few),
    ];

    for (name, new) in &models[..2] {
        tell_times(name, *new, &own[0], &all)?;
    }

    let mut table = vec![head()];
    for (split, on, seeds) in splits {
        for (name, new) in models {
            let of_seeds = over_seeds(seeds, on, split, &View::all(), new, true)?;
            table.push([split.name(), name.to_string()].into_iter().chain(cells(&of_seeds)).collect());
        }
    }
    Ok(Figure {
        name: "neural",
        title: "A neural ranker".into(),
        text: format!(
            "The paper's second model, which it finds to be about as good as trees, and slower: a gated recurrent unit that reads the loops from \
             the outermost to the innermost, each by its extent, kind, bytes touched and reuse, then what the features say of the rest of the \
             program; its states, scattered over slots by a softmax, make the score; trained on pairs by Adam (`lab/src/gru.rs`). It \
             sees the very columns that the trees see, and starts from the analytic estimate as they do, or from nothing (*no prior*), as in \
             the paper. Its rate and number of steps were chosen on this record: if that favours anyone, it favours it. Configs of the same workload: the {} workloads that are \
             searched, {} seeds; others: all {}, {OF_OTHERS} configs of each, {few} seeds. The paper's unit goes up the tree of all statements; \
             this one goes down the chain of loops around the one that runs most often. What learning and predicting take is told while \
             this figure is made, as no two runs take the same: docs/learning.md has it for one machine.",
            own.len(),
            bench.seeds,
            all.len(),
        ),
        table,
        csv: Vec::new(),
        charts: Vec::new(),
    })
}

pub(crate) fn searches(bench: &Bench) -> Result<Figure> {
    let target = &bench.target;
    let prior = Some(Prior::estimate(target));
    let of_gru = |name: &str, prior| {
        Method::learned(name, target).with_model(Gru::new(GruParams { prior, ..GruParams::default() }))
    };
    let no_prior = Ensemble::single(XgbParams { prior: None, ..params(target) });
    let methods = [
        Method::learned("trees + annealing", target),
        of_gru("GRU + annealing", prior),
        Method::learned("trees + annealing, no prior", target).with_model(no_prior),
        of_gru("GRU + annealing, no prior", None),
    ];
    compare(
        bench,
        "neural_search",
        "Searches with a neural ranker",
        "The same searches with the recurrent network in place of the trees, refitted after the same trials.",
        &methods,
    )
}

/// Tells what it takes to learn from a few configs and from many, and to predict, on one thread.
fn tell_times(name: &str, new: &New<'_>, one: &Measured, all: &[Measured]) -> Result<()> {
    let all: Vec<&Measured> = all.iter().collect();
    let known = [drawn(&[one], 64, 0), drawn(&[one], 192, 0), drawn(&all, OF_OTHERS, 0)];
    for known in known {
        let rows: usize = known.iter().map(|(_, positions)| positions.len()).sum();
        let (mut fit_secs, mut predict_secs) = (Vec::new(), Vec::new());
        for seed in 0..3 {
            let mut model = new(seed);
            let start = Instant::now();
            fit(&mut *model, &View::all(), &known)?;
            fit_secs.push(start.elapsed().as_secs_f64());

            let start = Instant::now();
            known.iter().for_each(|(of, positions)| drop(predict(&*model, &View::all(), of, positions)));
            predict_secs.push(start.elapsed().as_secs_f64() / rows as f64);
        }
        let (fit_ms, predict_us) = (1e3 * median(fit_secs), 1e6 * median(predict_secs));
        eprintln!("{name}: {rows} configs are learnt in {fit_ms:.0} ms, and predicted in {predict_us:.0} µs each");
    }
    Ok(())
}

/// Recurrent networks that learn with the defaults.
fn gru(prior: Option<Prior>) -> impl Fn(u64) -> Box<dyn CostModel> + Sync {
    move |seed| Box::new(Gru::new(GruParams { seed, prior, ..GruParams::default() }))
}
