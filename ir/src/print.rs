//! Text form of loop nests.
//!
//! One line per buffer, loop or store; the first line names the workload:
//!
//! ```text
//! buffer weight_packed: packed global [4, 64, 16]
//! stage pack_weight (ahead of time)
//!   parallel oo in 0..4
//!     serial k in 0..64
//!       vectorized ol in 0..16
//!         weight_packed[oo, k, ol] = weight[k, 16*oo + ol]
//! ```

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::Arc;

use crate::affine::Affine;
use crate::program::{
    Access, BinaryOp, Buffer, BufferId, Expr, InBounds, Layout, Mbarrier, Node, Program, Stage, StoreMode, When,
    preorder,
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
    /// Returns the stages that run ahead of time as text, and the buffers that they use. Stages
    /// with the same text produce the same results from the same constants. Variables are printed
    /// by number, since two may have the same name.
    pub fn packing(&self) -> (String, Vec<BufferId>) {
        let ahead: Vec<&Stage> = self.stages.iter().filter(|stage| stage.when == When::AheadOfTime).collect();
        if ahead.is_empty() {
            return (String::new(), Vec::new());
        }
        let mut used = BTreeSet::new();
        for node in ahead.iter().flat_map(|stage| preorder(&stage.body)) {
            match node {
                Node::Store(store) => {
                    used.insert(store.dst.buffer);
                    store.value.for_each_load(&mut |from| used.extend([from.buffer]));
                }
                Node::Alloc { buffer, .. } => used.extend([*buffer]),
                _ => {}
            }
        }

        let mut text = String::new();
        for &id in &used {
            let Buffer { name, shape, layout, dtype, .. } = self.buffer(id);
            text += &format!("{name}: {dtype:?} {shape:?} {layout:?}\n");
        }
        let vars = (0..self.vars.len()).map(|var| format!("v{var}").into()).collect();
        let (axes, buffers, stages) = (self.axes.clone(), self.buffers.clone(), Vec::new());
        let (spec, algorithm) = (Arc::clone(&self.spec), Arc::clone(&self.algorithm));
        let numbered = Self { spec, algorithm, axes, vars, buffers, stages, cold: self.cold };
        for stage in ahead {
            text += "stage\n";
            // Writing to a string does not fail.
            let _ = numbered.write_nodes(&mut text, &stage.body, 0);
        }
        (text, used.into_iter().collect())
    }

    fn write_buffer(&self, f: &mut fmt::Formatter<'_>, buffer: &Buffer) -> fmt::Result {
        let operand = self.spec.find(buffer.role).filter(|tensor| tensor.is_given());
        let role = operand.map_or_else(|| buffer.role.to_string(), |tensor| tensor.name.to_string());
        write!(f, "buffer {}: {role} {} {:?}", buffer.name, word(buffer.scope), buffer.shape)?;
        if let Layout::ChannelBlocked(block) = buffer.layout {
            write!(f, " c-blocked {block}")?;
        }
        writeln!(f, "{}", if buffer.streamed { " streamed" } else { "" })
    }

    fn write_nodes(&self, f: &mut dyn Write, nodes: &[Node], depth: usize) -> fmt::Result {
        for node in nodes {
            writeln!(f, "{:1$}{2}", "", 2 * depth, self.line(node))?;
            self.write_nodes(f, node.body(), depth + 1)?;
        }
        Ok(())
    }

    /// Returns one node as text, without its body.
    fn line(&self, node: &Node) -> String {
        match node {
            Node::Loop(l) => format!("{} {} in 0..{}", word(l.kind), self.affine(&Affine::var(l.var)), l.extent),
            Node::Alloc { buffer, .. } => format!("alloc {}", self.buffer_name(*buffer)),

            Node::Barrier => "barrier".into(),
            Node::CopyGroup { .. } => "copy group".into(),
            Node::AwaitCopies { pending } => format!("await copies but of {pending} groups"),
            Node::Call { instruction, .. } => format!("call {}", instruction.name),
            Node::Specialised { role, .. } => word(role),
            Node::Mbarrier(Mbarrier::WaitFull) => "wait full".into(),
            Node::Mbarrier(Mbarrier::ArriveEmpty { pending }) => format!("arrive empty but {pending} groups"),
            Node::Mbarrier(Mbarrier::WaitEmpty { pending }) => format!("wait empty but {pending} groups"),

            Node::Guard { when, .. } => format!("if {}", self.conditions(when)),
            Node::Unflatten { value, digits, .. } => {
                let names: Vec<String> = digits.iter().map(|d| self.affine(&Affine::var(d.var))).collect();
                let extents: Vec<String> = digits.iter().map(|d| d.extent.to_string()).collect();
                format!("unflatten ({}) in {} = {}", names.join(", "), extents.join("x"), self.affine(value))
            }

            Node::Store(store) => {
                let sign = match store.mode {
                    StoreMode::Assign => "=",
                    StoreMode::Accumulate => "+=",
                };
                format!("{} {sign} {}", self.access(&store.dst), self.expr(&store.value))
            }
            Node::Prefetch { access, ahead, level } => {
                format!("prefetch {} + {ahead} to {level:?}", self.access(access))
            }
        }
    }

    /// Returns the name of a buffer; `?` if the id is invalid.
    fn buffer_name(&self, id: BufferId) -> &str {
        self.buffers.get(id.0 as usize).map_or("?", |b| &b.name)
    }

    /// Formats an affine index with the program's variable names.
    pub fn affine(&self, affine: &Affine) -> String {
        let name = |var: crate::VarId| self.vars.get(var.0 as usize).map_or("?", |name| name).to_string();
        affine.display(name).to_string()
    }

    fn conditions(&self, when: &[InBounds]) -> String {
        let words: Vec<String> = when.iter().map(|c| format!("{} in 0..{}", self.affine(&c.index), c.extent)).collect();
        words.join(" and ")
    }

    fn access(&self, access: &Access) -> String {
        let index: Vec<String> = access.index.iter().map(|a| self.affine(a)).collect();
        format!("{}[{}]", self.buffer_name(access.buffer), index.join(", "))
    }

    fn expr(&self, expr: &Expr) -> String {
        let factor = |factor: &Expr| match factor {
            Expr::Binary(BinaryOp::Add | BinaryOp::Sub, _) => format!("({})", self.expr(factor)),
            factor => self.expr(factor),
        };

        match expr {
            Expr::Const(value) => format!("{value:?}"),
            Expr::Load(access) => self.access(access),
            Expr::Gather(gather) => {
                let mut index: Vec<String> = gather.access.index.iter().map(|a| self.affine(a)).collect();
                for (&dim, at) in gather.dims.iter().zip(&gather.at) {
                    if let Some(index) = index.get_mut(dim) {
                        *index = format!("at {}", self.expr(at));
                    }
                }
                format!("{}[{}]", self.buffer_name(gather.access.buffer), index.join(", "))
            }
            Expr::Unary(op, of) => format!("{}({})", op.word(), self.expr(of)),
            Expr::Binary(BinaryOp::Add, of) => format!("{} + {}", self.expr(&of[0]), self.expr(&of[1])),
            Expr::Binary(BinaryOp::Sub, of) => format!("{} - {}", self.expr(&of[0]), factor(&of[1])),
            Expr::Binary(BinaryOp::Mul, of) => format!("{} * {}", factor(&of[0]), factor(&of[1])),
            Expr::Binary(op, of) => format!("{}({}, {})", op.word(), self.expr(&of[0]), self.expr(&of[1])),
            Expr::Select(compare, of) => {
                let [a, b, then, otherwise] = of.each_ref().map(|of| self.expr(of));
                format!("(if {a} {} {b} then {then} else {otherwise})", compare.sign())
            }
            Expr::Guarded { when, value } => format!("(if {} then {} else 0)", self.conditions(when), self.expr(value)),
        }
    }
}

/// Returns the name of a variant in lower case.
fn word(variant: impl fmt::Debug) -> String {
    format!("{variant:?}").to_lowercase()
}
