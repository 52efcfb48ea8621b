//! Generates portable C with GNU vector extensions.
//!
//! Every register tile becomes a function whose parameters point at the tile's first elements.
//! Tiles that differ only in position share one function. Inside it, accumulators are local
//! variables of vector type and unrolled loops are written out. A vectorised loop of any extent
//! becomes whole vectors followed by a remainder in decreasing powers of two:
//!
//! ```text
//! unrolled y in 0..2 { vectorized x in 0..24 { acc[y, x] += in[y] * w[x] } }      (8 lanes)
//!   →  vec8 x0 = LD8(p1 + 0), x1 = LD8(p1 + 8), x2 = LD8(p1 + 16);  float x3 = p0[0], x4 = p0[1];
//!      a0 += x3 * x0;  a8 += x3 * x1;  a16 += x3 * x2;  a24 += x4 * x0;  ...
//! ```

use std::collections::HashMap;
use std::fmt::Write;

use crate::formula;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::instruction::Executor;
use autotune_ir::plan::KernelPlan;
use autotune_ir::program::{
    Access, BinaryOp, BufferId, Expr, Loop, LoopKind, Node, Program, Scope, Stage, Store, StoreMode, parallel_prefix,
};
use autotune_ir::target::{CpuTarget, Target};
use autotune_ir::vector::Vector;

mod gather;
mod leaf;
mod narrow;
mod prefetch;
mod prelude;
mod value;
mod writer;

use leaf::{TileInterface, TilePointer};
use value::{CValue, splat, type_name};
use writer::{Accumulator, CGenerator, CWriter, accumulator_name};

/// f32 lanes of a vector if the target is not a CPU.
const DEFAULT_LANES: usize = 4;

/// Generates the C source of the program's kernel.
///
/// It exports one function per stage with the interface of
/// [`autotune_ir::plan::PlanStage::symbol`]. For a program made for a GPU, the source contains
/// `#error` and does not compile.
pub fn generate(program: &Program, target: &Target) -> String {
    let lanes = target.cpu().map_or(DEFAULT_LANES, CpuTarget::lanes);
    let (has_integers, leaves, leaf_names) = (program.has_integers(), String::new(), HashMap::new());
    let mut generator = CGenerator { program, lanes, has_integers, leaves, leaf_names };
    let plan = KernelPlan::of(program);

    let stages: Vec<String> =
        program.stages.iter().zip(&plan.stages).map(|(s, p)| generator.stage(s, &p.symbol)).collect();
    // Definitions come before uses: types, functions, tiles, stages.
    let mut source = prelude::types(generator.lanes);

    if formula::gathers(program) {
        source.push_str(&gather::functions(generator.lanes));
    }
    let (mut functions, conversions) = (formula::used(program), formula::conversions(program));
    if !conversions.is_empty() {
        functions.get_or_insert_default().extend(conversions);
        source.push_str(&narrow::types(program, generator.lanes));
    }
    if let Some(functions) = functions {
        source.push_str(&prelude::formulas(&functions, generator.lanes, generator.has_integers));
    }

    source.push_str(&generator.leaves);
    stages.iter().for_each(|s| source.push_str(s));
    source
}

impl CGenerator<'_> {
    fn stage(&mut self, stage: &Stage, symbol: &str) -> String {
        let mut text = format!("void {symbol}(float *const *buffers, char *local, long begin, long end) {{\n");
        for (i, buffer) in self.program.buffers.iter().enumerate().filter(|(_, buffer)| buffer.scope == Scope::Global) {
            let element = narrow::element_type(buffer);
            let cast = if element == "float" { String::new() } else { format!("({element} *)") };
            let _ = writeln!(text, "  {element} *const b{i} = {cast}buffers[{i}];");
        }
        for (BufferId(i), place) in self.program.local_places(stage) {
            let element = narrow::element_type(self.program.buffer(BufferId(i)));
            let _ = writeln!(text, "  {element} *const b{i} = ({element} *)(local + {});", place.start);
        }

        // Avoids a warning in stages without thread-private memory.
        text.push_str("  (void)local;\n");

        // Tasks are numbered consecutively across the stage's trees. The digits of a tree's task
        // number are its parallel loop variables, the innermost least significant.
        let mut first = 0;
        for node in &stage.body {
            let loops = parallel_prefix(node);
            let count: usize = loops.iter().map(|l| l.extent).product();
            let last = first + count;
            let _ = writeln!(
                text,
                "  for (long t = begin > {first} ? begin : {first}; t < (end < {last} ? end : {last}); ++t) {{"
            );
            let _ = writeln!(text, "    long r = t - {first};");
            for l in loops.iter().rev() {
                let _ = writeln!(text, "    const long v{} = r % {}; r /= {};", l.var.0, l.extent, l.extent);
            }
            let inner = loops.last().map_or(std::slice::from_ref(node), |l| l.body.as_slice());
            let mut writer = CWriter::new(self, None);
            writer.nodes(inner);
            text.push_str(&writer.text);
            text.push_str("  }\n");
            first = last;
        }
        text.push_str("}\n");
        text
    }

    /// Emits the function of a register tile, unless an identical one exists, and returns a call of
    /// it.
    ///
    /// `constants` holds the current values of the enclosing unrolled variables.
    fn leaf_call(&mut self, alloc: &Node, constants: &HashMap<VarId, i64>) -> String {
        let leaf = TileInterface::of(self.program, alloc);
        let element = |pointer: &TilePointer| narrow::element_type(self.program.buffer(pointer.buffer));
        let parameter = |(i, it): (usize, &TilePointer)| format!("{} *restrict p{i}", element(it));
        let parameters: Vec<String> = leaf.pointers.iter().enumerate().map(parameter).collect();
        let argument = |pointer: &TilePointer| {
            // Unrolled variables have no C variable, so their values are substituted.
            let base = constants
                .iter()
                .fold(pointer.base.clone(), |base, (var, value)| base.substitute(*var, &Affine::constant(*value)));
            format!("b{} + {}", pointer.buffer.0, base.display(|v| format!("v{}", v.0)))
        };
        let arguments: Vec<String> = leaf.pointers.iter().map(argument).collect();
        let mut writer = CWriter::new(self, Some(leaf));
        if let Node::Alloc { body, .. } = alloc {
            writer.nodes(body);
        }
        let declare = |&(buffer, flat, lanes): &(usize, i64, usize)| {
            format!("  {} {};\n", type_name(lanes), accumulator_name(buffer, flat))
        };
        let declared: String = writer.accumulators.iter().map(declare).collect();
        let text = format!("({}) {{\n{declared}{}}}\n", parameters.join(", "), writer.text);

        // The text without the name is the key, so that identical functions are emitted once.
        let next = format!("tile{}", self.leaf_names.len());
        let name = self.leaf_names.entry(text).or_insert_with_key(|text| {
            let _ = write!(self.leaves, "LEAF {next}{text}");
            next
        });
        format!("{name}({});", arguments.join(", "))
    }
}

