//! Blocks with two sides: each runs until it must wait for the other.

use super::grid::Block;
use super::{Compiler, Fault, InterpError, Step};
use crate::program::{Node, Side, Signal};

/// A step that all threads of a side take, or a signal, with the values of the loops around.
type Action<'s> = (Vec<(usize, i64)>, &'s Step);

/// How far the sides are, in groups of copies.
#[derive(Default)]
struct Progress {
    begun: usize,
    awaited: usize,
    released: usize,
}

impl Compiler<'_> {
    /// The two sides of a block.
    pub(super) fn sides(&mut self, [producer, consumers]: [&[Node]; 2]) -> Result<Step, InterpError> {
        if !self.in_grid || self.guards > 0 || self.side.is_some() {
            return Err(self.malformed("sides of what is no block".into()));
        }
        self.side = Some(Side::Producer);
        let producer = self.nodes(producer)?;
        self.side = Some(Side::Consumers);
        let consumers = self.nodes(consumers)?;
        self.side = None;
        Ok(Step::Sides { producer, consumers })
    }
}

impl Block<'_> {
    /// The producer goes on whenever it can.
    pub(super) fn run_sides(&mut self, producer: &[Step], consumers: &[Step]) -> Result<(), Fault> {
        let [producer, consumers] = [producer, consumers].map(|steps| {
            let mut actions = Vec::new();
            self.flatten(steps, &[], &mut actions);
            actions
        });
        let (mut produced, mut consumed) = (0, 0);
        let mut progress = Progress::default();
        while produced < producer.len() || consumed < consumers.len() {
            if let Some(action) = producer.get(produced)
                && self.act(action, &mut progress)?
            {
                produced += 1;
            } else if let Some(action) = consumers.get(consumed)
                && self.act(action, &mut progress)?
            {
                consumed += 1;
            } else {
                return Err(Fault::Stuck);
            }
        }
        Ok(())
    }

    /// Does what is next on a side; false if it must wait.
    fn act(&mut self, (values, step): &Action, progress: &mut Progress) -> Result<bool, Fault> {
        self.bind(values);
        match step {
            Step::Signal(Signal::AwaitReleased { but }) => {
                if progress.released + but < progress.begun {
                    return Ok(false);
                }
            }
            Step::Signal(Signal::AwaitFilled) => {
                if progress.awaited >= progress.begun {
                    return Ok(false);
                }
                self.for_each_thread(|machine| machine.await_oldest())?;
                progress.awaited += 1;
            }
            Step::Signal(Signal::Release { but }) => {
                progress.released = progress.released.max(progress.awaited.saturating_sub(*but));
            }
            Step::CopyGroup { .. } => {
                self.each_thread(step)?;
                progress.begun += 1;
            }
            step => return self.each_thread(step).map(|()| true),
        }
        // What the sides do to shared memory is told apart by what is undefined meanwhile.
        self.end_phase();
        Ok(true)
    }

    /// The steps one after the other, with loops around signals and copies run and digits around them known.
    fn flatten<'s>(&mut self, steps: &'s [Step], values: &[(usize, i64)], actions: &mut Vec<Action<'s>>) {
        for step in steps {
            match step {
                Step::Loop { var, extent, body } if body.iter().any(has_signals) => {
                    for value in 0..*extent {
                        self.flatten(body, &[values, &[(*var, value)]].concat(), actions);
                    }
                }
                Step::Unflatten { value, digits, body } if body.iter().any(has_signals) => {
                    self.bind(values);
                    if self.machine.bind(value, digits) {
                        let digits: Vec<_> = digits.iter().map(|&(var, _)| (var, self.machine.vars[var])).collect();
                        self.flatten(body, &[values, &digits].concat(), actions);
                    }
                }
                step => actions.push((values.to_vec(), step)),
            }
        }
    }
}

fn has_signals(step: &Step) -> bool {
    match step {
        Step::Signal(_) | Step::CopyGroup { .. } => true,
        Step::Loop { body, .. } | Step::Unflatten { body, .. } => body.iter().any(has_signals),
        _ => false,
    }
}

/// True for signals and groups of copies, and what they are in.
pub(super) fn is_of_side(node: &Node) -> bool {
    matches!(node, Node::Signal(_) | Node::CopyGroup { .. }) || node.body().iter().any(is_of_side)
}
