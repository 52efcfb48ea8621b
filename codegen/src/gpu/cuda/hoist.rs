//! Parts of asynchronous copies that are the same in all iterations of a loop, computed before it.
//!
//! The address and the conditions of a copy have terms that change from iteration to iteration,
//! such as the position in a convolution's kernel, and others, such as the pixel, that need
//! divisions. Outcomes of conditions on a few values are bits of a word:
//!
//! ```text
//! serial q { unflatten (kh, kw) in 3x3 = q { copy group { unrolled i { unflatten (y, x) = 32*i + t {
//!   shared[..] = if y + kh - 1 in 0..H and x + kw - 1 in 0..W then input[y + kh - 1, x + kw - 1] } } } } }
//!   →  for i { y = ..;  x = ..;  from[i] = input + W*y + x - W - 1
//!              outside[i] = bits kh where y + kh - 1 is not in 0..H, and 3 + kw where x + kw - 1 is not in 0..W }
//!      for q { kh = ..;  kw = ..
//!        for i { copy_async(shared + .., from[i] + W*kh + kw, is_clear(outside[i], 1 << kh | 8 << kw)) } }
//! ```

use super::Cuda;
use crate::flat_offset;
use crate::gpu::element;
use crate::gpu::writer::GpuWriter;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::instruction::MMA;
use autotune_ir::program::{Access, InBounds, Loop, LoopKind, Node, Scope, Store};

/// Maximum number of copies by one statement whose addresses are kept in registers.
const MAX_COPIES: usize = 16;
/// Maximum number of values of a variable for which outcomes of a condition are kept.
const MAX_VALUES: usize = 8;

/// Copy whose address is computed before a loop.
pub(super) struct HoistedCopy {
    /// The statement, by its address.
    pub(super) store: *const Store,
    /// Addresses of destination and source, as expressions in the loop.
    pub(super) to: String,
    pub(super) from: String,
    /// Condition under which it is read.
    pub(super) there: String,
}

/// Asynchronous copy in a loop, and the nodes around it from its group on, outermost first.
struct CopyPath<'n> {
    nodes: Vec<&'n Node>,
    store: &'n Store,
}

/// Walk over the body of a loop.
#[derive(Default)]
struct LoopWalk<'n> {
    /// Variables that depend on the iteration, and all others that are bound outside of groups of
    /// copies.
    varying: Vec<VarId>,
    /// Variables of loops among them.
    loops: Vec<VarId>,
    /// Variables that differ between the copies of one statement.
    numbered: Vec<VarId>,
    /// Extents of all variables that are bound in the loop.
    extents: Vec<(VarId, usize)>,
    found: Vec<CopyPath<'n>>,
    /// Nests of matrix products.
    products: Vec<&'n [Node]>,
}

impl<'n> LoopWalk<'n> {
    fn of(l: &'n Loop) -> Self {
        let mut walk =
            Self { varying: vec![l.var], loops: vec![l.var], extents: vec![(l.var, l.extent)], ..Self::default() };
        walk.nodes(&l.body, None);
        walk
    }

    /// Visits nodes; `path` has the nodes around them in a group of copies.
    fn nodes(&mut self, nodes: &'n [Node], path: Option<&[&'n Node]>) {
        for node in nodes {
            match node {
                Node::Store(store) => {
                    self.found.extend(path.map(|path| CopyPath { nodes: path.to_vec(), store }));
                }
                Node::Loop(l) => {
                    self.extents.push((l.var, l.extent));
                    if path.is_some() {
                        self.numbered.push(l.var);
                    } else {
                        self.varying.push(l.var);
                        self.loops.push(l.var);
                    }
                }
                Node::Unflatten { value, digits, .. } => {
                    self.extents.extend(digits.iter().map(|digit| (digit.var, digit.extent)));
                    let vars = digits.iter().map(|digit| digit.var);
                    // Before the loop, only digits within a group are computed.
                    if path.is_none() || depends(value, &self.varying) {
                        self.varying.extend(vars);
                    } else if depends(value, &self.numbered) {
                        self.numbered.extend(vars);
                    }
                }
                // An instruction has a printer of its own.
                Node::Call { instruction, body } => {
                    self.products.extend((**instruction == MMA).then_some(&body[..]));
                    continue;
                }
                _ => {}
            }

            let inside = path.map(|path| [path, &[node]].concat());
            match node {
                Node::CopyGroup { body } => self.nodes(body, Some(&[])),
                node => self.nodes(node.body(), inside.as_deref()),
            }
        }
    }
}

fn depends(value: &Affine, vars: &[VarId]) -> bool {
    value.terms.iter().any(|(var, _)| vars.contains(var))
}

/// Splits a value into its terms without some variables, with the constant, and the other terms.
pub(super) fn split(value: &Affine, vars: &[VarId]) -> [Affine; 2] {
    let (with, without) = value.terms.iter().copied().partition(|(var, _)| vars.contains(var));
    [Affine { constant: value.constant, terms: without }, Affine { constant: 0, terms: with }]
}

