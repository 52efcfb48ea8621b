//! The least sum of costs that depend on few choices each.

/// Most entries of a table while a variable is eliminated.
const MOST_ENTRIES: usize = 1 << 18;

/// A cost for every combination of values of some variables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Factor {
    /// Which variables, each once.
    pub(crate) variables: Vec<usize>,
    /// Costs by the values of these, the last varying fastest.
    pub(crate) costs: Vec<f64>,
}

impl Factor {
    /// The cost of a combination, by the values of all variables.
    pub(crate) fn cost(&self, domains: &[usize], values: &[usize]) -> f64 {
        self.costs[index(&self.variables, domains, values)]
    }
}

/// For each variable the value with which the sum of all factors is least. `domains` are the numbers of values.
///
/// Exact by eliminating variables (Dechter, "Bucket elimination" (1999)), the one with the smallest table first: a chain, a tree or a network of
/// residual blocks takes tables of a few variables. Where a table would be too large, the variable takes the value that is best
/// by what the others could be at best.
pub(crate) fn minimise(domains: &[usize], factors: Vec<Factor>) -> Vec<usize> {
    let mut live = Live::of(domains, factors);
    // Eliminated variables with what decides on them, the first first. Those with one value have it.
    let mut decided: Vec<(usize, Vec<Factor>)> = Vec::new();
    let mut values = vec![0; domains.len()];
    let mut tried = values.clone();

    while let Some((variable, own)) = live.take_smallest() {
        let scope = std::mem::take(&mut live.beside[variable]);
        let entries: Option<usize> = scope.iter().try_fold(1usize, |n, &other| n.checked_mul(domains[other]));
        match entries.filter(|&entries| entries <= MOST_ENTRIES) {
            Some(entries) => {
                live.push(eliminate(variable, &scope, entries, &own, domains, &mut tried));
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

    for (variable, own) in decided.iter().rev().filter(|(_, own)| !own.is_empty()) {
        values[*variable] = best_of(*variable, own, domains, &mut values).0;
    }
    values
}

/// Factors and variables with several values while these are eliminated.
struct Live<'a> {
    domains: &'a [usize],
    factors: Vec<Option<Factor>>,
    /// For each variable the factors that depend on it.
    of: Vec<Vec<usize>>,
    /// For each variable those that it has a factor in common with.
    beside: Vec<Vec<usize>>,
    /// For each variable the entries of the table that its elimination makes; `None` of those that are gone.
    entries: Vec<Option<f64>>,
}

impl<'a> Live<'a> {
    fn of(domains: &'a [usize], factors: Vec<Factor>) -> Self {
        let none = || vec![Vec::new(); domains.len()];
        let mut live =
            Self { domains, factors: Vec::new(), of: none(), beside: none(), entries: vec![None; domains.len()] };
        let is_open = |variable: &usize| domains[*variable] > 1;
        for mut factor in factors {
            factor.variables.retain(is_open);
            live.push(factor);
        }
        live.measure(&(0..domains.len()).filter(is_open).collect::<Vec<_>>());
        live
    }

    fn push(&mut self, factor: Factor) {
        for &variable in &factor.variables {
            self.of[variable].push(self.factors.len());
            let beside = &mut self.beside[variable];
            beside.extend(factor.variables.iter().filter(|&&other| other != variable));
            beside.sort_unstable();
            beside.dedup();
        }
        self.factors.push(Some(factor));
    }

    /// Notes the sizes of tables anew.
    fn measure(&mut self, variables: &[usize]) {
        for &variable in variables {
            let entries = self.beside[variable].iter().map(|&other| self.domains[other] as f64).product();
            self.entries[variable] = Some(entries);
        }
    }

    /// Takes the variable with the smallest table away, and its factors.
    fn take_smallest(&mut self) -> Option<(usize, Vec<Factor>)> {
        let left = self.entries.iter().enumerate().filter_map(|(variable, entries)| Some((variable, (*entries)?)));
        let (variable, _) = left.min_by(|a, b| a.1.total_cmp(&b.1))?;
        self.entries[variable] = None;
        for other in self.beside[variable].clone() {
            self.beside[other].retain(|&beside| beside != variable);
        }
        let own = std::mem::take(&mut self.of[variable]).into_iter();
        Some((variable, own.filter_map(|factor| self.factors[factor].take()).collect()))
    }
}

/// The least cost of some factors over the values of a variable, by the values of the others, which are tried in `values`.
fn eliminate(
    variable: usize,
    scope: &[usize],
    entries: usize,
    own: &[Factor],
    domains: &[usize],
    values: &mut [usize],
) -> Factor {
    let cost = |entry: usize| {
        let mut rest = entry;
        for &other in scope.iter().rev() {
            values[other] = rest % domains[other];
            rest /= domains[other];
        }
        best_of(variable, own, domains, values).1
    };
    Factor { variables: scope.to_vec(), costs: (0..entries).map(cost).collect() }
}

/// The best value of a variable where all others have theirs, and its cost.
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

/// The value of a variable with the least sum of what each factor costs at best.
fn optimist(variable: usize, own: &[Factor], domains: &[usize]) -> usize {
    let least = |value: usize| {
        let of =
            |factor: &Factor| fix(factor, variable, value, domains).costs.into_iter().fold(f64::INFINITY, f64::min);
        own.iter().map(of).sum::<f64>()
    };
    (0..domains[variable]).min_by(|&a, &b| least(a).total_cmp(&least(b))).unwrap_or(0)
}

/// A factor at one value of a variable.
fn fix(factor: &Factor, variable: usize, value: usize, domains: &[usize]) -> Factor {
    let Some(at) = factor.variables.iter().position(|&other| other == variable) else { return factor.clone() };
    let inner: usize = factor.variables[at + 1..].iter().map(|&other| domains[other]).product();
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
    fn the_least_of_all_combinations_is_found() {
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
            let found = sum(&domains, &factors, &minimise(&domains, factors.clone()));

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

    /// As the steps of a recurrent network are: what grows faster than with their number takes minutes here.
    #[test]
    fn long_chains_take_no_large_tables() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        let domains: Vec<usize> = (0..6000).map(|_| if rng.random_range(0..10) == 0 { 3 } else { 1 }).collect();
        let links = (0..domains.len() - 2).map(|first| vec![first, first + 1, first + 2]);
        let factors: Vec<Factor> = links.map(|scope| random(&mut rng, &domains, scope)).collect();
        let values = minimise(&domains, factors.clone());
        assert!(values.iter().zip(&domains).all(|(value, domain)| value < domain));
        assert!(sum(&domains, &factors, &values) <= sum(&domains, &factors, &vec![0; domains.len()]));
    }

    #[test]
    fn a_clique_that_is_too_large_still_gets_values() {
        let domains = vec![2; 24];
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let pairs = (0..24).flat_map(|a| (0..a).map(move |b| vec![b, a]));
        let factors: Vec<Factor> = pairs.map(|scope| random(&mut rng, &domains, scope)).collect();
        let values = minimise(&domains, factors.clone());
        assert!(values.iter().all(|&value| value < 2));
        assert!(sum(&domains, &factors, &values) < sum(&domains, &factors, &[0; 24]));
    }
}
