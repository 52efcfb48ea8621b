//! Minimisation of a sum of costs that depend on few variables each.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

/// Maximum number of table entries for the elimination of a variable.
const MOST_ENTRIES: usize = 1 << 18;
/// Lower limit for single tables once all tables exceed [`MOST_OF_ALL`] entries in total.
const FEW_ENTRIES: usize = 1 << 6;
/// Total number of table entries before the limit is lowered: about a second of work.
const MOST_OF_ALL: usize = 1 << 23;
/// Numbers of entries are not distinguished from here on.
const COUNTED: f64 = (1u64 << 60) as f64;

/// A cost for every combination of values of some variables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Factor {
    /// Numbers of the variables, each once, in the order of the table's axes.
    pub(crate) variables: Vec<usize>,
    /// Costs by the values of the variables, the last varying fastest.
    pub(crate) costs: Vec<f64>,
}

impl Factor {
    /// Returns the cost, given the values of all variables.
    pub(crate) fn cost(&self, domains: &[usize], values: &[usize]) -> f64 {
        self.costs[index(&self.variables, domains, values)]
    }

    /// Returns the distance between costs of neighbouring values of a variable; 0 if the cost does
    /// not depend on it.
    fn stride(&self, variable: usize, domains: &[usize]) -> usize {
        let Some(at) = self.variables.iter().position(|&other| other == variable) else { return 0 };
        self.variables[at + 1..].iter().map(|&other| domains[other]).product()
    }
}

/// Returns the value of each variable that minimises the sum of all factors. `domains` are the
/// numbers of values.
///
/// Exact by variable elimination (Dechter, "Bucket elimination" (1999)) with the variable of the
/// smallest table first. Chains, trees and networks of residual blocks need tables over few
/// variables only. Where a table would be too large, the variable gets the value that is best if
/// all others are optimal for each factor separately. The time is proportional to the number of
/// variables and factors, plus a bounded time for tables.
pub(crate) fn minimise(domains: &[usize], factors: Vec<Factor>) -> Minimum {
    let mut live = Live::of(domains, factors);
    let mut made = 0;
    // Eliminated variables in order, with the factors that decide their values. Variables with a
    // single value never become candidates.
    let mut decided: Vec<(usize, Vec<Factor>)> = Vec::new();
    let mut values = vec![0; domains.len()];

    while let Some((variable, own)) = live.take_smallest() {
        // The new factor depends on all variables that share a factor with this one.
        let scope: Vec<usize> = std::mem::take(&mut live.neighbours[variable]).into_iter().collect();
        let entries: Option<usize> = scope.iter().try_fold(1usize, |n, &other| n.checked_mul(domains[other]));
        let most = if made < MOST_OF_ALL { MOST_ENTRIES } else { FEW_ENTRIES };
        match entries.filter(|&entries| entries <= most) {
            Some(entries) => {
                made += entries;
                live.push(eliminate(variable, scope.clone(), entries, &own, domains));
                decided.push((variable, own));
            }
            None => {
                values[variable] = optimist(variable, &own, domains);
                own.iter().for_each(|factor| live.push(fix(factor, variable, values[variable], domains)));
                decided.push((variable, Vec::new()));
            }
        }
        live.measure(&scope);
    }

    // Backward pass: the last eliminated variable depends on none before it.
    for (variable, own) in decided.iter().rev().filter(|(_, own)| !own.is_empty()) {
        values[*variable] = best_of(*variable, own, domains, &mut values).0;
    }
    Minimum { values, entries: made }
}

/// Result of a minimisation.
pub(crate) struct Minimum {
    /// Value of each variable.
    pub(crate) values: Vec<usize>,
    /// Number of table entries computed.
    pub(crate) entries: usize,
}