impl CWriter<'_, '_> {
    fn nodes(&mut self, nodes: &[Node]) {
        for node in nodes {
            match node {
                Node::Loop(l) => self.looped(l),
                Node::Store(store) => self.store(store),
                Node::Prefetch { access, ahead, level } => self.prefetch(access, *ahead, *level),
                Node::Alloc { buffer, body } => match self.generator.program.buffer(*buffer).scope {
                    Scope::Register if self.leaf.is_none() => {
                        let call = self.generator.leaf_call(node, &self.constants);
                        self.line(&call);
                    }
                    _ => self.nodes(body),
                },
                // The C compiler chooses its own instructions, so only the nest is written.
                Node::Call { instruction, body } if instruction.executor == Executor::Core => self.nodes(body),
                _ => self.line("#error \"node is supported on GPUs only\""),
            }
        }
    }

    fn looped(&mut self, l: &Loop) {
        match l.kind {
            LoopKind::Serial | LoopKind::Parallel | LoopKind::Block | LoopKind::Thread => {
                let name = self.var_name(l.var);
                self.line(&format!("for (long {name} = 0; {name} < {}; ++{name}) {{", l.extent));
                self.depth += 1;
                // Variables that are declared in the loop's block are out of scope after it.
                self.loaded.push(HashMap::new());
                self.nodes(&l.body);
                self.loaded.pop();
                self.depth -= 1;
                self.line("}");
            }

            LoopKind::Unrolled => {
                for value in 0..l.extent {
                    self.constants.insert(l.var, value as i64);
                    self.nodes(&l.body);
                }
                self.constants.remove(&l.var);
            }

            LoopKind::Vectorized => {
                let mut start = 0;
                while start < l.extent {
                    // The remainder is split into powers of two, since vector types have no other
                    // sizes.
                    let lanes = (1 << (l.extent - start).ilog2()).min(self.generator.lanes);
                    self.vector = Some(Vector { var: l.var, start, lanes });
                    self.constants.insert(l.var, start as i64);
                    self.nodes(&l.body);
                    start += lanes;
                }
                self.vector = None;
                self.constants.remove(&l.var);
            }
        }
    }

