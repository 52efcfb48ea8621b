//! Printer of the parts that all dialects share: parameters, buffers, block and thread numbers,
//! loops, accesses and values.

use std::collections::HashMap;
use std::fmt::Write;

use super::dialect::Dialect;
use super::element;
use super::used::Used;
use crate::{flat_offset, formula};
use autotune_ir::DType;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::launch::{Launch, shared_offsets};
use autotune_ir::program::{
    Access, Buffer, BufferId, Digit, Expr, GatherAccess, GpuGrid, InBounds, Loop, LoopKind, Node, Program, Scope,
    Stage, Store, StoreMode,
};
use autotune_ir::vector::Vector;

/// Writer of one kernel.
pub(super) struct GpuWriter<'a, D> {
    pub(super) program: &'a Program,
    pub(super) dialect: D,
    text: String,
    pub(super) depth: usize,
    /// Extents of all loops and digits so far, also of those already closed.
    extents: HashMap<VarId, usize>,
    /// Lanes of the vectorised loop that are being written.
    pub(super) vector: Option<Vector>,
    next_name: usize,
}

impl<'a, D: Dialect> GpuWriter<'a, D> {
    /// Returns the source of a stage's kernel.
    pub(super) fn kernel(program: &'a Program, stage: &Stage, symbol: &str, grid: &GpuGrid, launch: Launch) -> String {
        let dialect = D::new(program, stage, grid, launch);
        let (text, extents) = (String::new(), HashMap::new());
        let mut writer = Self { program, dialect, text, depth: 1, extents, vector: None, next_name: 0 };
        writer.write_signature(stage, symbol, grid, launch);
        writer.memory(grid);
        let same_for_warp = writer.dialect.warp_uniform("thread");
        let digits = |loops: &[&Loop]| loops.iter().map(|l| (l.var, l.extent)).collect::<Vec<_>>();
        writer.digits("block", D::BLOCK_NUMBER, &digits(&grid.blocks), None);
        writer.digits("thread", D::THREAD_NUMBER, &digits(&grid.threads), same_for_warp);

        writer.nodes(grid.body);
        writer.text.push_str("}\n");
        writer.text
    }