/// Factors and variables that are not eliminated yet.
struct Live<'a> {
    domains: &'a [usize],
    factors: Vec<Option<Factor>>,
    /// Factors that depend on each variable.
    factors_of: Vec<Vec<usize>>,
    /// For each variable, the other variables in its factors.
    neighbours: Vec<BTreeSet<usize>>,
    /// Size of the table for each variable's elimination, capped at [`COUNTED`]; `None` once it is
    /// eliminated.
    entries: Vec<Option<f64>>,
    /// Table sizes as a priority queue, which also contains outdated sizes. The bits of positive
    /// floats have the same order as the floats.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'a> Live<'a> {
    fn of(domains: &'a [usize], factors: Vec<Factor>) -> Self {
        let (of, neighbours) = (vec![Vec::new(); domains.len()], vec![BTreeSet::new(); domains.len()]);
        let (entries, queue) = (vec![None; domains.len()], BinaryHeap::new());
        let mut live = Self { domains, factors: Vec::new(), factors_of: of, neighbours, entries, queue };
        let is_open = |variable: &usize| domains[*variable] > 1;
        for mut factor in factors {
            // Variables with a single value need no elimination.
            factor.variables.retain(is_open);
            live.push(factor);
        }
        live.measure(&(0..domains.len()).filter(is_open).collect::<Vec<_>>());
        live
    }

    fn push(&mut self, factor: Factor) {
        for &variable in &factor.variables {
            self.factors_of[variable].push(self.factors.len());
            self.neighbours[variable].extend(factor.variables.iter().filter(|&&other| other != variable));
        }
        self.factors.push(Some(factor));
    }

    /// Updates the table sizes of variables.
    fn measure(&mut self, variables: &[usize]) {
        for &variable in variables {
            let mut beside = self.neighbours[variable].iter().map(|&other| self.domains[other] as f64);
            let product = beside.try_fold(1.0, |n, values| if n < COUNTED { Ok(n * values) } else { Err(()) });
            let entries = product.unwrap_or(COUNTED).min(COUNTED);
            self.entries[variable] = Some(entries);
            self.queue.push(Reverse((entries.to_bits(), variable)));
        }
    }

    /// Removes the variable with the smallest table, and its factors.
    fn take_smallest(&mut self) -> Option<(usize, Vec<Factor>)> {
        // Skip outdated entries of the queue.
        let variable = loop {
            let Reverse((bits, variable)) = self.queue.pop()?;
            if self.entries[variable].map(f64::to_bits) == Some(bits) {
                break variable;
            }
        };
        self.entries[variable] = None;
        for other in self.neighbours[variable].clone() {
            self.neighbours[other].remove(&variable);
        }
        let own = std::mem::take(&mut self.factors_of[variable]).into_iter();
        Some((variable, own.filter_map(|factor| self.factors[factor].take()).collect()))
    }
}

/// Eliminates a variable: returns the minimum of some factors over its values, as a factor over
/// `scope` with `entries` combinations.
fn eliminate(variable: usize, scope: Vec<usize>, entries: usize, own: &[Factor], domains: &[usize]) -> Factor {
    // Position in each factor for the current values of the scope and the variable's first value.
    let mut places = vec![0; own.len()];
    let strides: Vec<usize> = own.iter().map(|factor| factor.stride(variable, domains)).collect();
    let of_scope = |&other: &usize| own.iter().map(|factor| factor.stride(other, domains)).collect();
    let scope_strides: Vec<Vec<usize>> = scope.iter().map(of_scope).collect();
    let mut digits = vec![0; scope.len()];

    let mut costs = Vec::with_capacity(entries);
    for _ in 0..entries {
        let cost = |value: usize| {
            let of = |((factor, place), stride): ((&Factor, &usize), &usize)| factor.costs[place + value * stride];
            own.iter().zip(&places).zip(&strides).map(of).sum::<f64>()
        };
        costs.push((0..domains[variable]).map(cost).fold(f64::INFINITY, f64::min));

        // Advance to the next combination, the last digit first.
        for (at, &other) in scope.iter().enumerate().rev() {
            digits[at] += 1;
            places.iter_mut().zip(&scope_strides[at]).for_each(|(place, stride)| *place += stride);
            if digits[at] < domains[other] {
                break;
            }
            digits[at] = 0;
            places.iter_mut().zip(&scope_strides[at]).for_each(|(place, stride)| *place -= stride * domains[other]);
        }
    }
    Factor { variables: scope, costs }
}

/// Returns the best value of a variable with all others fixed, and its cost.
fn best_of(variable: usize, own: &[Factor], domains: &[usize], values: &mut [usize]) -> (usize, f64) {
    let mut best = (0, f64::INFINITY);
    for value in 0..domains[variable] {
        values[variable] = value;
        let cost = own.iter().map(|factor| factor.cost(domains, values)).sum();
        if cost < best.1 {
            best = (value, cost);
        }
    }
    best
}

/// Returns the value of a variable that is best if the other variables are optimal for each factor
/// separately.
fn optimist(variable: usize, own: &[Factor], domains: &[usize]) -> usize {
    let least = |value: usize| {
        let of =
            |factor: &Factor| fix(factor, variable, value, domains).costs.into_iter().fold(f64::INFINITY, f64::min);
        own.iter().map(of).sum::<f64>()
    };
    (0..domains[variable]).min_by(|&a, &b| least(a).total_cmp(&least(b))).unwrap_or(0)
}

