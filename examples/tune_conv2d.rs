//! Tunes one convolution, and prints its times and its best schedule.
//!
//! `cargo run --release -p autotune-examples --example tune_conv2d [TRIALS]`

use autotune::{Query, Target, Task, Tuner, TuningDb, Workload};

fn main() -> anyhow::Result<()> {
    autotune::serve_if_worker();
    let trials: usize = std::env::args().nth(1).map_or(Ok(32), |t| t.parse())?;
    let target = Target::detect("cpu", Some(1))?;
    let workload: Workload = "conv2d:c=32,h=28,w=28,o=32,k=3,p=1,bias,act=relu".parse()?;
    let db = TuningDb::temporary()?;
    let report = Tuner::new(&target).trials(trials).database(&db).tune(&[Task::single(workload.clone())])?;
    println!("best {:?} s, untuned {:?} s", report.tasks[0].best_secs, report.tasks[0].default_secs);
    println!("{}", Query::new(&workload, &target).source(&db).best()?.config());
    Ok(())
}