impl<'n> CopyPath<'n> {
    fn loops(&self, kind: LoopKind) -> impl Iterator<Item = &'n Loop> {
        let of_kind = move |node: &&'n Node| match node {
            Node::Loop(l) if l.kind == kind => Some(l),
            _ => None,
        };
        self.nodes.iter().filter_map(of_kind)
    }

    /// Returns the number of copies that the statement makes; `None` if not all are unrolled.
    fn count(&self) -> Option<usize> {
        let is_serial = |node: &&'n Node| matches!(node, Node::Loop(l) if l.kind == LoopKind::Serial);
        let count = self.loops(LoopKind::Unrolled).map(|l| l.extent).product();
        (!self.nodes.iter().any(is_serial)).then_some(count)
    }

    /// Returns the number of one of these copies, in terms of the unrolled loops.
    fn number(&self) -> Affine {
        let loops = self.loops(LoopKind::Unrolled);
        loops.fold(Affine::default(), |number, l| number * l.extent as i64 + Affine::var(l.var))
    }
}

/// Address of a copy: a variable, the statement that sets it before the loop, and the address in
/// the present iteration.
struct HoistedAddress {
    declaration: String,
    start: String,
    present: String,
}

/// Conditions of a copy, by what is known of them before the loop.
#[derive(Default)]
struct HoistedConditions<'n> {
    /// Conditions that are the same in all iterations.
    fixed: Vec<InBounds>,
    /// Conditions on a variable of few values, with the bit of the first value.
    by_value: Vec<(InBounds, VarId, usize)>,
    others: Vec<&'n InBounds>,
}