    fn store(&mut self, store: &Store) {
        let lanes = self.vector.map_or(1, |v| v.lanes);
        let is_integer = self.generator.program.dtype(store.dst.buffer).is_integer();
        let value = if is_integer { self.stored_integer(store) } else { self.expr(&store.value) };
        let accumulate = store.mode == StoreMode::Accumulate && !is_integer;
        // A register buffer is a set of C variables, not memory, so its stores are assignments.
        if self.generator.program.buffer(store.dst.buffer).scope == Scope::Register {
            let op = if accumulate { "+=" } else { "=" };
            match self.accumulator(&store.dst) {
                Accumulator::Whole(name) => {
                    let value = if accumulate { value.text } else { splat(value, lanes) };
                    self.line(&format!("{name} {op} {value};"));
                }
                Accumulator::Part(elements) => {
                    let (name, value) = (self.name(), splat(value, lanes));
                    self.line(&format!("const {} {name} = {value};", type_name(lanes)));
                    for (i, element) in elements.iter().enumerate() {
                        let lane = if lanes == 1 { String::new() } else { format!("[{i}]") };
                        self.line(&format!("{element} {op} {name}{lane};"));
                    }
                }
            }
            return;
        }

        if narrow::is_narrow(self.generator.program.buffer(store.dst.buffer)) {
            return self.store_narrow(store, value, lanes);
        }

        let (pointer, offset, stride) = self.address(&store.dst);
        let op = if accumulate { "+=" } else { "=" };
        if lanes == 1 {
            self.line(&format!("{pointer}[{offset}] {op} {};", value.text));
        } else if stride == 1 {
            let value = splat(value, lanes);
            let value = if accumulate { format!("LD{lanes}({pointer} + {offset}) + {value}") } else { value };
            self.line(&format!("ST{lanes}({pointer} + {offset}, {value});"));
        // GNU vector extensions have no scatter: the lanes are stored one by one.
        } else {
            let name = self.name();
            let value = splat(value, lanes);
            self.line(&format!("const vec{lanes} {name} = {value};"));
            for i in 0..lanes {
                let at = if stride == 0 { offset.clone() } else { format!("{offset} + {}", i as i64 * stride) };
                self.line(&format!("{pointer}[{at}] {op} {name}[{i}];"));
            }
        }
    }

    fn expr(&mut self, expr: &Expr) -> CValue {
        // C variables hold the bits of integers, so that other operations need a conversion to f32.
        if self.generator.has_integers && self.is_integer(expr) {
            let CValue { text, lanes } = self.integer(expr);
            return CValue { text: format!("of_integer{lanes}({text})"), lanes };
        }
        match expr {
            // C has no literal for infinity.
            Expr::Const(value) if value.is_infinite() => {
                let sign = if *value < 0.0 { "-" } else { "" };
                CValue { text: format!("({sign}__builtin_inff())"), lanes: 1 }
            }
            Expr::Const(value) => CValue { text: format!("{value:?}f"), lanes: 1 },
            Expr::Load(access) => self.load(access),
            Expr::Gather(gather) => self.gather(gather),
            Expr::Binary(BinaryOp::Add, of) => self.binary(of, "+"),
            Expr::Binary(BinaryOp::Mul, of) => self.binary(of, "*"),
            Expr::Guarded { .. } => CValue { text: "for_a_gpu".into(), lanes: 1 },
            Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..) => {
                let values: Vec<CValue> = expr.operands().iter().map(|of| self.expr(of)).collect();
                let lanes = values.iter().map(|value| value.lanes).max().unwrap_or(1);
                let operands: Vec<String> = values.into_iter().map(|value| splat(value, lanes)).collect();
                CValue { text: formula::applied(expr, &operands, lanes).unwrap_or_default(), lanes }
            }
        }
    }

    fn binary(&mut self, [a, b]: &[Expr; 2], op: &str) -> CValue {
        let (a, b) = (self.expr(a), self.expr(b));
        let lanes = a.lanes.max(b.lanes);
        CValue { text: format!("({} {op} {})", a.text, b.text), lanes }
    }

    /// Returns the load of an element, or of one element per lane.
    ///
    /// The result is a named variable if nothing in the register tile can change the element.
    fn load(&mut self, access: &Access) -> CValue {
        let buffer = self.generator.program.buffer(access.buffer);
        let lanes = self.vector.map_or(1, |v| v.lanes);
        if buffer.scope == Scope::Register {
            let text = match self.accumulator(access) {
                Accumulator::Whole(name) => name,
                Accumulator::Part(elements) if lanes == 1 => elements.concat(),
                Accumulator::Part(elements) => format!("((vec{lanes}){{{}}})", elements.join(", ")),
            };
            return CValue { text, lanes };
        }

        let (pointer, offset, stride) = self.address(access);
        let (load, vector) = narrow::load(buffer);
        let (text, lanes) = match (lanes, stride) {
            // An element that is the same for all lanes stays a scalar until an operation needs a
            // vector.
            (1, _) | (_, 0) => (format!("{pointer}[{offset}]"), 1),
            (_, 1) => (format!("{load}{lanes}({pointer} + {offset})"), lanes),
            _ => {
                let element = |i: i64| format!("{pointer}[{offset} + {}]", i * stride);
                let elements: Vec<String> = (0..lanes as i64).map(element).collect();
                (format!("(({vector}{lanes}){{{}}})", elements.join(", ")), lanes)
            }
        };
        let text = narrow::value(buffer, &text, lanes);

        // A leaf loads an element that it only reads once per C block, and reuses the variable.
        if self.leaf.as_ref().is_none_or(|leaf| leaf.written.contains(&access.buffer)) {
            return CValue { text, lanes };
        }
        if let Some(name) = self.loaded.iter().rev().find_map(|scope| scope.get(&text)) {
            return CValue { text: name.clone(), lanes };
        }
        let name = self.name();
        self.line(&format!("const {} {name} = {text};", type_name(lanes)));
        if let Some(scope) = self.loaded.last_mut() {
            scope.insert(text, name.clone());
        }
        CValue { text: name, lanes }
    }
}
