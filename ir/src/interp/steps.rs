//! The nodes of a stage as steps whose accesses are proven to be in bounds.

use super::InterpError;
use crate::affine::{Affine, VarId};
use crate::program::{
    Access, BufferId, Expr, InBounds, Loop, LoopKind, Mbarrier, Node, Program, Role, Scope, Stage, Store, StoreMode,
    WarpRole,
};

/// A node whose accesses are proven to be in bounds and are flat.
pub(super) enum Step {
    Loop { var: usize, extent: i64, body: Vec<Step> },
    Alloc { buffer: usize, body: Vec<Step> },
    Store { dst: Flat, mode: StoreMode, value: Value },
    Barrier,
    Guard { when: Vec<InBounds>, body: Vec<Step> },
    Unflatten { value: Affine, digits: Vec<(usize, i64)>, body: Vec<Step> },
    CopyGroup { body: Vec<Step> },
    AwaitCopies { but: usize },
    Specialised { producer: Vec<Step>, consumers: Vec<Step> },
    Mbarrier(Mbarrier),
    Nothing,
}

pub(super) enum Value {
    Const(f32),
    Load(Flat),
    Add(Box<Value>, Box<Value>),
    Mul(Box<Value>, Box<Value>),
    Max(Box<Value>, Box<Value>),
    Guarded(Vec<InBounds>, Box<Value>),
}

/// An element of a buffer by its row-major offset.
pub(super) struct Flat {
    pub(super) buffer: usize,
    pub(super) offset: Affine,
    /// Dimensions whose index stays in bounds only by conditions around it: position, index, extent.
    pub(super) guarded: Vec<(usize, Affine, usize)>,
}

/// Turns the nodes of a stage into steps.
pub(super) struct Compiler<'a> {
    pub(super) program: &'a Program,
    pub(super) stage: &'a Stage,
    /// Extent of every variable whose loop is open.
    pub(super) extents: Vec<Option<usize>>,
    /// Allocations that are open.
    pub(super) open: Vec<BufferId>,
    /// By buffer: whether the stage stores to it.
    pub(super) written: Vec<bool>,
    /// Conditions and digits that are open, by which an index may be kept in bounds.
    pub(super) guards: usize,
    /// True within the loops of a grid, where GPU nodes have their meaning.
    pub(super) in_grid: bool,
    /// Whose part is open.
    pub(super) role: Option<WarpRole>,
}

