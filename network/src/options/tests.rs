//! Comparison of plans with all possible plans.
#![allow(clippy::unwrap_used)]

use autotune::Query;
use autotune_db::{TuningDb, TuningRecord};
use autotune_ir::{CpuTarget, Target};
use autotune_workloads::TransposeWorkload;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use self::long::or_long;
use super::*;
use crate::choose::Schedules;
use crate::conversions::conversions;
use crate::plan::NetworkPlan;
use crate::testing::{any_secs, known, random_graph};

#[path = "../../../workloads/tests/common/long.rs"]
#[allow(unreachable_pub)]
mod long;

fn target() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(1))
}

/// Gives some of the possible conversions of a graph a time.
fn time_some(db: &TuningDb, cut: &Cut, rng: &mut ChaCha8Rng) {
    for value in cut.values.iter().filter(|value| fits(value, Layout::ChannelBlocked(8))) {
        for (from, to) in [(Layout::Plain, Layout::ChannelBlocked(8)), (Layout::ChannelBlocked(8), Layout::Plain)] {
            let form = |layout| Form { layout, dtype: value.dtype };
            let workload = conversion::workload(&value.shape, form(from), form(to), &target()).unwrap();
            if rng.random_bool(0.5) {
                let config = Query::new(&workload, &target()).best().unwrap().config().clone();
                db.append(&TuningRecord::synthetic(&workload, &target(), config, any_secs(rng))).unwrap();
            }
        }
    }
}

/// Returns the time of a plan's steps and conversions.
fn secs_of(options: &Options<'_>, layouts: &Layouts, plan: &NetworkPlan) -> f64 {
    let steps: f64 = (0..layouts.picks.len()).map(|step| options.run_secs(layouts, step)).sum();
    let conversion = |tuned: &Tuned| {
        let shape = tuned.workload().sizes::<TransposeWorkload>().unwrap().shape();
        tuned.run_secs().unwrap_or_else(|| conversion::estimated_secs(shape, tuned.workload().dtype()))
    };
    steps + plan.conversions().map(conversion).sum::<f64>()
}

/// Returns every choice of layouts and schedules; `None` if there are too many.
fn all(options: &Options<'_>) -> Option<Vec<Layouts>> {
    let roots = (0..options.cut.values.len()).filter(|&value| options.cut.values[value].within.is_none());
    let roots: Vec<ValueId> = roots.map(|value| ValueId(value as u32)).collect();
    let blocked = Layout::ChannelBlocked(8);
    let layout_counts: Vec<usize> =
        roots.iter().map(|&root| 1 + usize::from(options.can_have_layout(root, blocked))).collect();
    let picks = options
        .layout_constraints
        .iter()
        .map(|wishes| if let LayoutConstraints::Of(of) = wishes { of.len() } else { 1 });
    let domains: Vec<usize> = layout_counts.into_iter().chain(picks).collect();

    let count = domains.iter().try_fold(1usize, |count, domain| count.checked_mul(*domain))?;
    let layouts = |mut rest: usize| {
        let mut digits = domains.iter().map(|domain| {
            let digit = rest % domain;
            rest /= domain;
            digit
        });
        let own = roots.iter().zip(&mut digits).map(|(&root, at)| (root, [Layout::Plain, blocked][at])).collect();
        Layouts { roots: own, picks: digits.collect(), secs: 0.0 }
    };
    (count <= 4000).then(|| (0..count).map(layouts).collect())
}