impl GpuWriter<'_, Cuda> {
    /// Writes a loop, after what its asynchronous copies have in common in all iterations.
    pub(super) fn copying(&mut self, l: &Loop) {
        // The outermost loop around groups of copies has computed everything for inner ones.
        let walk = LoopWalk::of(l);
        if walk.found.is_empty() || !self.dialect.varying.is_empty() || self.dialect.in_group {
            return self.looped(l);
        }
        walk.extents.iter().for_each(|&(var, extent)| self.bind(var, extent));
        let hoisted = walk.found.iter().filter_map(|path| self.hoisted_copy(&walk, path)).collect();

        (self.dialect.hoisted, self.dialect.varying) = (hoisted, walk.varying);
        for body in walk.products {
            let operands = self.hoisted_operands(body);
            self.dialect.operands.extend(operands);
        }
        self.looped(l);
        (self.dialect.hoisted, self.dialect.varying, self.dialect.operands) = Default::default();
    }

    fn hoisted_copy(&mut self, walk: &LoopWalk, path: &CopyPath) -> Option<HoistedCopy> {
        path.count().filter(|count| *count <= MAX_COPIES)?;
        let lanes = path.loops(LoopKind::Vectorized).next();
        self.vector = lanes.map(|l| self.at_once(l, 0));
        // Several vectors would have several addresses.
        let is_one = lanes.is_none_or(|l| self.vector.is_some_and(|vector| vector.lanes == l.extent));
        let copy = self.async_copy(path.store).filter(|_| is_one);
        let hoisted = copy.map(|(_, from, when)| self.hoisted(walk, path, from, when));
        self.vector = None;
        hoisted
    }

    /// Writes the addresses and the outcomes of conditions of a copy.
    fn hoisted(&mut self, walk: &LoopWalk, path: &CopyPath, from: &Access, when: &[InBounds]) -> HoistedCopy {
        let conditions = self.hoisted_conditions(walk, when);
        let has_bits = !conditions.fixed.is_empty() || !conditions.by_value.is_empty();
        let from = self.hoisted_address(walk, path, from, "from");
        let to = self.hoisted_address(walk, path, &path.store.dst, "to");
        let place = self.affine(&path.number(), 0);
        let outside = self.new_name("outside");

        self.lines([&from.declaration, &to.declaration]);
        if has_bits {
            self.line(&format!("unsigned {outside}[{}];", path.count().unwrap_or(1)));
        }
        self.along(walk, &path.nodes, &mut |writer| {
            writer.lines([&from.start, &to.start]);
            if has_bits {
                writer.outcomes(&format!("{outside}[{place}]"), &conditions);
            }
        });

        let inside = has_bits.then(|| format!("is_clear({outside}[{place}], {})", self.present_bits(&conditions)));
        let others = conditions.others.iter().filter_map(|other| self.conditions(std::slice::from_ref(other), 0));
        let there: Vec<String> = inside.into_iter().chain(others).collect();
        let there = if there.is_empty() { "true".into() } else { there.join(" && ") };
        HoistedCopy { store: path.store, to: to.present, from: from.present, there }
    }

    /// Returns the statements and the expression of one address. It is an array, unless the copies
    /// of the statement are at constant distances in shared memory.
    fn hoisted_address(&mut self, walk: &LoopWalk, path: &CopyPath, access: &Access, word: &str) -> HoistedAddress {
        let name = self.new_name(word);
        let [own, varying] = split(&self.at_lane(&flat_offset(self.program, access), 0), &walk.varying);
        let loops: Vec<VarId> = path.loops(LoopKind::Unrolled).map(|l| l.var).collect();
        let [fixed, distance] = split(&own, &loops);
        let by_loops = varying.terms.iter().all(|(var, _)| walk.loops.contains(var));
        let [varying, distance, whole, at_zero] = [&varying, &distance, &own, &fixed].map(|part| self.affine(part, 0));

        let buffer = self.program.buffer(access.buffer);
        let (base, element) = (&buffer.name, element::type_of(buffer.dtype));
        let array = format!("{name}[{}]", path.count().unwrap_or(1));
        let one = format!("{name}[{}]", self.affine(&path.number(), 0));
        match buffer.scope {
            Scope::Global => HoistedAddress {
                declaration: format!("const {element} *{array};"),
                start: format!("{one} = kept({base} + {whole});"),
                // Compilers advance addresses by themselves if they change by a constant.
                present: if by_loops { format!("{one} + {varying}") } else { format!("ahead({one}, {varying})") },
            },
            _ if depends(&fixed, &walk.numbered) => HoistedAddress {
                declaration: format!("{element} *{array};"),
                start: format!("{one} = {base} + {whole};"),
                present: format!("{one} + {varying}"),
            },
            _ => HoistedAddress {
                declaration: format!("{element} *{name};"),
                start: format!("{name} = {base} + {at_zero};"),
                present: format!("{name} + {varying} + {distance}"),
            },
        }
    }

    /// Returns the bits of the present values of variables.
    fn present_bits(&self, conditions: &HoistedConditions) -> String {
        let bit = |first: &usize, var: VarId| format!("{}u << {}", 1u32 << first, self.affine(&Affine::var(var), 0));
        let mut bits: Vec<String> = conditions.by_value.iter().map(|(_, var, first)| bit(first, *var)).collect();
        bits.dedup();
        if bits.is_empty() { "1u".into() } else { bits.join(" | ") }
    }

    /// Divides conditions by what is known of them before a loop; those that always hold are left
    /// out.
    fn hoisted_conditions<'n>(&self, walk: &LoopWalk, when: &'n [InBounds]) -> HoistedConditions<'n> {
        let mut conditions = HoistedConditions::default();
        let (mut fields, mut used): (Vec<(VarId, usize)>, usize) = (Vec::new(), 0);
        for condition in when.iter().filter(|condition| self.conditions(std::slice::from_ref(condition), 0).is_some()) {
            let index = self.at_lane(&condition.index, 0);
            let [_, varying] = split(&index, &walk.varying);
            let own = InBounds { index, extent: condition.extent };
            let few = match varying.terms[..] {
                [] => {
                    conditions.fixed.push(own);
                    continue;
                }
                [(var, _)] => Some((var, self.extent(var))).filter(|&(_, values)| values <= MAX_VALUES),
                _ => None,
            };

            let known = few.and_then(|(var, _)| fields.iter().find(|field| field.0 == var).copied());
            let field = known.or_else(|| {
                let (var, values) = few.filter(|(_, values)| used + values <= u32::BITS as usize)?;
                fields.push((var, used));
                used += values;
                fields.last().copied()
            });
            match field {
                Some((var, first)) => conditions.by_value.push((own, var, first)),
                None => conditions.others.push(condition),
            }
        }
        conditions
    }

    /// Writes the bits of the values for which conditions do not hold.
    fn outcomes(&mut self, word: &str, conditions: &HoistedConditions) {
        self.line(&format!("{word} = 0;"));
        for condition in &conditions.fixed {
            let holds = self.conditions(std::slice::from_ref(condition), 0);
            self.lines(holds.map(|holds| format!("if (!({holds})) {word} = ~0u;")));
        }
        for (InBounds { index, extent }, var, first) in &conditions.by_value {
            for value in 0..self.extent(*var) {
                let index = index.substitute(*var, &Affine::constant(value as i64));
                let holds = self.conditions(&[InBounds { index, extent: *extent }], 0);
                let bit = 1u32 << (first + value);
                self.lines(holds.map(|holds| format!("if (!({holds})) {word} |= {bit}u;")));
            }
        }
    }

    /// Writes the nodes of a path that do not depend on the iteration, around `leaf`.
    fn along(&mut self, walk: &LoopWalk, nodes: &[&Node], leaf: &mut dyn FnMut(&mut Self)) {
        let Some((node, rest)) = nodes.split_first() else { return leaf(self) };
        match node {
            Node::Loop(l) if l.kind == LoopKind::Unrolled => {
                self.line("#pragma unroll");
                self.scope(&self.loop_head(l), |writer| writer.along(walk, rest, leaf));
            }
            Node::Unflatten { value, digits, .. } if !depends(value, &walk.varying) => {
                self.with_digits(value, digits, |writer| writer.along(walk, rest, leaf));
            }
            _ => self.along(walk, rest, leaf),
        }
    }
}
