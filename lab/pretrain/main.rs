//! Trains the files that ship for choosing schedules without measuring, two models and a portfolio,
//! from a recorded test bed.
//!
//! `cargo run --release -p autotune-lab --example pretrain -- TEST_BED SET`
//!
//! With a second test bed in place of the name of a set, it writes nothing: it prints how models
//! of one machine rank the schedules of the other, with nominal and with measured rates
//! ([`machines`]).
//!
//! Writes `cost_model/pretrained/SET.trees` (the main model), `cost_model/pretrained/SET.drafts`
//! (the cheap ranking model) and `schedules/portfolio/SET.jsonl` of this repository. Prints how
//! well such models rank families and shapes that they were not trained on, and how good the
//! schedules are that are chosen among transferred ones.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use autotune::PredictParams;
use autotune_cost_model::{Pretrained, RankingModel};
use autotune_lab::test_bed::TestBed;
use autotune_schedules::portfolio::ShippedSet;
use rayon::prelude::*;

use crate::cover::cover;
use crate::judge::judge;
use crate::machines::compare;
use crate::task::{Rows, Task, draft_columns, train};

mod cover;
mod judge;
mod machines;
mod task;

fn main() -> Result<()> {
    let argument = |i: usize| std::env::args().nth(i);
    let first = argument(1).context("which test bed?")?;
    if let Some(other) = argument(2).filter(|other| Path::new(other).exists()) {
        return compare(&[TestBed::read(first)?, TestBed::read(other)?]);
    }
    let test_bed = TestBed::read(first)?;
    let set = argument(2).context("which set: avx512, avx512_narrow, avx2?")?;
    let target = test_bed.header.target()?;
    let recordings = test_bed.tasks();
    let columns = draft_columns(&recordings, &target);
    let described = recordings.into_par_iter().map(|recording| Task::of(recording, &target, &columns));
    let tasks: Vec<Task> = described.collect();

    let shipped = tasks.first().and_then(|task| ShippedSet::of(task.space.workload(), &target));
    let miss = shipped.map_or(PredictParams::QUICK, PredictParams::quick);
    let expected = judge(&tasks, miss)?;
    let [trees, drafts] = [Rows::LoopNests, Rows::Knobs].map(|rows| train(tasks.iter(), rows));
    let pretrained = Pretrained::of(&trees?, expected.first as f32).context("the trees are too large to be written")?;
    let drafts = RankingModel::encode(&drafts?, &columns, expected.carried as f32);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::write(root.join(format!("cost_model/pretrained/{set}.trees")), pretrained.to_bytes())?;
    let drafts = drafts.context("the trees of the draft are too large to be written")?;
    fs::write(root.join(format!("cost_model/pretrained/{set}.drafts")), drafts)?;

    let portfolio = cover(&tasks);
    fs::write(root.join(format!("schedules/portfolio/{set}.jsonl")), portfolio.to_text()?)?;
    Ok(())
}
