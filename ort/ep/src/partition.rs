//! Groups of supported nodes that may become one node.
//!
//! No path from a node of a group to another may lead through a node outside. Nodes have a *level*:
//! the largest number of changes from an unsupported node to a supported one on a path to the node.
//! A path that leaves a level does not come back to it, so supported nodes of one level may be one
//! group.

/// Operators that only describe or move elements. Alone they are not worth a group.
const CHEAP: [&str; 16] = [
    "Cast",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Range",
    "Reshape",
    "Shape",
    "Size",
    "Slice",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
];

/// Returns the groups of supported nodes, in topological order. `producers` has the nodes whose
/// results each node uses; nodes are in topological order.
pub(crate) fn groups(producers: &[Vec<usize>], is_supported: &[bool]) -> Vec<Vec<usize>> {
    let mut levels = vec![0; producers.len()];
    for node in 0..producers.len() {
        let level = |&producer: &usize| {
            let is_change = is_supported[node] && !is_supported[producer];
            levels[producer] + usize::from(is_change)
        };
        levels[node] = producers[node].iter().map(level).max().unwrap_or(0);
    }

    let most = levels.iter().max().map_or(0, |most| most + 1);
    let mut groups = vec![Vec::new(); most];
    for node in (0..producers.len()).filter(|&node| is_supported[node]) {
        groups[levels[node]].push(node);
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// True if a group has an operator that computes.
pub(crate) fn is_worthwhile<'a>(operators: impl IntoIterator<Item = &'a str>) -> bool {
    operators.into_iter().any(|operator| !CHEAP.contains(&operator))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_node_in_the_middle_separates_groups() {
        // 0 > 1 > 2 > 3, and 0 > 3.
        let producers = [vec![], vec![0], vec![1], vec![2, 0]];
        assert_eq!(groups(&producers, &[true; 4]), [[0, 1, 2, 3]]);
        assert_eq!(groups(&producers, &[true, false, true, true]), [vec![0], vec![2, 3]]);
        assert_eq!(groups(&producers, &[false; 4]), [[0; 0]; 0]);
    }

    #[test]
    fn groups_that_only_move_elements_are_not_worthwhile() {
        assert!(is_worthwhile(["Reshape", "MatMul"]) && !is_worthwhile(["Reshape", "Cast"]));
    }

    /// True if a path leads from a node of the group to another through a node outside.
    fn leaves_and_returns(producers: &[Vec<usize>], group: &[usize]) -> bool {
        let mut is_after = vec![false; producers.len()];
        for node in 0..producers.len() {
            let is_inside = group.contains(&node);
            if is_inside && producers[node].iter().any(|&producer| is_after[producer]) {
                return true;
            }
            let follows = |&producer: &usize| group.contains(&producer) || is_after[producer];
            is_after[node] = !is_inside && producers[node].iter().any(follows);
        }
        false
    }

    fn graph() -> impl Strategy<Value = (Vec<Vec<usize>>, Vec<bool>)> {
        (1..24usize).prop_flat_map(|count| {
            let producers: Vec<_> =
                (0..count).map(|node| prop::collection::vec(0..node.max(1), 0..=node.min(3))).collect();
            (producers, prop::collection::vec(any::<bool>(), count))
        })
    }

    proptest! {
        #[test]
        fn groups_have_every_supported_node_once_and_may_be_fused((producers, is_supported) in graph()) {
            let groups = groups(&producers, &is_supported);
            let mut all: Vec<usize> = groups.iter().flatten().copied().collect();
            all.sort_unstable();
            let supported: Vec<usize> = (0..producers.len()).filter(|&node| is_supported[node]).collect();
            prop_assert_eq!(all, supported);
            for group in &groups {
                prop_assert!(!leaves_and_returns(&producers, group), "{:?}", group);
            }
        }
    }
}