impl Compiler<'_> {
    pub(super) fn malformed(&self, reason: String) -> InterpError {
        InterpError::Malformed { stage: self.stage.name.clone(), reason }
    }

    pub(super) fn nodes(&mut self, nodes: &[Node]) -> Result<Vec<Step>, InterpError> {
        if let Some(roles) = WarpRole::both(nodes) {
            return self.roles(roles).map(|step| vec![step]);
        }
        nodes.iter().map(|node| self.node(node)).collect()
    }

    pub(super) fn node(&mut self, node: &Node) -> Result<Step, InterpError> {
        match node {
            Node::Loop(l) => self.repeat(l),
            Node::Alloc { .. } if self.role.is_some() => {
                Err(self.malformed("an allocation for warps of one role".into()))
            }
            Node::Alloc { buffer, body } => {
                let index = self.buffer(*buffer)?;
                self.open.push(*buffer);
                let body = self.nodes(body);
                self.open.pop();
                Ok(Step::Alloc { buffer: index, body: body? })
            }
            Node::Store(store) => self.store(store),
            Node::Barrier
            | Node::Guard { .. }
            | Node::Unflatten { .. }
            | Node::CopyGroup { .. }
            | Node::AwaitCopies { .. }
            | Node::Call { .. }
            | Node::Specialised { .. }
            | Node::Mbarrier(_) => self.gpu_node(node),
            Node::Prefetch { access, .. } => self.access(access).map(|_| Step::Nothing),
        }
    }

    fn repeat(&mut self, l: &Loop) -> Result<Step, InterpError> {
        let var = l.var.0 as usize;
        match self.extents.get(var) {
            None => return Err(self.malformed(format!("loop variable {var} has no name"))),
            Some(Some(_)) => {
                return Err(self.malformed(format!("two nested loops over variable {var}")));
            }
            Some(None) if l.extent == 0 => {
                return Err(self.malformed(format!("no iteration of variable {var}")));
            }
            Some(None) => {}
        }
        if matches!(l.kind, LoopKind::Block | LoopKind::Thread) {
            return Err(self.malformed(format!("variable {var} makes blocks or threads within a nest")));
        }
        self.extents[var] = Some(l.extent);
        let body = self.nodes(&l.body);
        self.extents[var] = None;
        Ok(Step::Loop { var, extent: l.extent as i64, body: body? })
    }

    fn store(&mut self, store: &Store) -> Result<Step, InterpError> {
        let dst = self.access(&store.dst)?;
        let target = &self.program.buffers[dst.buffer];
        if matches!(target.role, Role::Operand(_)) {
            let (stage, buffer) = (self.stage.name.clone(), target.name.clone());
            return Err(InterpError::ReadOnly { stage, buffer });
        }
        self.written[dst.buffer] = true;
        Ok(Step::Store { dst, mode: store.mode, value: self.value(&store.value)? })
    }

    pub(super) fn value(&mut self, expr: &Expr) -> Result<Value, InterpError> {
        let mut boxed = |expr: &Expr| self.value(expr).map(Box::new);
        Ok(match expr {
            Expr::Guarded { when, value } => self.guarded_value(when, value)?,
            Expr::Const(value) => Value::Const(*value),
            Expr::Load(access) => Value::Load(self.access(access)?),
            Expr::Add(of) => Value::Add(boxed(&of[0])?, boxed(&of[1])?),
            Expr::Mul(of) => Value::Mul(boxed(&of[0])?, boxed(&of[1])?),
            Expr::Max(of) => Value::Max(boxed(&of[0])?, boxed(&of[1])?),
        })
    }

    pub(super) fn buffer(&self, id: BufferId) -> Result<usize, InterpError> {
        let index = id.0 as usize;
        if index < self.program.buffers.len() {
            Ok(index)
        } else {
            Err(self.malformed(format!("there is no buffer {index}")))
        }
    }

    /// Checks every dimension over the whole run of the open loops, then adds up the strides.
    pub(super) fn access(&self, access: &Access) -> Result<Flat, InterpError> {
        let index = self.buffer(access.buffer)?;
        let buffer = &self.program.buffers[index];
        let (stage, name) = (self.stage.name.clone(), buffer.name.clone());
        if buffer.scope != Scope::Global && !self.open.contains(&access.buffer) {
            return Err(InterpError::OutOfScope { stage, buffer: name });
        }
        if access.index.len() != buffer.shape.len() {
            let (found, wanted) = (access.index.len(), buffer.shape.len());
            return Err(self.malformed(format!("{found} indices for the {wanted} dimensions of {name}")));
        }
        let (mut offset, mut guarded) = (Affine::default(), Vec::new());
        let dims = access.index.iter().zip(&buffer.shape).zip(buffer.strides());
        for (dim, ((affine, &extent), stride)) in dims.enumerate() {
            let closed = |&&(var, _): &&(VarId, i64)| self.extent(var).is_none();
            if let Some((var, _)) = affine.terms.iter().find(closed) {
                return Err(self.malformed(format!("variable {} is used outside its loop", var.0)));
            }
            let (low, high) = affine.range(|var| self.extent(var).unwrap_or(1));
            if low < 0 || high >= extent as i64 {
                if self.guards > 0 {
                    guarded.push((dim, affine.clone(), extent));
                    offset = offset + affine.clone() * stride as i64;
                    continue;
                }
                let index = if low < 0 { low } else { high };
                return Err(InterpError::OutOfBounds { stage, buffer: name, dim, index, extent });
            }
            offset = offset + affine.clone() * stride as i64;
        }
        Ok(Flat { buffer: index, offset, guarded })
    }

    pub(super) fn extent(&self, var: VarId) -> Option<usize> {
        self.extents.get(var.0 as usize).copied().flatten()
    }
}
