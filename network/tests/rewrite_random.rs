//! Random graphs compute the same before and after rewriting, by all rules and by each alone. A
//! failing graph is shrunk. `AUTOTUNE_CASES` sets the number of cases.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use autotune_network::cut::{Cut, StepWork};
use autotune_network::operators::{Conv, Pool};
use autotune_network::{Graph, Input, rewrite};

use crate::common::cases::{cases, for_cases_in_parallel};
use crate::common::graphs::{assert_same, assert_same_by, ops};
use crate::common::random_graphs::random_graph;
use crate::long::or_long;

/// Numbers of graphs in an ordinary and a long run.
const CASES: [u64; 2] = [150, 600];

#[test]
fn by_all_rules() {
    let smaller = AtomicU64::new(0);
    for_cases_in_parallel(cases(or_long(CASES)), |seed, choices| {
        let graph = random_graph(seed, 36, choices);
        let rewritten = rewrite(&graph).unwrap();
        assert_same(&graph, &rewritten, seed);
        assert_normal(&rewritten, seed);
        smaller.fetch_add((ops(&rewritten).len() < ops(&graph).len()).into(), Ordering::Relaxed);
        // A second rewriting changes nothing.
        let again = rewrite(&rewritten).unwrap();
        assert_eq!(ops(&again), ops(&rewritten), "{seed}");
    });
    let smaller = smaller.into_inner();
    assert!(2 * smaller > cases(or_long(CASES)), "{smaller}");
}

/// Rewriting leaves no node to the interpreter.
#[test]
fn every_node_has_a_kernel() {
    for_cases_in_parallel(cases(or_long(CASES)), |seed, choices| {
        // Other graphs than above.
        let graph = rewrite(&random_graph(seed + 2000, 36, choices)).unwrap();
        for step in Cut::of(&graph).steps {
            if let StepWork::Interpret(id) = step.work {
                let node = graph.node(id);
                let shapes: Vec<_> = node.operands.iter().map(|&id| &graph.node(id).shape).collect();
                panic!("{seed}: {:?} of {shapes:?}", node.op);
            }
        }
    });
}

/// Fails if forms without kernels remain.
fn assert_normal(graph: &Graph, seed: u64) {
    for (_, node) in graph.nodes() {
        let windows = node.op.of().map(|Conv { window, .. }| window);
        if let Some(window) = windows.or_else(|| node.op.of().map(|Pool { window, .. }| window)) {
            assert!(window.iter().all(|window| window.pad[0] == window.pad[1]), "{seed}: {node:?}");
        }
        let all_constant = node.operands.iter().all(|&id| graph.constant_of(id).is_some());
        assert!(node.operands.is_empty() || !all_constant, "{seed}: {node:?}");
    }
    let reached: HashSet<_> = graph.nodes().flat_map(|(_, node)| node.operands.clone()).collect();
    let outputs: HashSet<_> = graph.outputs().iter().map(|output| output.node).collect();
    let mut others = graph.nodes().filter(|(_, node)| !node.op.is::<Input>());
    assert!(others.all(|(id, _)| reached.contains(&id) || outputs.contains(&id)), "{seed}");
}

#[test]
fn by_each_rule_alone() {
    let applied = Mutex::new(HashSet::new());
    for_cases_in_parallel(cases(200), |seed, choices| {
        let graph = random_graph(seed + 1000, 30, choices);
        let merged = rewrite::apply(&graph, &[]).unwrap();
        assert_same(&graph, &merged, seed + 1000);
        for rule in rewrite::rules() {
            let rewritten = rewrite::apply(&graph, &[rule]).unwrap();
            if rewritten != merged {
                assert_same_by(rule.name, &graph, &rewritten, seed + 1000);
                applied.lock().unwrap().insert(rule.name);
            }
        }
    });
    let applied = applied.into_inner().unwrap();
    // Rules for the results of other rules, rare patterns and quantised tensors have tests of their
    // own.
    let all = rewrite::rules().count() - rewrite::rules_of_quantised().count();
    assert!(5 * applied.len() >= 2 * all, "{applied:?}");
}

#[test]
fn rules_have_names_of_their_own() {
    let names: HashSet<_> = rewrite::rules().map(|rule| rule.name).collect();
    assert_eq!(names.len(), rewrite::rules().count());
}

#[test]
fn the_page_has_every_rule() {
    let page = include_str!("../../docs/networks.md");
    let row = |rule: &rewrite::Rule| format!("| `{}` | {} | {} |", rule.name, rule.before, rule.after);
    let missing: Vec<String> = rewrite::rules().map(row).filter(|row| !page.contains(row)).collect();
    assert!(missing.is_empty(), "docs/networks.md lacks\n{}", missing.join("\n"));
}
