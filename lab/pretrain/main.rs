//! Trains the files that ship for choosing schedules without measuring, two models and a portfolio,
//! from a recorded test bed.
//!
//! `cargo run --release -p autotune-lab --example pretrain -- TEST_BED ISA`
//!
//! With a second test bed in place of the instruction set, it writes nothing: it prints how models
//! of one machine rank the schedules of the other, with nominal and with measured rates
//! ([`machines`]).
//!
//! Writes `cost_model/pretrained/ISA.trees` (the main model), `cost_model/pretrained/ISA.drafts`
//! (the cheap ranking model) and `schedules/portfolio/ISA.jsonl` of this repository. Prints how
//! well such models rank families and shapes that they were not trained on, and how good the
//! schedules are that are chosen among transferred ones.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use autotune_cost_model::{Pretrained, RankingModel};
use autotune_lab::test_bed::TestBed;
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
    let isa = argument(2).context("which family of instruction sets: avx512, avx2?")?;
    let target = test_bed.header.target()?;
    let recordings = test_bed.tasks();
    let columns = draft_columns(&recordings, &target);
    let described = recordings.into_par_iter().map(|recording| Task::of(recording, &target, &columns));
    let tasks: Vec<Task> = described.collect();

    let expected = judge(&tasks)?;
    let [trees, drafts] = [Rows::LoopNests, Rows::Knobs].map(|rows| train(tasks.iter(), rows));
    let pretrained = Pretrained::of(&trees?, expected.first as f32).context("the trees are too large to be written")?;
    let drafts = RankingModel::encode(&drafts?, &columns, expected.carried as f32);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::write(root.join(format!("cost_model/pretrained/{isa}.trees")), pretrained.to_bytes())?;
    let drafts = drafts.context("the trees of the draft are too large to be written")?;
    fs::write(root.join(format!("cost_model/pretrained/{isa}.drafts")), drafts)?;

    let portfolio = cover(&tasks);
    fs::write(root.join(format!("schedules/portfolio/{isa}.jsonl")), portfolio.to_text()?)?;
    Ok(())
}
