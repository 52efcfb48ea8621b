//! The loop nest as text.
//!
//! One line a buffer, loop or store; `-> workload` says what is computed:
//!
//! ```text
//! buffer weight_packed: packed global [4, 64, 16]
//! stage pack_weight (ahead of time)
//!   parallel oo in 0..4
//!     serial k in 0..64
//!       vectorized ol in 0..16
//!         weight_packed[oo, k, ol] = weight[k, 16*oo + ol]
//! ```

use std::fmt;

use crate::affine::Affine;
use crate::program::{
    Access, Buffer, Expr, InBounds, Layout, LoopKind, Mbarrier, Node, Program, Scope, StoreMode, WarpRole, When,
};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "workload {}", self.spec.name)?;
        f.write_str("axes")?;
        for axis in &self.axes {
            let word = if axis.reduce { " reduce" } else { "" };
            write!(f, "{word} {}={}", axis.name, axis.extent)?;
        }
        writeln!(f)?;
        for buffer in &self.buffers {
            self.write_buffer(f, buffer)?;
        }
        for stage in &self.stages {
            let when = match stage.when {
                When::AheadOfTime => "ahead of time",
                When::EveryRun => "every run",
            };
            writeln!(f, "stage {} ({when})", stage.name)?;
            self.write_nodes(f, &stage.body, 1)?;
        }
        Ok(())
    }
}

impl Program {
    fn write_buffer(&self, f: &mut fmt::Formatter<'_>, buffer: &Buffer) -> fmt::Result {
        let operand = self.spec.find(buffer.role).filter(|tensor| tensor.is_given());
        let role = operand.map_or_else(|| buffer.role.to_string(), |tensor| tensor.name.to_string());
        let scope = match buffer.scope {
            Scope::Global => "global",
            Scope::Shared => "shared",
            Scope::Local => "local",
            Scope::Register => "register",
        };
        write!(f, "buffer {}: {role} {scope} {:?}", buffer.name, buffer.shape)?;
        match buffer.layout {
            Layout::Plain => writeln!(f),
            Layout::ChannelBlocked(block) => writeln!(f, " c-blocked {block}"),
        }
    }

    /// Name of a buffer, also where the id is wrong.
    fn buffer_name(&self, access: &Access) -> &str {
        self.buffers.get(access.buffer.0 as usize).map_or("?", |b| &b.name)
    }

    fn write_nodes(&self, f: &mut fmt::Formatter<'_>, nodes: &[Node], depth: usize) -> fmt::Result {
        for node in nodes {
            write!(f, "{:1$}", "", 2 * depth)?;
            match node {
                Node::Loop(l) => {
                    let kind = match l.kind {
                        LoopKind::Serial => "serial",
                        LoopKind::Parallel => "parallel",
                        LoopKind::Unrolled => "unrolled",
                        LoopKind::Vectorized => "vectorized",
                        LoopKind::Block => "block",
                        LoopKind::Thread => "thread",
                    };
                    writeln!(f, "{kind} {} in 0..{}", self.affine(&Affine::var(l.var)), l.extent)?;
                    self.write_nodes(f, &l.body, depth + 1)?;
                }
                Node::Alloc { buffer, body } => {
                    let access = Access { buffer: *buffer, index: Vec::new() };
                    writeln!(f, "alloc {}", self.buffer_name(&access))?;
                    self.write_nodes(f, body, depth + 1)?;
                }
                Node::Barrier => writeln!(f, "barrier")?,
                Node::CopyGroup { body } => {
                    writeln!(f, "copy group")?;
                    self.write_nodes(f, body, depth + 1)?;
                }
                Node::AwaitCopies { but } => writeln!(f, "await copies but of {but} groups")?,
                Node::Call { instruction, body } => {
                    writeln!(f, "call {}", instruction.name)?;
                    self.write_nodes(f, body, depth + 1)?;
                }
                Node::Specialised { role, body } => {
                    let word = match role {
                        WarpRole::Producer => "producer",
                        WarpRole::Consumers => "consumers",
                    };
                    writeln!(f, "{word}")?;
                    self.write_nodes(f, body, depth + 1)?;
                }
                Node::Mbarrier(Mbarrier::WaitFull) => writeln!(f, "wait full")?,
                Node::Mbarrier(Mbarrier::ArriveEmpty { but }) => writeln!(f, "arrive empty but {but} groups")?,
                Node::Mbarrier(Mbarrier::WaitEmpty { but }) => writeln!(f, "wait empty but {but} groups")?,
                Node::Guard { when, body } => {
                    writeln!(f, "if {}", self.conditions(when))?;
                    self.write_nodes(f, body, depth + 1)?;
                }
                Node::Unflatten { value, digits, body } => {
                    let names: Vec<String> = digits.iter().map(|d| self.affine(&Affine::var(d.var))).collect();
                    let extents: Vec<String> = digits.iter().map(|d| d.extent.to_string()).collect();
                    let (names, extents) = (names.join(", "), extents.join("x"));
                    writeln!(f, "unflatten ({names}) in {extents} = {}", self.affine(value))?;
                    self.write_nodes(f, body, depth + 1)?;
                }
                Node::Store(store) => {
                    self.write_access(f, &store.dst)?;
                    f.write_str(match store.mode {
                        StoreMode::Assign => " = ",
                        StoreMode::Accumulate => " += ",
                    })?;
                    self.write_expr(f, &store.value, false)?;
                    writeln!(f)?;
                }
                Node::Prefetch { access, ahead } => {
                    f.write_str("prefetch ")?;
                    self.write_access(f, access)?;
                    writeln!(f, " + {ahead}")?;
                }
            }
        }
        Ok(())
    }

    /// An affine index with the program's names of the variables.
    pub fn affine(&self, affine: &Affine) -> String {
        let name = |var: crate::VarId| self.vars.get(var.0 as usize).map_or("?", |name| name).to_string();
        affine.display(name).to_string()
    }

    fn conditions(&self, when: &[InBounds]) -> String {
        let words: Vec<String> = when.iter().map(|c| format!("{} in 0..{}", self.affine(&c.index), c.extent)).collect();
        words.join(" and ")
    }

    fn write_access(&self, f: &mut fmt::Formatter<'_>, access: &Access) -> fmt::Result {
        let index: Vec<String> = access.index.iter().map(|a| self.affine(a)).collect();
        write!(f, "{}[{}]", self.buffer_name(access), index.join(", "))
    }

    /// `factor`: the expression is a factor of a product, so that a sum needs parentheses.
    fn write_expr(&self, f: &mut fmt::Formatter<'_>, expr: &Expr, factor: bool) -> fmt::Result {
        match expr {
            Expr::Const(value) => write!(f, "{value:?}"),
            Expr::Load(access) => self.write_access(f, access),
            Expr::Add(of) => {
                f.write_str(if factor { "(" } else { "" })?;
                self.write_expr(f, &of[0], false)?;
                f.write_str(" + ")?;
                self.write_expr(f, &of[1], false)?;
                f.write_str(if factor { ")" } else { "" })
            }
            Expr::Mul(of) => {
                self.write_expr(f, &of[0], true)?;
                f.write_str(" * ")?;
                self.write_expr(f, &of[1], true)
            }
            Expr::Max(of) => {
                f.write_str("max(")?;
                self.write_expr(f, &of[0], false)?;
                f.write_str(", ")?;
                self.write_expr(f, &of[1], false)?;
                f.write_str(")")
            }
            Expr::Guarded { when, value } => {
                write!(f, "(if {} then ", self.conditions(when))?;
                self.write_expr(f, value, false)?;
                f.write_str(" else 0)")
            }
        }
    }
}