/// Returns a factor with a variable fixed to a value.
fn fix(factor: &Factor, variable: usize, value: usize, domains: &[usize]) -> Factor {
    let inner = factor.stride(variable, domains);
    if inner == 0 {
        return factor.clone();
    }
    let of_value = factor.costs.chunks_exact(inner).skip(value).step_by(domains[variable]);
    let costs = of_value.flatten().copied().collect();
    let variables = factor.variables.iter().copied().filter(|&other| other != variable).collect();
    Factor { variables, costs }
}

fn index(variables: &[usize], domains: &[usize], values: &[usize]) -> usize {
    variables.iter().fold(0, |index, &variable| index * domains[variable] + values[variable])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};

    fn sum(domains: &[usize], factors: &[Factor], values: &[usize]) -> f64 {
        factors.iter().map(|factor| factor.cost(domains, values)).sum()
    }

    fn random(rng: &mut impl RngExt, domains: &[usize], scope: Vec<usize>) -> Factor {
        let entries: usize = scope.iter().map(|&variable| domains[variable]).product();
        Factor { variables: scope, costs: (0..entries).map(|_| rng.random_range(0.0..1.0)).collect() }
    }

    #[test]
    fn the_minimum_over_all_combinations_is_found() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
        for _ in 0..100 {
            let domains: Vec<usize> = (0..7).map(|_| rng.random_range(1..4)).collect();
            let factor = |rng: &mut rand_chacha::ChaCha8Rng| {
                let mut scope: Vec<usize> = (0..rng.random_range(0..4)).map(|_| rng.random_range(0..7)).collect();
                scope.sort_unstable();
                scope.dedup();
                random(rng, &domains, scope)
            };
            let factors: Vec<Factor> = (0..9).map(|_| factor(&mut rng)).collect();
            let found = sum(&domains, &factors, &minimise(&domains, factors.clone()).values);

            let combinations: usize = domains.iter().product();
            let all = (0..combinations).map(|mut rest| {
                let digit = |&domain: &usize| {
                    let value = rest % domain;
                    rest /= domain;
                    value
                };
                sum(&domains, &factors, &domains.iter().map(digit).collect::<Vec<_>>())
            });
            let least = all.fold(f64::INFINITY, f64::min);
            assert!((found - least).abs() < 1e-9, "{found} for {least} of {domains:?}");
        }
    }

    /// A chain like the steps of a recurrent network; superlinear time would take minutes here.
    #[test]
    fn long_chains_take_no_large_tables() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        let domains: Vec<usize> = (0..6000).map(|_| if rng.random_range(0..10) == 0 { 3 } else { 1 }).collect();
        let links = (0..domains.len() - 2).map(|first| vec![first, first + 1, first + 2]);
        let factors: Vec<Factor> = links.map(|scope| random(&mut rng, &domains, scope)).collect();
        let values = minimise(&domains, factors.clone()).values;
        assert!(values.iter().zip(&domains).all(|(value, domain)| value < domain));
        assert!(sum(&domains, &factors, &values) <= sum(&domains, &factors, &vec![0; domains.len()]));
    }

    /// A star around one variable, and a grid wider than any permitted table; superlinear time
    /// would take minutes here.
    #[test]
    fn stars_and_wide_grids_take_bounded_tables() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(11);
        let star: Vec<Vec<usize>> = (1..50_000).map(|leaf| vec![0, leaf]).collect();
        let of_node = |node: usize| [vec![node, node + 1], vec![node, node + 40]];
        let grid: Vec<Vec<usize>> = (0..39 * 40).filter(|node| node % 40 < 39).flat_map(of_node).collect();
        for (variables, scopes) in [(50_000, star), (40 * 40, grid)] {
            let domains = vec![2; variables];
            let factors: Vec<Factor> = scopes.into_iter().map(|scope| random(&mut rng, &domains, scope)).collect();
            let Minimum { values, entries } = minimise(&domains, factors.clone());
            assert!(entries <= MOST_OF_ALL + MOST_ENTRIES + FEW_ENTRIES * variables, "{entries}");
            assert!(sum(&domains, &factors, &values) < 0.8 * sum(&domains, &factors, &vec![0; variables]));
        }
    }

    #[test]
    fn a_clique_that_is_too_large_still_gets_values() {
        let domains = vec![2; 24];
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let pairs = (0..24).flat_map(|a| (0..a).map(move |b| vec![b, a]));
        let factors: Vec<Factor> = pairs.map(|scope| random(&mut rng, &domains, scope)).collect();
        let values = minimise(&domains, factors.clone()).values;
        assert!(values.iter().all(|&value| value < 2));
        assert!(sum(&domains, &factors, &values) < sum(&domains, &factors, &[0; 24]));
    }
}
