//! Elements that are found by values.

use super::{Value, Writer, type_name};
use autotune_ir::program::Gather;

impl Writer<'_, '_> {
    /// The load of an element at values, or of one per lane.
    pub(super) fn gather(&mut self, Gather { access, dims, at }: &Gather) -> Value {
        let buffer = self.generator.program.buffer(access.buffer);
        let (strides, shape) = (buffer.strides(), &buffer.shape);
        let all: Vec<Value> = at.iter().map(|of| self.expr(of)).collect();
        let (pointer, offset, stride) = self.address(access);
        let apart = all.iter().any(|value| value.lanes > 1);

        // The indices have names, since lanes are written out.
        let mut named = Vec::new();
        for (value, &dim) in all.into_iter().zip(dims) {
            let name = self.name();
            self.line(&format!("const {} {name} = {};", type_name(value.lanes), value.text));
            named.push((name, value.lanes, shape[dim], strides[dim]));
        }
        let at_lane = |lane: usize| {
            let term = |(name, lanes, extent, stride): &(String, usize, usize, i64)| {
                let value = if *lanes > 1 { format!("{name}[{lane}]") } else { name.clone() };
                format!(" + {stride} * gathered({value}, {extent})")
            };
            named.iter().map(term).collect::<String>()
        };
        let lanes = self.vector.map_or(1, |vector| vector.lanes);
        let (text, lanes) = match (lanes, stride, apart) {
            (1, ..) | (_, 0, false) => (format!("{pointer}[{offset}{}]", at_lane(0)), 1),
            (_, 1, false) => (format!("LD{lanes}({pointer} + {offset}{})", at_lane(0)), lanes),
            _ => {
                let element = |lane: usize| format!("{pointer}[{offset} + {}{}]", lane as i64 * stride, at_lane(lane));
                let elements: Vec<String> = (0..lanes).map(element).collect();
                (format!("((vec{lanes}){{{}}})", elements.join(", ")), lanes)
            }
        };
        Value { text, lanes }
    }
}
