//! The ledger against random sequences of events: every wish gets one answer.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use autotune_fleet::ledger::Ledger;
use autotune_fleet::message::LeaseId;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::sim::candidates;

const WORKERS: usize = 4;

#[test]
fn random_events_leave_one_answer_for_each_wish() {
    let all = candidates(40, 3);
    for seed in 0..300 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut ledger = Ledger::new(9, 3);
        let (mut now, mut given) = (Instant::now(), 0);
        let mut answered = HashSet::new();
        // Wishes that a worker still holds by its own account, whatever the ledger says.
        let mut believed: Vec<(LeaseId, u64)> = Vec::new();
        let mut answer = |wish: u64| assert!(answered.insert(wish), "seed {seed}: a second answer to {wish}");

        while given < all.len() || !ledger.is_done() {
            let worker = rng.random_range(0..WORKERS);
            let lost = match rng.random_range(0..10) {
                0 if given < all.len() => {
                    let count = rng.random_range(1..8).min(all.len() - given);
                    ledger.add(all[given..given + count].to_vec());
                    given += count;
                    continue;
                }
                0..4 => {
                    if let Some(leased) = ledger.take(worker, rng.random_range(1..9), now) {
                        assert!(!leased.wishes.is_empty());
                        believed.extend(leased.wishes.iter().map(|(number, _)| (leased.lease, *number)));
                    }
                    continue;
                }
                4..7 if !believed.is_empty() => {
                    let (lease, wish) = believed.swap_remove(rng.random_range(0..believed.len()));
                    // One answer in four is repeated.
                    for _ in 0..1 + usize::from(rng.random_ratio(1, 4)) {
                        if let Some(candidate) = ledger.answer(lease.run, wish, now) {
                            assert_eq!(candidate.stable_hash(), all[wish as usize].stable_hash());
                            answer(wish);
                        }
                    }
                    continue;
                }
                7 => ledger.lose(worker, "killed"),
                8 if !believed.is_empty() => ledger.give_back(believed[0].0, None),
                _ => {
                    now += Duration::from_millis(rng.random_range(0..40));
                    ledger.expire(now, Duration::from_millis(100)).1
                }
            };
            lost.failed.iter().for_each(|(wish, _)| answer(*wish));
        }
        assert_eq!(answered.len(), all.len(), "seed {seed}");
    }
}

#[test]
fn answers_of_other_runs_and_to_wishes_that_nobody_got_are_ignored() {
    let now = Instant::now();
    let mut ledger = Ledger::new(7, 3);
    ledger.add(candidates(2, 1));
    assert!(ledger.answer(7, 0, now).is_none(), "nobody got it");
    let leased = ledger.take(0, 1, now).unwrap();
    assert_eq!(leased.wishes[0].0, 0);
    assert!(ledger.answer(8, 0, now).is_none(), "another run");
    assert!(ledger.answer(7, 5, now).is_none(), "no such wish");
    assert!(ledger.answer(7, 0, now).is_some() && ledger.answer(7, 0, now).is_none());
    assert_eq!((ledger.waiting(), ledger.is_done()), (1, false));
}

#[test]
fn a_late_answer_counts_and_ends_the_new_lease() {
    let now = Instant::now();
    let mut ledger = Ledger::new(7, 3);
    ledger.add(candidates(3, 1));
    let first = ledger.take(0, 3, now).unwrap();
    let late = now + Duration::from_secs(11);
    let (workers, lost) = ledger.expire(late, Duration::from_secs(10));
    assert_eq!((workers, lost.again, lost.failed.len()), (vec![0], 3, 0));
    let second = ledger.take(1, 3, late).unwrap();
    assert_eq!(second.wishes.len(), 1, "after a loss each wish is leased alone");
    assert!(ledger.answer(first.lease.run, first.wishes[0].0, late).is_some());
    assert_eq!(ledger.held_by(1), 0);
    assert!(ledger.answer(second.lease.run, second.wishes[0].0, late).is_none(), "it was the same wish");
}

#[test]
fn a_wish_fails_after_three_lost_deliveries_and_others_do_not() {
    let now = Instant::now();
    let mut ledger = Ledger::new(7, 3);
    ledger.add(candidates(5, 1));
    assert_eq!(ledger.take(0, 5, now).unwrap().wishes.len(), 5);
    let mut failed = ledger.lose(0, "killed").failed;
    // The first wish kills every worker that gets it.
    while failed.is_empty() {
        let leased = ledger.take(0, 5, now).unwrap();
        assert_eq!(leased.wishes.len(), 1);
        assert!(ledger.take(0, 5, now).is_none(), "a suspect is measured alone");
        let wish = leased.wishes[0].0;
        match wish {
            0 => failed = ledger.lose(0, "killed").failed,
            _ => drop(ledger.answer(7, wish, now)),
        }
    }
    assert_eq!(failed[0].0, 0);
    let message = failed[0].1.outcome.as_ref().unwrap_err().to_string();
    assert!(message.contains("3 deliveries") && message.contains("killed"), "{message}");
    while let Some(leased) = ledger.take(1, 5, now) {
        assert!(ledger.answer(7, leased.wishes[0].0, now).is_some());
    }
    assert!(ledger.is_done());
}

#[test]
fn a_stop_in_good_order_costs_no_delivery() {
    let now = Instant::now();
    let mut ledger = Ledger::new(7, 1);
    ledger.add(candidates(4, 1));
    for _ in 0..5 {
        let leased = ledger.take(0, 9, now).unwrap();
        assert_eq!(leased.wishes.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(ledger.give_back(leased.lease, None).again, 4);
    }
    let leased = ledger.take(0, 9, now).unwrap();
    assert_eq!(ledger.give_back(leased.lease, Some("no memory")).failed.len(), 4);
}
