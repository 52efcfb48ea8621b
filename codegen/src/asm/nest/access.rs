//! Resolves accesses to pointers and offsets, and element types of loads and stores.

use smallvec::SmallVec;

use super::super::error::{AssembleError, Failure};
use super::super::instruction_set::ElementType;
use super::{
    ElementBase, ElementFormat, LeafVariable, NestElement, NestNode, Pointer, Resolver, Scoped, Steps, ValueTree,
};
use crate::formula::memory_dtype;
use autotune_ir::DType;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{self, BufferId, Expr, Scope, StoreMode};

impl<'p> Resolver<'p> {
    /// Returns the type in which elements of a buffer are loaded.
    pub(super) fn loaded_type(&self, buffer: BufferId) -> ElementType {
        match memory_dtype(self.program.buffer(buffer)) {
            DType::F16 if self.offers.rounds_to_f16 => ElementType::F16,
            DType::Bf16 => ElementType::Bf16,
            DType::F16 => ElementType::Half,
            DType::I16 => ElementType::SignedHalf,
            DType::I8 => ElementType::SignedByte,
            DType::U8 | DType::Bool => ElementType::Byte,
            // Programs with 64-bit elements are rejected earlier.
            DType::F32 | DType::Tf32 | DType::I32 | DType::I64 => ElementType::Word,
        }
    }

    /// Returns the type in which elements of a buffer are stored.
    pub(super) fn stored_type(&self, buffer: BufferId) -> ElementType {
        match self.loaded_type(buffer) {
            ElementType::Bf16 if !self.offers.rounds_to_bf16 => ElementType::Half,
            other => other,
        }
    }

    /// True if a store copies 16-bit elements, which need no conversion, or sets them to zero.
    pub(super) fn copies_bits(&self, store: &program::Store, of: ElementType) -> bool {
        let dtype_of = |access: &program::Access| memory_dtype(self.program.buffer(access.buffer));
        let is_of_bits = matches!(of, ElementType::Half | ElementType::Bf16) && store.mode == StoreMode::Assign;
        let is_zero = matches!(store.value, Expr::Const(value) if value.to_bits() == 0);
        let is_same = |(from, _): (&program::Access, _)| dtype_of(from) == dtype_of(&store.dst);
        is_of_bits && (is_zero || store.copied().is_some_and(is_same))
    }

    pub(super) fn copy_bits(&mut self, store: &'p program::Store) -> Result<(), Failure> {
        let (first, bits) = (self.nest.elements.len(), ElementFormat { group: 1, of: ElementType::Half });
        let root = match store.copied() {
            Some((from, _)) => {
                let from = self.access_as(from, bits)?;
                self.input(from, first)
            }
            None => self.constant(0, first),
        };
        let (dst, inputs) = (self.access_as(&store.dst, bits)?, (first as u32, first as u32 + 1));

        let value = ValueTree { root, inputs, steps: None };
        self.nest.nodes.push(NestNode::Store { dst: inputs.1, mode: StoreMode::Assign, value });
        self.nest.elements.push(dst);
        Ok(())
    }

    pub(super) fn access(&mut self, access: &program::Access) -> Result<NestElement, Failure> {
        let of = self.loaded_type(access.buffer);
        self.access_as(access, ElementFormat { group: 1, of })
    }

    /// Resolves an access to elements that are read or written in groups or as another type. The
    /// offset of a group's first element is a multiple of the group for all values of the
    /// variables.
    pub(super) fn access_as(&mut self, access: &program::Access, of: ElementFormat) -> Result<NestElement, Failure> {
        // The row-major offset: a coefficient for each variable in scope, and the constant.
        let buffer = self.program.buffer(access.buffer);
        let (mut constant, mut stride) = (0, 1);
        for (index, &extent) in access.index.iter().zip(&buffer.shape).rev() {
            constant += index.constant * stride;
            for &(var, coefficient) in &index.terms {
                if let Some(scoped) = self.scope.iter_mut().rfind(|scoped| scoped.var == var) {
                    scoped.coefficient += coefficient * stride;
                }
            }
            stride *= extent as i64;
        }

        // Skip the division for single elements: it is the slowest part of this function.
        let in_groups = |elements: i64| if of.group == 1 { elements } else { elements / of.group as i64 };
        constant = in_groups(constant);
        let first = self.nest.terms.len() as u32;
        let (mut outer, mut steps) = (SmallVec::<[(VarId, i64); 8]>::new(), Steps::new());
        for Scoped { var, binding, coefficient } in &mut self.scope {
            let coefficient = in_groups(std::mem::take(coefficient));
            match (*binding, coefficient) {
                (LeafVariable::Serial(number), coefficient) => steps.push((number, coefficient)),
                (_, 0) => {}
                (LeafVariable::Outside, coefficient) => outer.push((*var, coefficient)),
                (LeafVariable::Written(number), coefficient) => self.nest.terms.push((number, coefficient)),
            }
        }
        let terms = (first, self.nest.terms.len() as u32);
        if buffer.scope != Scope::Register {
            let pointer = self.pointer((access.buffer, of), constant, &outer, &steps)?;
            // The rest of the constant becomes the displacement.
            constant -= self.pointers[usize::from(pointer)].base.constant;
            return Ok(NestElement { place: ElementBase::Memory(pointer), constant, terms });
        }

        // Accumulators are registers, so their number must not depend on outer or serial variables.
        if !outer.is_empty() || steps.iter().any(|step| step.1 != 0) {
            return Err(AssembleError::register_index(self.program, access.buffer));
        }
        Ok(NestElement { place: ElementBase::Accumulators(access.buffer), constant, terms })
    }

    /// Returns the pointer to a buffer with these outer terms and steps, new or existing.
    fn pointer(
        &mut self,
        (buffer, of): (BufferId, ElementFormat),
        constant: i64,
        outer: &[(VarId, i64)],
        steps: &Steps,
    ) -> Result<u8, Failure> {
        // One pointer serves all accesses that differ by a constant only.
        let fits =
            |p: &Pointer| (p.buffer, p.of) == (buffer, of) && p.base.terms.as_slice() == outer && p.steps_agree(steps);
        let found = self.pointers.iter().position(fits);
        let number = found.unwrap_or(self.pointers.len());
        let pointer = u8::try_from(number)
            .map_err(|_| AssembleError::Pointers { needed: number + 1, available: self.integers })?;
        if found.is_none() {
            self.pointers.push(Pointer {
                buffer,
                of,
                base: Affine { constant, terms: outer.into() },
                steps: Steps::new(),
            });
        }

        let known = &mut self.pointers[number].steps;
        for step in steps {
            if !known.contains(step) {
                known.push(*step);
            }
        }
        Ok(pointer)
    }
}
