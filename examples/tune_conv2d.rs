//! Tunes one convolution and prints what came out.
//!
//! `cargo run --release -p autotune-examples --example tune_conv2d [TRIALS]`

use autotune::{Silent, Task, TuneOptions, tune};
use autotune_db::TuningDb;
use autotune_ir::Target;
use autotune_schedules::ScheduleSpace;

fn main() -> anyhow::Result<()> {
    autotune::serve_if_worker();
    let trials = std::env::args().nth(1).map_or(Ok(32), |t| t.parse())?;
    let target = Target::detect("cpu", Some(1))?;
    let tasks = [Task::single("conv2d:c=32,h=28,w=28,o=32,k=3,p=1,bias,act=relu".parse()?)];
    let options = TuneOptions { trials: Some(trials), ..TuneOptions::default() };
    let db = TuningDb::temporary()?;
    let report = tune(&tasks, &target, &options, &mut autotune_examples::measurer(&target)?, &db, &mut Silent)?;
    for task in &report.tasks {
        println!("{}: {:?} s, untuned {:?} s", task.name, task.best_secs, task.default_secs);
    }
    let space = ScheduleSpace::new(&tasks[0].workload, &target);
    if let Some(best) = db.best(space.workload(), &target.key(), &|config| space.contains(config))? {
        println!("{}", best.record.config);
    }
    Ok(())
}