/// The minimum equals the time of the fastest of all plans, where each conversion runs once for all
/// readers; also with one tensor in another layout. Half of the conversions have measured times.
#[test]
fn the_fastest_of_all_plans_is_found() {
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let (graphs, mut checked, mut converting) = (or_long([24, 60]), 0, 0);
    for _ in 0..graphs {
        let graph = random_graph(&mut rng, 5);
        let db = known(&graph, &target(), &mut rng, 3);
        let cut = Cut::of(&graph);
        time_some(&db, &cut, &mut rng);
        let target = target();
        let mut choose = Schedules::kinds(Some(&db), &target);
        let options = Options::of(&graph, &cut, &mut choose).unwrap();
        let Some(all) = all(&options) else { continue };

        let mut secs = |layouts: &Layouts| {
            let plan = NetworkPlan::with(&options, layouts, &mut choose).unwrap();
            (secs_of(&options, layouts, &plan), plan.conversions().count())
        };
        let timed: Vec<(f64, &Layouts)> = all.iter().map(|layouts| (secs(layouts).0, layouts)).collect();
        let least_of = |fits: &dyn Fn(&Layouts) -> bool| {
            timed.iter().filter(|(_, layouts)| fits(layouts)).map(|(secs, _)| *secs).fold(f64::INFINITY, f64::min)
        };
        let near = options.near(f64::INFINITY);
        let (found, conversions) = secs(&near[0]);
        let is_same = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(is_same(found, near[0].secs) && is_same(found, least_of(&|_| true)), "{found} {}", near[0].secs);

        for other in &near[1..] {
            let differs = |(root, layout): (&ValueId, &Layout)| near[0].roots[root] != *layout;
            let changed: Vec<(&ValueId, &Layout)> = other.roots.iter().filter(|(r, l)| differs((r, l))).collect();
            let is_least = |&(root, layout): &(&ValueId, &Layout)| {
                is_same(other.secs, least_of(&|layouts| layouts.roots[root] == *layout))
            };
            assert!(is_same(secs(other).0, other.secs) && changed.iter().any(is_least), "{}", other.secs);
        }
        checked += 1;
        converting += usize::from(conversions > 0);
    }
    assert!(checked > graphs / 3 && converting > graphs / 12, "{checked} {converting}");
}

/// Alternatives are ordered by promise, differ in schedules, and are limited in number.
#[test]
fn alternatives_differ_and_lose_little() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let mut found = 0;
    for _ in 0..30 {
        let graph = random_graph(&mut rng, 8);
        let db = known(&graph, &target(), &mut rng, 5);
        let (cut, target) = (Cut::of(&graph), target());
        let options = Options::of(&graph, &cut, &mut Schedules::kinds(Some(&db), &target)).unwrap();
        let least = options.least();
        let others = options.alternatives(&least, 3);
        assert!(others.len() <= 3);
        for (number, other) in others.iter().enumerate() {
            assert!(other.picks != least.picks && others[..number].iter().all(|known| known.picks != other.picks));
            assert!(least.secs <= other.secs && other.secs <= (1.0 + DOUBT) * least.secs + 1e-12);
        }
        found += others.len();
    }
    assert!(found > 10, "{found}");
}

/// A plan's conversions are to be measured until they are. Measured times then decide, and another
/// machine's times do not count.
#[test]
fn conversions_are_measured_that_plans_need() {
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let (mut asked, mut changed) = (0, 0);
    for _ in 0..40 {
        let graph = random_graph(&mut rng, 8);
        let db = known(&graph, &target(), &mut rng, 5);
        let choice = |db: &TuningDb| {
            let (cut, target) = (Cut::of(&graph), target());
            let options = Options::of(&graph, &cut, &mut Schedules::kinds(Some(db), &target)).unwrap();
            options.least().picks
        };
        let before = choice(&db);
        let first = conversions(&graph, &db, &target()).unwrap();
        assert!((0.0..=1.0).contains(&first.share) && (first.share > 0.0) != first.needed.is_empty(), "{first:?}");
        assert!(first.unmeasured.starts_with(&first.needed), "{first:?}");

        // The measured conversions turn out to be slow, so others are needed; in the end all of
        // those are known.
        let mut rounds = 0;
        loop {
            let planned = conversions(&graph, &db, &target()).unwrap();
            let Some(task) = planned.unmeasured.first() else { break };
            let config = Query::new(&task.workload, &target()).best().unwrap().config().clone();
            let claim = TuningRecord::synthetic(&task.workload, &target(), config.clone(), 1e-9);
            let claim = autotune_db::TuningRecord { imported: true, ..claim };
            db.append(&claim).unwrap();
            assert!(
                conversions(&graph, &db, &target()).unwrap().unmeasured.iter().any(|t| t.workload == task.workload)
            );
            db.append(&TuningRecord::synthetic(&task.workload, &target(), config, 1e-3)).unwrap();
            rounds += 1;
            assert!(rounds <= 2 * Cut::of(&graph).values.len());
        }
        asked += rounds;
        changed += usize::from(choice(&db) != before);
        let after = conversions(&graph, &db, &target()).unwrap();
        assert!(after.share == 0.0 || !after.needed.is_empty());
    }
    assert!(asked > 20 && changed > 5, "{asked} {changed}");
}
