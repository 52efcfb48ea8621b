//! Warp specialisation: producer and consumers each run until they must wait for the other.

use super::grid::Block;
use super::{Compiler, Fault, InterpError, Step};
use crate::program::{Mbarrier, Node, WarpRole};

/// A step that all threads of a role take, or an mbarrier operation, with the values of the loops around.
type Action<'s> = (Vec<(usize, i64)>, &'s Step);

/// How far producer and consumers are, in groups of copies.
#[derive(Default)]
struct Progress {
    begun: usize,
    awaited: usize,
    released: usize,
}

impl Compiler<'_> {
    /// The warps of a block, specialised.
    pub(super) fn roles(&mut self, [producer, consumers]: [&[Node]; 2]) -> Result<Step, InterpError> {
        if !self.in_grid || self.guards > 0 || self.role.is_some() {
            return Err(self.malformed("specialised warps of what is no block".into()));
        }
        self.role = Some(WarpRole::Producer);
        let producer = self.nodes(producer)?;
        self.role = Some(WarpRole::Consumers);
        let consumers = self.nodes(consumers)?;
        self.role = None;
        Ok(Step::Specialised { producer, consumers })
    }
}

impl Block<'_> {
    /// The producer goes on whenever it can.
    pub(super) fn run_roles(&mut self, producer: &[Step], consumers: &[Step]) -> Result<(), Fault> {
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

    /// Does what is next for a role; false if it must wait.
    fn act(&mut self, (values, step): &Action, progress: &mut Progress) -> Result<bool, Fault> {
        self.bind(values);
        match step {
            Step::Mbarrier(Mbarrier::WaitEmpty { but }) => {
                if progress.released + but < progress.begun {
                    return Ok(false);
                }
            }
            Step::Mbarrier(Mbarrier::WaitFull) => {
                if progress.awaited >= progress.begun {
                    return Ok(false);
                }
                self.for_each_thread(|machine| machine.await_oldest())?;
                progress.awaited += 1;
            }
            Step::Mbarrier(Mbarrier::ArriveEmpty { but }) => {
                progress.released = progress.released.max(progress.awaited.saturating_sub(*but));
            }
            Step::CopyGroup { .. } => {
                self.each_thread(step)?;
                progress.begun += 1;
            }
            step => return self.each_thread(step).map(|()| true),
        }
        // What the roles do to shared memory is told apart by what is undefined meanwhile.
        self.end_phase();
        Ok(true)
    }

    /// The steps one after the other, with loops around mbarriers and copies run and digits around them known.
    fn flatten<'s>(&mut self, steps: &'s [Step], values: &[(usize, i64)], actions: &mut Vec<Action<'s>>) {
        for step in steps {
            match step {
                Step::Loop { var, extent, body } if body.iter().any(has_mbarriers) => {
                    for value in 0..*extent {
                        self.flatten(body, &[values, &[(*var, value)]].concat(), actions);
                    }
                }
                Step::Unflatten { value, digits, body } if body.iter().any(has_mbarriers) => {
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

fn has_mbarriers(step: &Step) -> bool {
    match step {
        Step::Mbarrier(_) | Step::CopyGroup { .. } => true,
        Step::Loop { body, .. } | Step::Unflatten { body, .. } => body.iter().any(has_mbarriers),
        _ => false,
    }
}

/// True for mbarrier operations and groups of copies, and what they are in.
pub(super) fn is_of_role(node: &Node) -> bool {
    matches!(node, Node::Mbarrier(_) | Node::CopyGroup { .. }) || node.body().iter().any(is_of_role)
}
