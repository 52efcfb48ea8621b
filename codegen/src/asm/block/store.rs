//! Stores of values to memory.

use super::super::instruction_set::Address;
use super::*;

impl<S: Vectors> BlockEmitter<'_, S> {
    /// Emits memory = value, or += value.
    pub(super) fn store(&mut self, dst: MemoryAccess, mode: StoreMode, value: ValueTree) -> Result<(), Failure> {
        self.inputs = self.code.inputs_of(value);
        if mode == StoreMode::Assign
            && let Some(id) = self.as_source(value.root)
            && let LeafSource::Memory(MemoryAccess { at, shape, of }) = self.source_of(id)
            && [of, dst.of] == [ElementType::Word; 2]
            && let Shape::Strided { lanes, stride } = shape
            && !self.isa.loads_together(shape)
        {
            // Elements that are loaded one by one are copied one by one, which avoids building a
            // vector.
            let to_stride = if let Shape::Strided { stride, .. } = dst.shape { stride } else { 4 };
            self.isa.copy_elements((dst.at, to_stride), (at, stride), lanes);
            return Ok(());
        }

        if let Some(from) = self.copied_bits(dst, mode, value) {
            let spare = self.spare()?;
            self.isa.copy_narrow(dst.at, from, dst.of, spare);
            self.release(ArithmeticOperand::Register(spare));
            return Ok(());
        }

        let value = self.value(value.root, None)?;
        self.write(dst, mode, value)
    }

    /// Returns the address from which a store copies a whole vector of elements of less than 32
    /// bits without conversion.
    fn copied_bits(&self, to: MemoryAccess, mode: StoreMode, value: ValueTree) -> Option<Address> {
        let LeafSource::Memory(from) = self.source_of(self.as_source(value.root)?) else { return None };
        let is_narrow = to.of != ElementType::Word && transpose::copies_bits(to, from);
        let is_whole = from.shape == to.shape && to.shape == Shape::Lanes(self.isa.lanes());
        (is_narrow && is_whole && mode == StoreMode::Assign && !self.is_streamed(to.at)).then_some(from.at)
    }

    /// True if stores of whole vectors to an address stream past the caches.
    pub(super) fn is_streamed(&self, at: Address) -> bool {
        self.streamed & 1 << at.pointer != 0
    }

    /// Emits memory = the value of a register, or += it. Releases the register.
    pub(super) fn write(&mut self, dst: MemoryAccess, mode: StoreMode, mut value: Vector) -> Result<(), Failure> {
        let whole = dst.whole_vector(self.isa.lanes().into()).filter(|_| mode == StoreMode::Assign);
        let streamed = whole.filter(|at| self.is_streamed(*at));
        if dst.of != ElementType::Word {
            let spare = self.spare()?;
            self.isa.store_narrow(value, dst, spare, streamed.is_some());
            [value, spare].iter().for_each(|&register| self.release(ArithmeticOperand::Register(register)));
            return Ok(());
        }
        if let Some(at) = streamed {
            self.isa.stream(value, at);
            self.release(ArithmeticOperand::Register(value));
            return Ok(());
        }

        if mode == StoreMode::Accumulate {
            let old = self.spare()?;
            self.isa.load(old, dst.shape, dst.at);
            self.isa.arithmetic(Arithmetic::Add, old, old, ArithmeticOperand::Register(value));
            self.release(ArithmeticOperand::Register(value));
            value = old;
        }
        let needs_register = self.isa.store_needs_register(dst.shape);
        let spare = if needs_register { self.spare()? } else { value };
        self.isa.store(value, dst.shape, dst.at, spare);
        self.release(ArithmeticOperand::Register(value));
        if needs_register {
            self.release(ArithmeticOperand::Register(spare));
        }
        Ok(())
    }
}