    pub(super) fn line(&mut self, text: &str) {
        for _ in 0..self.depth {
            self.text.push_str("  ");
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    pub(super) fn lines<T: AsRef<str>>(&mut self, lines: impl IntoIterator<Item = T>) {
        lines.into_iter().for_each(|line| self.line(line.as_ref()));
    }

    /// Writes an `#error`: the dialect has no code for a node.
    pub(super) fn unsupported(&mut self, what: &str) {
        self.line(&format!("#error \"{what}\""));
    }

    fn write_signature(&mut self, stage: &Stage, symbol: &str, grid: &GpuGrid, launch: Launch) {
        // Buffers that are only read become pointers to constants, which compilers can optimise
        // better.
        let stored = Used::of(grid.body).stored;
        let global = self.program.buffers.iter().enumerate().filter(|(_, b)| b.scope == Scope::Global);
        let parameter = |(i, b): (usize, &Buffer)| {
            let id = BufferId(i as u32);
            D::parameter(self.program.dtype(id), &b.name, stored.contains(&id))
        };
        let parameters: Vec<String> = global.map(parameter).chain(self.dialect.extra_parameters()).collect();
        let signature = self.dialect.signature(symbol, &parameters.join(", "), launch.threads);

        let _ = writeln!(self.text, "// stage {}: {} blocks of {} threads", stage.name, launch.blocks, launch.threads);
        let _ = writeln!(self.text, "{signature}");
    }

    /// Declares shared buffers and the thread's private buffers.
    fn memory(&mut self, grid: &GpuGrid) {
        let shared = shared_offsets(self.program, grid.body);
        if !shared.is_empty() {
            self.lines(self.dialect.shared_memory());
        }
        let mut start = 0;
        for (id, end) in shared {
            let buffer = &self.program.buffers[id];
            let dtype = self.program.dtype(BufferId(id as u32));
            self.line(&D::shared_buffer(dtype, &buffer.name, start, buffer.len()));
            start = end;
        }
        self.lines(self.dialect.begin(start));

        let allocated = Used::of(grid.body).allocated;
        let program = self.program;
        for (i, buffer) in program.buffers.iter().enumerate() {
            let private = match buffer.scope {
                Scope::Register | Scope::Local => Some(buffer.len()),
                // Each lane has its own part.
                _ => buffer.lane_dims().map(|(len, _)| len),
            };
            if let Some(len) = private.filter(|_| allocated.contains(&BufferId(i as u32))) {
                // Compilers keep these arrays in registers, because unrolling makes all indices
                // constant.
                self.line(&format!("float {}[{len}];", buffer.name));
            }
        }
    }

    /// Writes a number and its digits, the most significant first.
    ///
    /// `same_for_warp` is written once the two least significant digits are removed, because only
    /// the digits above them are the same for all lanes of a warp.
    fn digits(&mut self, name: &str, number: &str, digits: &[(VarId, usize)], same_for_warp: Option<String>) {
        self.line(&format!("int {name} = {number};"));
        for (i, &(var, extent)) in digits.iter().enumerate().rev() {
            self.extents.insert(var, extent);
            let var = self.name(var);
            if i == 0 {
                self.line(&format!("const int {var} = {name};"));
            } else {
                self.line(&format!("const int {var} = {name} % {extent}; {name} /= {extent};"));
            }
            if i + 2 == digits.len() {
                self.lines(&same_for_warp);
            }
        }
    }

    fn name(&self, var: VarId) -> String {
        let name = self.program.vars.get(var.0 as usize).map_or("v", |name| name);
        format!("{}_{}", name.replace(|c: char| !c.is_ascii_alphanumeric(), "_"), var.0)
    }

    /// Registers the extent of a variable.
    pub(super) fn bind(&mut self, var: VarId, extent: usize) {
        self.extents.insert(var, extent);
    }

    pub(super) fn extent(&self, var: VarId) -> usize {
        self.extents.get(&var).copied().unwrap_or(1)
    }

    /// Returns the affine expression with the vectorised variable at lane `lane`.
    pub(super) fn at_lane(&self, affine: &Affine, lane: usize) -> Affine {
        match self.vector {
            Some(v) => affine.substitute(v.var, &Affine::constant((v.start + lane) as i64)),
            None => affine.clone(),
        }
    }

    pub(super) fn affine(&self, affine: &Affine, lane: usize) -> String {
        self.at_lane(affine, lane).display(|v| self.name(v)).to_string()
    }

    pub(super) fn nodes(&mut self, nodes: &[Node]) {
        nodes.iter().for_each(|node| D::node(self, node));
    }

    pub(super) fn block(&mut self, head: &str, body: &[Node]) {
        self.scope(head, |writer| writer.nodes(body));
    }

    pub(super) fn scope(&mut self, head: &str, body: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        self.depth += 1;
        body(self);
        self.depth -= 1;
        self.line("}");
    }

    /// Writes a node as all dialects do; asynchronous copies become plain stores.
    pub(super) fn common(&mut self, node: &Node) {
        match node {
            Node::Loop(l) => self.looped(l),
            Node::Alloc { body, .. } | Node::CopyGroup { body } => self.nodes(body),
            Node::Barrier => self.line(D::BARRIER),
            // Plain stores need not be awaited, and prefetches are only hints.
            Node::AwaitCopies { .. } | Node::Prefetch { .. } => {}
            Node::Guard { when, body } => match self.conditions(when, 0) {
                Some(text) => self.block(&format!("if ({text})"), body),
                None => self.nodes(body),
            },
            Node::Unflatten { value, digits, body } => self.unflatten(value, digits, body),
            Node::Store(store) => self.store(store),
            Node::Call { instruction, body } => match D::INSTRUCTIONS.iter().find(|p| p.instruction == *instruction) {
                Some(printer) => (printer.print)(self, body),
                None => self.unsupported(&format!("instruction not supported by this API: {}", instruction.name)),
            },
            Node::Specialised { .. } | Node::Mbarrier(_) => {
                self.unsupported("warp specialisation is not supported by this API")
            }
        }
    }

    /// Writes the digits of a number, and a guard if some numbers are out of range:
    ///
    /// ```text
    /// unflatten (x, y) in 8x64 = 256*i + t { A }
    ///   →  { int e = t;  const int y = e % 64; e /= 64;  const int x = 4*i + e;  if (x < 8) { A } }
    /// ```
    fn unflatten(&mut self, value: &Affine, digits: &[Digit], body: &[Node]) {
        self.with_digits(value, digits, |writer| {
            // The number may exceed the product of the extents, e.g. in the last round of a copy by
            // all threads. Only the most significant digit is then out of range.
            let count: usize = digits.iter().map(|d| d.extent).product();
            let (_, most) = value.range(|v| writer.extent(v));
            match digits.first() {
                Some(first) if most >= count as i64 => {
                    writer.block(&format!("if ({} < {})", writer.name(first.var), first.extent), body);
                }
                _ => writer.nodes(body),
            }
        });
    }

    /// Writes the digits of a number, and `body` in their scope. Terms that are multiples of a
    /// digit's extent go to the next digits without a division.
    pub(super) fn with_digits(&mut self, value: &Affine, digits: &[Digit], body: impl FnOnce(&mut Self)) {
        self.line("{");
        self.depth += 1;
        let whole = self.new_name("e");
        let mut left = value.clone();
        for (i, digit) in digits.iter().enumerate().rev() {
            self.extents.insert(digit.var, digit.extent);
            let is_first = i + 1 == digits.len();
            let (next, part) = if i == 0 { (Affine::default(), left) } else { self.divided(left, digit.extent) };
            left = next;

            let (name, part) = (self.name(digit.var), self.affine(&part, 0));
            match (is_first, part.as_str()) {
                (true, _) => self.line(&format!("int {whole} = {part};")),
                (false, "0") => {}
                (false, _) => self.line(&format!("{whole} += {part};")),
            }
            match i {
                0 => self.line(&format!("const int {name} = {whole};")),
                _ => self.line(&format!("const int {name} = {whole} % {0}; {whole} /= {0};", digit.extent)),
            }
        }
        body(self);
        self.depth -= 1;
        self.line("}");
    }

    /// Splits a number into `n * quotient + rest`, where the rest has the terms that are no
    /// multiples of `n`. It is not negative, so that it alone decides the remainder.
    fn divided(&self, number: Affine, n: usize) -> (Affine, Affine) {
        let n = n as i64;
        let (multiples, terms) = number.terms.iter().copied().partition(|term| term.1 % n == 0);
        let rest = Affine { constant: number.constant.rem_euclid(n), terms };
        let quotient = Affine { constant: number.constant.div_euclid(n), terms: multiples };
        if rest.range(|var| self.extent(var)).0 < 0 {
            return (Affine::default(), number);
        }
        let terms = quotient.terms.iter().map(|&(var, c)| (var, c / n)).collect();
        (Affine { constant: quotient.constant, terms }, rest)
    }

    pub(super) fn new_name(&mut self, word: &str) -> String {
        self.next_name += 1;
        format!("{word}{}", self.next_name - 1)
    }

    pub(super) fn looped(&mut self, l: &Loop) {
        self.extents.insert(l.var, l.extent);
        if l.kind == LoopKind::Vectorized && self.at_once(l, 0).lanes > 1 {
            let mut start = 0;
            while start < l.extent {
                let vector = self.at_once(l, start);
                self.vector = Some(vector);
                self.nodes(&l.body);
                start += vector.lanes;
            }
            self.vector = None;
            return;
        }
        if matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized) {
            self.line("#pragma unroll");
        } else {
            // Otherwise compilers unroll further, which costs registers.
            self.line("#pragma unroll 1");
        }
        self.block(&self.loop_head(l), &l.body);
    }

    pub(super) fn loop_head(&self, l: &Loop) -> String {
        let name = self.name(l.var);
        format!("for (int {name} = 0; {name} < {}; ++{name})", l.extent)
    }

    /// Returns the lanes from `start` on that are written together: the widest vector that some
    /// access can move at once and for which every condition is uniform.
    pub(super) fn at_once(&self, l: &Loop, start: usize) -> Vector {
        let used = Used::of(&l.body);
        Vector::widest(l.var, start, l.extent, |vector| {
            used.accesses.iter().any(|access| self.is_contiguous(access, vector))
                && used.conditions.iter().all(|condition| vector.is_uniform(condition, |var| self.extent(var)))
        })
    }

    /// True if one memory access covers all lanes.
    pub(super) fn is_contiguous(&self, access: &Access, vector: Vector) -> bool {
        self.lanes_at_once(access, vector) == vector.lanes
    }

    /// Returns the number of lanes that one memory access covers.
    fn lanes_at_once(&self, access: &Access, vector: Vector) -> usize {
        let buffer = self.program.buffer(access.buffer);
        if !matches!(buffer.scope, Scope::Global | Scope::Shared) {
            return 1;
        }
        vector.lanes_at_once(&flat_offset(self.program, access), buffer.dtype.bytes(), |var| self.extent(var))
    }

    /// Returns the number of lanes that one memory access covers, of those being written.
    fn width(&self, access: &Access) -> usize {
        self.vector.map_or(1, |vector| self.lanes_at_once(access, vector))
    }

    /// Returns the conditions in C without those that always hold; `None` if none is left.
    pub(super) fn conditions(&self, when: &[InBounds], lane: usize) -> Option<String> {
        let texts: Vec<String> = when.iter().filter_map(|c| self.condition(c, lane)).collect();
        (!texts.is_empty()).then(|| texts.join(" && "))
    }

    fn condition(&self, condition: &InBounds, lane: usize) -> Option<String> {
        let index = self.at_lane(&condition.index, lane);
        let (low, high) = index.range(|v| self.extent(v));
        let (text, extent) = (self.affine(&index, 0), condition.extent);
        match (low < 0, high >= extent as i64) {
            (false, false) => None,
            (false, true) => Some(format!("{text} < {extent}")),
            // One unsigned comparison checks both bounds: a negative index becomes a large number.
            (true, _) => Some(format!("(unsigned)({text}) < {extent}u")),
        }
    }

    fn store(&mut self, store: &Store) {
        let lanes = self.vector.map_or(1, |v| v.lanes);
        let values = self.expr(&store.value, lanes);
        let accumulate = store.mode == StoreMode::Accumulate;
        let dtype = self.dtype(&store.dst);
        let width = self.width(&store.dst);
        if width > 1 && !accumulate {
            for (part, values) in values.chunks(width).enumerate() {
                let pointer = self.vector_pointer(&store.dst, (part * width, width), true);
                self.line(&format!("{pointer} = {};", D::vector(dtype, values)));
            }
            return;
        }
        for (lane, value) in values.iter().enumerate() {
            let element = self.element(&store.dst, lane);
            let value = match accumulate {
                true => format!("{} + {value}", element::widened(dtype, &element)),
                false => value.clone(),
            };
            self.line(&format!("{element} = {};", element::narrowed(dtype, &value)));
        }
    }

    /// Returns the type of the elements that an access reads or writes; registers hold f32 only.
    pub(super) fn dtype(&self, access: &Access) -> DType {
        match self.program.buffer(access.buffer).scope {
            Scope::Global | Scope::Shared => self.program.dtype(access.buffer),
            Scope::Local | Scope::Register | Scope::Warp => DType::F32,
        }
    }

    fn element(&self, access: &Access, lane: usize) -> String {
        let buffer = self.program.buffer(access.buffer);
        let offset = match (buffer.lane_dims(), &access.index[..]) {
            (Some((_, [_, tiles, halves, run])), [_, i, j, h, _, _, c]) => {
                let tile = i.clone() * tiles as i64 + j;
                (tile * halves as i64 + h) * run as i64 + c
            }
            _ => flat_offset(self.program, access),
        };
        format!("{}[{}]", buffer.name, self.affine(&offset, lane))
    }

    /// Returns the address of a lane's element.
    pub(super) fn address(&self, access: &Access, lane: usize) -> String {
        let offset = self.affine(&flat_offset(self.program, access), lane);
        format!("{} + {offset}", self.program.buffer(access.buffer).name)
    }

    /// Returns `width` elements, from lane `lane` on, as one vector in memory.
    fn vector_pointer(&self, access: &Access, (lane, width): (usize, usize), stored: bool) -> String {
        let scope = self.program.buffer(access.buffer).scope;
        let vector = D::vector_pointer(self.dtype(access), width, scope, stored);
        format!("*({vector})({})", self.address(access, lane))
    }

    /// Returns the value of an expression in each lane.
    fn expr(&mut self, expr: &Expr, lanes: usize) -> Vec<String> {
        match expr {
            Expr::Const(value) if value.is_infinite() => {
                let sign = if *value < 0.0 { "-" } else { "" };
                vec![format!("({sign}{})", D::INFINITY); lanes]
            }
            Expr::Const(value) => vec![format!("{value:?}f"); lanes],

            Expr::Load(access) => self.load(access, lanes, None),
            Expr::Gather(gather) => self.gather(gather, lanes),
            Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..) => {
                let operands: Vec<Vec<String>> = expr.operands().iter().map(|of| self.expr(of, lanes)).collect();
                let of_lane = |lane: usize| operands.iter().map(|of| of[lane].clone()).collect::<Vec<_>>();
                let function = D::function_of(expr);
                let applied = |of: Vec<String>| match function {
                    Some(function) => format!("{function}({})", of.join(", ")),
                    None => formula::applied(expr, &of, 1).unwrap_or_default(),
                };
                (0..lanes).map(|lane| applied(of_lane(lane))).collect()
            }
            Expr::Guarded { when, value } => {
                // A vector load under a uniform guard stays a vector load, with one condition for
                // all lanes.
                if let (Expr::Load(access), Some(when)) = (&**value, self.conditions(when, 0))
                    && self.width(access) > 1
                {
                    return self.load(access, lanes, Some(when));
                }
                let values = self.expr(value, lanes);
                let guarded = values.into_iter().enumerate().map(|(lane, value)| match self.conditions(when, lane) {
                    Some(when) => format!("({when} ? {value} : 0.0f)"),
                    None => value,
                });
                guarded.collect()
            }
        }
    }

