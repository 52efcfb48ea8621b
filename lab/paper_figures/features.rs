//! Experiment on model inputs: knob values, or features of the loop nest.

use anyhow::Result;
use autotune_charts::{BarRow, Bars, standalone};
use autotune_cost_model::{XgbParams, features as columns};
use autotune_lab::median;

use crate::Bench;
use crate::data::{View, measured, trees};
use crate::page::{Figure, spread};
use crate::ranking::{Quality, over_seeds};
use crate::searches::params;
use crate::split::Split;

/// Number of configs of the same workload that a model learns from.
const OF_OWN: usize = 64;

// Number of configs of each other workload that a model learns from.
const OF_OTHERS: usize = 32;

/// Groups of feature columns by prefixes of their names. Sizes of the problem and the machine are
/// part of every group.
const PROBLEM: &[&str] = &["workload.", "target."];
const LOOPS: &[&str] = &["parallel.", "total.", "vector.", "register.", "iterations.", "loop."];
const MEMORY: &[&str] = &[
    "footprint.",
    "reuse.",
    "line_use.",
    "pages.",
    "lines_per_set.",
    "traffic",
    "fits.",
    "fill.",
    "overflow.",
    "tile_set.",
    "task_set.",
];
const ESTIMATES: &[&str] = &["estimate."];

pub(crate) fn features(bench: &Bench) -> Result<Figure> {
    let all = measured(&bench.record.tasks);
    let columns = |parts: &[&[&str]]| View::Columns(columns_of(&[&[PROBLEM], parts].concat()));
    let views = [
        ("values of the knobs", View::Knobs(columns_of(&[PROBLEM]))),
        ("loops: extents, kinds, register tile", columns(&[LOOPS])),
        ("memory: footprints, reuse, traffic", columns(&[MEMORY])),
        ("estimates of the time", columns(&[ESTIMATES])),
        ("all", View::all()),
    ];
    let splits = [Split::Own(OF_OWN), Split::Shapes(OF_OTHERS), Split::Families(OF_OTHERS)];
    // Without a prior, as the prior is an estimate that not every view contains.
    let new = trees(XgbParams { prior: None, ..params(&bench.target) });

    let head =
        splits.iter().flat_map(|split| ["pairwise", "mean top-1"].map(|what| format!("{}: {what}", split.name())));
    let mut table = vec![["a model sees".to_string()].into_iter().chain(head).collect::<Vec<_>>()];
    let mut rows = Vec::new();
    for (name, view) in &views {
        let mut row = vec![name.to_string()];
        let mut values_of_splits = Vec::new();
        for split in splits {
            let of_seeds = over_seeds(bench.seeds, &all, split, view, &new, true)?;
            let values = |value: fn(&Quality) -> f64| of_seeds.iter().map(value).collect::<Vec<f64>>();
            values_of_splits.push(Some(median(values(|it| it.mean_top[0]))));
            row.extend([spread(&values(|it| it.pairwise), 3), spread(&values(|it| it.mean_top[0]), 3)]);
        }
        table.push(row);
        rows.push(BarRow { name: name.to_string(), values: values_of_splits });
    }
    let series = splits.iter().map(|split| split.name()).collect();
    let title = "throughput of the pick over the best recorded, by what was learnt from".to_string();
    let charts = vec![("", standalone(Bars { title: title.clone(), axis: title, series, rows }.draw()))];
    Ok(Figure {
        name: "features",
        title: "What the model sees".into(),
        text: format!(
            "Trees without a prior that see the knobs' values or a part of the {} features of the loop nest, each with the sizes of the \
             problem. The paper finds that knobs are as good as loops within a task, and that only relations of touched memory to reuse \
             carry over to others. *Mean top-1*: the throughput of the pick over the best recorded.",
            columns::FEATURE_COUNT
        ),
        table,
        csv: Vec::new(),
        charts,
    })
}

/// Returns the columns whose names begin with one of the prefixes. GPU columns are zero in this
/// record.
fn columns_of(parts: &[&[&str]]) -> Vec<usize> {
    let is_part = |name: &str| parts.concat().iter().any(|part| name.starts_with(part));
    let names = columns::names().iter().enumerate();
    names.filter(|(_, name)| is_part(name)).map(|(column, _)| column).collect()
}
