//! Access marks that detect races.

/// Accesses to each element of a buffer, by the number of the task, from 1.
pub(super) struct Marks {
    writer: Vec<u64>,
    /// Two of the tasks that have read the element, different ones if there are two.
    readers: Vec<[u64; 2]>,
}

impl Marks {
    pub(super) fn new(len: usize) -> Self {
        Self { writer: vec![0; len], readers: vec![[0; 2]; len] }
    }

    /// Records a read; returns false if another task has written the element.
    ///
    /// Ignores tasks up to number `past_marks`, which a barrier separates from this one.
    pub(super) fn read(&mut self, offset: usize, task: u64, past_marks: u64) -> bool {
        let [first, second] = &mut self.readers[offset];
        if *first <= past_marks || *first == task {
            *first = task;
        } else {
            *second = task;
        }
        let writer = self.writer[offset];
        writer <= past_marks || writer == task
    }

    /// Records a write; returns false if another task has read or written the element. Tasks up to
    /// number `past_marks` are ignored.
    pub(super) fn write(&mut self, offset: usize, task: u64, past_marks: u64) -> bool {
        let free = |mark: u64| mark <= past_marks || mark == task;
        let alone = free(self.writer[offset]) && self.readers[offset].into_iter().all(free);
        self.writer[offset] = task;
        alone
    }
}