    /// Returns the gathered element of each lane.
    fn gather(&mut self, GatherAccess { access, dims, at }: &GatherAccess, lanes: usize) -> Vec<String> {
        let buffer = self.program.buffer(access.buffer);
        let (strides, dtype) = (buffer.strides(), self.dtype(access));
        let all: Vec<Vec<String>> = at.iter().map(|of| self.expr(of, lanes)).collect();
        let element = |lane: usize| {
            let offset = self.affine(&flat_offset(self.program, access), lane);
            let terms = all.iter().zip(dims);
            let term = |(of, &dim): (&Vec<String>, &usize)| {
                format!(" + {} * gathered({}, {})", strides[dim], of[lane], buffer.shape[dim])
            };
            element::widened(dtype, &format!("{}[{offset}{}]", buffer.name, terms.map(term).collect::<String>()))
        };
        (0..lanes).map(element).collect()
    }

    /// Returns the element of each lane. Contiguous elements are loaded as vectors into variables.
    fn load(&mut self, access: &Access, lanes: usize, when: Option<String>) -> Vec<String> {
        let (dtype, width) = (self.dtype(access), self.width(access));
        if width == 1 {
            return (0..lanes).map(|lane| element::widened(dtype, &self.element(access, lane))).collect();
        }

        let mut elements = Vec::with_capacity(lanes);
        for first in (0..lanes).step_by(width) {
            let name = self.new_name("x");
            let mut value = self.vector_pointer(access, (first, width), false);
            if let Some(when) = &when {
                value = format!("({when}) ? {value} : {}", D::vector(dtype, &vec!["0.0f".to_string(); width]));
            }
            self.line(&format!("const {} {name} = {value};", element::vector_type(dtype, width)));
            elements.extend((0..width).map(|lane| element::lane(dtype, &name, width, lane)));
        }
        elements
    }
}
