//! Sums of products over named axes, compared with loops over all of them.

use std::collections::BTreeMap;

use autotune_graph::Tensor;

use crate::build::{Model, word};
use crate::common::{assert_near, at, indices, made, numbers, rng};

fn model(equation: &str, shapes: &[&[usize]]) -> Model {
    let names: Vec<String> = (0..shapes.len()).map(|index| format!("x{index}")).collect();
    let model = names.iter().zip(shapes).fold(Model::new(12), |model, (name, shape)| model.input(name, shape));
    model.node("Einsum", &names.join(" "), "y", vec![word("equation", equation)]).output("y")
}

/// Sums over all letters, of an equation without ellipses and with an output. Axes of extent 1 are
/// repeated.
fn by_loops(equation: &str, inputs: &[Tensor]) -> Tensor {
    let (left, right) = equation.split_once("->").unwrap();
    let terms: Vec<Vec<char>> = left.split(',').map(|term| term.chars().collect()).collect();
    let mut extents = BTreeMap::<char, usize>::new();
    for (letter, &extent) in terms.iter().zip(inputs).flat_map(|(term, input)| term.iter().zip(input.shape())) {
        extents.entry(*letter).and_modify(|most| *most = extent.max(*most)).or_insert(extent);
    }
    let summed: Vec<char> = extents.keys().copied().filter(|letter| !right.contains(*letter)).collect();
    let over = |letters: &[char]| letters.iter().map(|letter| extents[letter]).collect::<Vec<_>>();
    let outer: Vec<char> = right.chars().collect();

    made(&over(&outer), |out| {
        let product = |inner: Vec<usize>| -> f64 {
            let mut place: BTreeMap<char, i64> = outer.iter().copied().zip(out.iter().copied()).collect();
            place.extend(summed.iter().copied().zip(inner.iter().map(|&i| i as i64)));
            let element = |(term, input): (&Vec<char>, &Tensor)| {
                let index =
                    term.iter().zip(input.shape()).map(|(letter, &extent)| place[letter].min(extent as i64 - 1));
                at(input, &index.collect::<Vec<_>>()).unwrap()
            };
            terms.iter().zip(inputs).map(element).product()
        };
        indices(&over(&summed)).into_iter().map(product).sum()
    })
}

#[test]
fn sums_of_products() {
    /// Equation of the node, the same with letters only, and shapes.
    type Case = (&'static str, &'static str, &'static [&'static [usize]]);
    let cases: [Case; 16] = [
        ("ij->ji", "ij->ji", &[&[2, 3]]),
        ("ij->", "ij->", &[&[2, 3]]),
        ("ba", "ba->ab", &[&[2, 3]]),
        ("...i->...", "abi->ab", &[&[2, 3, 4]]),
        ("ij,jk", "ij,jk->ik", &[&[2, 3], &[3, 4]]),
        ("i,i->", "i,i->", &[&[5], &[5]]),
        ("i,j->ij", "i,j->ij", &[&[2], &[3]]),
        ("i, i -> i", "i,i->i", &[&[4], &[4]]),
        ("bij,bjk->bik", "bij,bjk->bik", &[&[2, 3, 4], &[2, 4, 5]]),
        ("bhid,bhjd->bhij", "bhid,bhjd->bhij", &[&[2, 3, 4, 5], &[2, 3, 6, 5]]),
        ("bij,bkj->kbi", "bij,bkj->kbi", &[&[2, 3, 4], &[2, 5, 4]]),
        ("...ij,...jk->...ik", "abij,abjk->abik", &[&[2, 3, 4, 5], &[1, 3, 5, 2]]),
        ("...ij,jk->...ik", "aij,jk->aik", &[&[2, 3, 4], &[4, 5]]),
        ("nctw,cvw->ntv", "nctw,cvw->ntv", &[&[2, 3, 4, 2], &[3, 5, 2]]),
        ("ijk,il->jl", "ijk,il->jl", &[&[3, 2, 4], &[3, 5]]),
        ("ab,bc,cd->ad", "ab,bc,cd->ad", &[&[2, 3], &[3, 4], &[4, 2]]),
    ];

    for (equation, letters, shapes) in cases {
        let inputs: Vec<Tensor> = shapes.iter().map(|shape| numbers(&mut rng(7), shape)).collect();
        let found = model(equation, shapes).run(&inputs).remove(0);
        assert_near(&found, &by_loops(letters, &inputs), equation);
    }
}

#[test]
fn equations_that_are_refused() {
    let reason = |equation: &str, shapes: &[&[usize]]| {
        let error = model(equation, shapes).import().unwrap_err().to_string();
        error.trim_start_matches("node 'einsum' (Einsum): ").to_string()
    };
    let attribute = "attribute 'equation': ";
    assert_eq!(reason("ii->i", &[&[2, 2]]), format!("{attribute}diagonals and repeated ellipses are not supported"));
    assert_eq!(reason("ij,jk", &[&[2, 2]]), format!("{attribute}names axes of 2 inputs, not 1"));
    assert_eq!(reason("ij->i", &[&[2]]), format!("{attribute}names other axes than those of shape [2]"));
    assert_eq!(
        reason("i.j->i", &[&[2, 2]]),
        format!("{attribute}contains another character than letters, `...` and `->`")
    );
    assert_eq!(reason("ij->ik", &[&[2, 2]]), "no input has the axis k of the output");
    assert_eq!(reason("ij,jk->ik", &[&[2, 3], &[2, 3]]), "axis j has 3 and 2 elements");
}
