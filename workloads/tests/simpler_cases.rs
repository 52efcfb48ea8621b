//! Tests that failing random cases are reported in the simplest form found.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use rand::RngExt;

use crate::common::cases::{Choices, for_cases, for_cases_in_parallel};
use crate::common::workloads::random_workload;

fn told(property: impl Fn(u64, &mut Choices)) -> String {
    let failed = catch_unwind(AssertUnwindSafe(|| for_cases(20, property))).unwrap_err();
    *failed.downcast::<String>().unwrap()
}

#[test]
fn numbers_become_as_small_as_fails() {
    let said = told(|_, choices| {
        let [n, other] = [choices.random_range(0..1000), choices.random_range(0..1000)];
        assert!(n < 100, "{n} and {other}");
    });
    let numbers = said.split_once("made simpler: ").unwrap().1.split_once(" and ").unwrap();
    let n: u32 = numbers.0.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((100..110).contains(&n) && numbers.1.starts_with('0'), "{said}");
    assert!(said.starts_with("seed "), "{said}");
}

#[test]
fn workloads_become_small() {
    let failed = std::cell::RefCell::new(Vec::new());
    let said = told(|_, choices| {
        let workload = random_workload(choices);
        if workload.flops() >= 100.0 {
            failed.borrow_mut().push(workload.flops());
            panic!("flops={} {workload}", workload.flops());
        }
    });
    let flops: f64 = said.split_once("flops=").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    assert!(flops < failed.borrow()[0] / 8.0, "{said}, at first {}", failed.borrow()[0]);
}

#[test]
fn cases_are_the_same_every_time() {
    let drawn = || {
        let drawn = std::cell::RefCell::new(Vec::new());
        for_cases(5, |_, choices| drawn.borrow_mut().push(random_workload(choices).to_string()));
        drawn.into_inner()
    };
    assert_eq!((drawn().len(), drawn()), (5, drawn()));
}

type Property<'a> = dyn Fn(u64, &mut Choices) + Sync + 'a;

#[test]
fn cases_by_all_cores_are_the_same_and_the_first_that_fails_is_told() {
    let drawn = |run: &dyn Fn(&Property)| {
        let drawn = Mutex::new(BTreeMap::new());
        run(&|seed, choices| drop(drawn.lock().unwrap().insert(seed, random_workload(choices).to_string())));
        drawn.into_inner().unwrap()
    };
    let in_parallel = drawn(&|property| for_cases_in_parallel(50, property));
    assert_eq!((in_parallel.len(), &in_parallel), (50, &drawn(&|property| for_cases(50, property))));

    let fails = || for_cases_in_parallel(50, |seed, _| assert!(![7, 31, 44].contains(&seed), "this"));
    let said = *catch_unwind(fails).unwrap_err().downcast::<String>().unwrap();
    assert!(said.starts_with("seed 7, made simpler: ") && said.contains("this"), "{said}");
}
