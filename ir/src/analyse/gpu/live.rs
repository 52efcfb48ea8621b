//! Registers of a thread that are live at once.

/// Registers of a thread by their use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LiveRegisters {
    /// Registers of buffers. What the lanes of a warp hold together takes those of the sums that it
    /// is computed from.
    pub(super) allocated: f64,
    /// Factors of the matrix instruction that needs most.
    pub(super) fragments: f64,
    /// Copies, by operand.
    copies: [f64; 3],
    /// Asynchronous copies before the first loop, by operand: in kernels that copy in loops, sums
    /// are not live yet.
    first_copies: [f64; 3],
}

impl LiveRegisters {
    /// Adds a copy of an operand, before the first loop or anywhere.
    pub(super) fn add_copy(&mut self, operand: usize, registers: f64, is_first: bool) {
        let copies = if is_first { &mut self.first_copies } else { &mut self.copies };
        copies[operand] = copies[operand].max(registers);
    }

    /// Returns the largest number that is live at once.
    pub(super) fn most(&self) -> f64 {
        let [first, others] = [self.first_copies, self.copies].map(|copies| copies.iter().sum::<f64>());
        let sums = self.allocated + self.fragments;
        // Without copies in a loop, compilers clear the sums while the first ones are started.
        if others == 0.0 { sums + first } else { (sums + others).max(first) }
    }
}
