//! Execution of warp specialisation: producer and consumers each run until they must wait for the
//! other.

use super::machine::Interpreter;
use crate::problem::Problem;
use crate::program::{Mbarrier, Node, WarpRole, preorder};

/// Next node of all threads of a role, with the values of the variables around it.
type Action<'p> = (Vec<Option<i64>>, &'p Node);

/// Number of copy groups that were begun, awaited and released so far.
#[derive(Default)]
struct CopyProgress {
    begun: usize,
    awaited: usize,
    released: usize,
}

impl<'p> Interpreter<'p> {
    /// Executes both roles; the producer runs whenever it can.
    pub(super) fn roles(&mut self, [producer, consumers]: [&'p [Node]; 2]) -> Result<(), Problem> {
        // Each role may execute only its own operations.
        let is_foreign = |role: WarpRole, node: &Node| match node {
            Node::Mbarrier(mbarrier) => mbarrier.role() != role,
            Node::CopyGroup { .. } => role != WarpRole::Producer,
            Node::AwaitCopies { .. } => true,
            _ => false,
        };
        let foreign = |role, nodes| preorder(nodes).any(|node| is_foreign(role, node));
        if foreign(WarpRole::Producer, producer) || foreign(WarpRole::Consumers, consumers) {
            return Problem::nesting("the warps of this role cannot execute this operation");
        }

        let (mut produce, mut consume) = (Vec::new(), Vec::new());
        self.flatten(producer, &mut produce)?;
        self.flatten(consumers, &mut consume)?;

        let (mut produce, mut consume) = (produce.iter().peekable(), consume.iter().peekable());
        // Actions set all variables, so the current values are restored at the end.
        let around = self.vars.clone();
        let mut progress = CopyProgress::default();
        while produce.peek().is_some() || consume.peek().is_some() {
            let mut goes_on = false;
            // The producer is tried first.
            for role in [&mut produce, &mut consume] {
                if !goes_on
                    && let Some(action) = role.peek()
                    && self.act(action, &mut progress)?
                {
                    goes_on = true;
                    role.next();
                }
            }
            if !goes_on {
                return Problem::nesting("producer and consumers wait for each other");
            }
        }
        self.vars = around;
        Ok(())
    }

    /// Executes the next node of a role; returns false if it must wait.
    fn act(&mut self, (vars, node): &Action<'p>, progress: &mut CopyProgress) -> Result<bool, Problem> {
        self.vars.clone_from(vars);
        match node {
            Node::Mbarrier(Mbarrier::WaitEmpty { pending }) => {
                if progress.released + pending < progress.begun {
                    return Ok(false);
                }
            }

            Node::Mbarrier(Mbarrier::WaitFull) => {
                if progress.awaited >= progress.begun {
                    return Ok(false);
                }
                self.each_thread(&mut |machine| {
                    // A full mbarrier signals the oldest pending group only.
                    let others = machine.copies[machine.thread].len().saturating_sub(1);
                    machine.await_copies(others)
                })?;
                progress.awaited += 1;
            }

            Node::Mbarrier(Mbarrier::ArriveEmpty { pending }) => {
                progress.released = progress.released.max(progress.awaited.saturating_sub(*pending));
            }
            Node::CopyGroup { .. } => {
                self.each_thread(&mut |machine| machine.node(node))?;
                progress.begun += 1;
            }
            node => return self.each_thread(&mut |machine| machine.node(node)).map(|()| true),
        }
        // Data races between the roles are found by elements being undefined while they are copied,
        // so each step may end the phase.
        self.end_phase();
        Ok(true)
    }

    /// Flattens nodes to a sequence of actions. Loops around mbarriers and copies are unrolled, and
    /// digits around them are bound.
    fn flatten(&mut self, nodes: &'p [Node], actions: &mut Vec<Action<'p>>) -> Result<(), Problem> {
        let meets =
            |node: &Node| preorder(node.body()).any(|node| matches!(node, Node::Mbarrier(_) | Node::CopyGroup { .. }));
        nodes.iter().try_for_each(|node| match node {
            Node::Loop(l) if meets(node) => self.looped(l, &mut |machine| machine.flatten(&l.body, actions)),
            Node::Unflatten { value, digits, body } if meets(node) => {
                self.unflatten(value, digits, &mut |machine| machine.flatten(body, actions))
            }
            node => {
                actions.push((self.vars.clone(), node));
                Ok(())
            }
        })
    }
}
